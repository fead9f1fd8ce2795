"""A time limit for calls into a driver that may never return.

A call into a driver that hangs cannot be ended by a signal. Therefore the work runs in another thread; the main thread
gives up after a time limit, reports the call that hangs, and ends the process.
"""

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import Generic, TypeVar

T = TypeVar("T")


class Hangs(Exception):  # noqa: N818 - reads as a sentence
    """The work did not go on within its time limit."""


class _End(Generic[T]):
    """The end of the work, with the exception that it raised, if any."""

    def __init__(self, error: "Exception | None") -> None:
        self.error = error


def guarded(work: "Callable[[], Iterator[T]]", seconds: float) -> "Iterator[T]":
    """Run `work` in another thread and yield what it yields. Raises Hangs if one step takes longer than `seconds`."""
    done: Queue[T | _End[T]] = Queue(maxsize=1)  # So that work waits until its last result is taken.

    def run() -> None:
        error: Exception | None = None
        try:
            for one in work():
                done.put(one)
        except Exception as raised:  # noqa: BLE001 - it is raised again in the other thread
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
