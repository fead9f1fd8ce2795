"""The time that passes while a request waits: seconds that only grow, waiting, and a call to be made later.

`Terminal.now` is the time of day; this clock measures how long something takes. Tests replace both.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


def later(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    """Make the call in another thread after so many seconds, unless the function returned is called before."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True  # A command that is done does not wait for it.
    timer.start()
    return timer.cancel


@dataclass(frozen=True, slots=True)
class Clock:
    seconds: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], object] = threading.Event.wait
    """Sleep until the event is set, or so many seconds have passed."""
    later: Callable[[float, Callable[[], None]], Callable[[], None]] = later
