"""Watches the GPUs in a process of its own, because a driver that hangs takes its process with it.

The process is this agent with `health --watch`, which prints a document every so many seconds. One that ends is started
again later: after a failure, the next one follows after 15 s, and then after twice as long each time, up to 5 minutes.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from data_plane.documents import protocol, strict
from data_plane.documents.health import Health
from data_plane.documents.protocol import DOCUMENT_BYTES_MAX, Failure
from data_plane.documents.sample import SECONDS

FIRST_SECONDS = 60
"""For the first document: without a persistence daemon, the driver initialises every card anew."""
STALE_SECONDS = 60
"""After which the last document is none any more."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 15, 300


class Process(Protocol):
    """The part of subprocess.Popen that is needed."""

    @property
    def stdout(self) -> "IO[bytes] | None": ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


Start = Callable[[], Process]


def starting(agent: Path, seconds: int = SECONDS) -> Start:
    """Starts `health --watch` of this agent. Raises OSError."""
    command = [sys.executable, "-I", str(agent), "health", "--watch", str(seconds)]

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    return start


class GpuWatch:
    """The latest document about the GPUs."""

    def __init__(
        self,
        start: Start,
        *,
        monotonic: "Callable[[], float]" = time.monotonic,
        sleep: "Callable[[float], object]" = time.sleep,
    ) -> None:
        self._start = start
        self._monotonic = monotonic
        self._sleep = sleep
        self._news = threading.Condition()
        self._latest: Health | Failure | None = None
        self._heard_at = 0.0
        self._taken = True

    def next(self, seconds: float) -> "Health | Failure":
        """The next document, or after `seconds` what is still true of the last one."""
        with self._news:
            self._news.wait_for(lambda: not self._taken, FIRST_SECONDS if self._latest is None else seconds)
            self._taken = True
            latest = self._latest
            fresh = self._monotonic() - self._heard_at <= STALE_SECONDS
        if isinstance(latest, Failure) or (latest is not None and fresh):
            return latest
        return Failure("no_answer", f"no document for {STALE_SECONDS} s")

    def run(self) -> None:
        """Run the process, and start it again whenever it ends, for ever. Runs in a thread of its own."""
        pause = PAUSE_SECONDS
        while True:
            self.follow()
            if isinstance(self._latest, Health):
                pause = PAUSE_SECONDS
            self._sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def follow(self) -> None:
        """Start the process, and take what it prints until it ends."""
        try:
            process = self._start()
        except OSError as error:
            self._put(Failure("no_answer", strict.printable(f"{type(error).__name__}: {error}")))
            return
        try:
            self._take(process.stdout)
        except strict.Malformed as error:
            process.kill()
            self._put(Failure("bad_reading", strict.printable(str(error))))
        finally:
            process.wait()

    def _take(self, printed: "IO[bytes] | None") -> None:
        if printed is None:
            return
        with printed:
            while line := printed.readline(DOCUMENT_BYTES_MAX + 1):
                document = protocol.decode(line)
                if isinstance(document, Health | Failure):
                    self._put(document)

    def _put(self, document: "Health | Failure") -> None:
        with self._news:
            self._latest, self._heard_at, self._taken = document, self._monotonic(), False
            self._news.notify_all()
