"""The wall clock, for what needs one outside a test: the fake, the emulators, a signature with a time in it."""

from datetime import UTC, datetime
from time import time


def utc_now() -> datetime:
    return datetime.fromtimestamp(time(), tz=UTC)
