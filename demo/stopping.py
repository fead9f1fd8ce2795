"""How the demo is asked to stop: the first signal stops everything in order, the second kills it at once."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 0.5
"""Two signals within this time are one: a terminal and make may both send the same one."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def postponed() -> Iterator[None]:
    """Let signals wait until a step is done that leaves something behind when it is interrupted."""
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class Stopped(BaseException):
    """A signal asked us to stop. `code` is the exit status that a shell expects then."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number
        super().__init__(number)


class Stopping:
    """Raises Stopped in the main thread at the first signal, unless `begun`; at the second, calls `kill` and exits."""

    def __init__(
        self,
        say: Callable[[str], None],
        kill: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._say = say
        self._kill = kill
        self._clock = clock
        self._leave = leave
        self._asked_at: float | None = None
        self.begun = False
        """Whether we are stopping already, so that nothing may interrupt that but a second signal."""

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self.asked)

    def asked(self, number: int, _: FrameType | None = None) -> None:
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            self._say("\nstopping its processes and machines; Ctrl-C again kills them at once")
            if not self.begun:
                self.begun = True
                raise Stopped(number)
        elif now - self._asked_at >= AGAIN_SECONDS:
            for ignored in SIGNALS:
                signal.signal(ignored, signal.SIG_IGN)
            self._say("\nkilling its processes and machines")
            try:
                self._kill()
            finally:
                self._leave(128 + number)
