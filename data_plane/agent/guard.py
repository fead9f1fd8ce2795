"""A driver may never answer: a call into it then hangs, and no signal ends it. So work is done in a thread apart.

Whoever waits is told after a while which call it is that hangs, and the process can end.
"""

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Generic, TypeVar

T = TypeVar("T")


class Hangs(Exception):  # noqa: N818 - reads as a sentence
    """Nothing came in the time allowed."""


class _End(Generic[T]):
    """The work is over; with what it raised, if it did."""

    def __init__(self, error: "Exception | None") -> None:
        self.error = error


def guarded(work: "Callable[[], Iterator[T]]", seconds: float) -> "Iterator[T]":
    """What `work` yields, done in another thread. Raises Hangs when the next takes longer than `seconds`."""
    done: Queue[T | _End[T]] = Queue(maxsize=1)  # Who is not listened to waits.

    def run() -> None:
        error: Exception | None = None
        try:
            for one in work():
                done.put(one)
        except Exception as raised:  # noqa: BLE001 - it is raised again, where the work is waited for
            error = raised
        done.put(_End(error))

    threading.Thread(target=run, name="work", daemon=True).start()
    while True:
        try:
            one = done.get(timeout=seconds)
        except Empty:
            raise Hangs from None
        if not isinstance(one, _End):
            yield one
        elif one.error is not None:
            raise one.error
        else:
            return
