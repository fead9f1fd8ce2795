"""What a process may use besides its arguments: the database, the clock and new ids.

The composition roots (`__main__.py`) build it; tests pass a virtual clock and ids from a counter.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from control_plane.db.engine import Database
from control_plane.db.offer_cache import OfferCache
from control_plane.vault.sealing.port import KeyMaker
from tracing.tracer import NO_TRACER, Tracer


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the one place that reads the clock


def uuid7() -> UUID:
    """A time-ordered id (RFC 9562, version 7).

    After the 48 bits of Unix milliseconds come 12 bits of the fraction of the millisecond (its
    section 6.2, method 3) and 62 random bits, so rows that one process makes one after another
    sort in that order even within a millisecond.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= ((nanoseconds << 12) // 1_000_000) << 64
    value |= 0b10 << 62
    value |= int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return UUID(int=value)


def no_refusal() -> str | None:
    """The clock is right."""
    return None


@dataclass(frozen=True, slots=True)
class World:
    """What the API process may use. It holds no provider key and no SSH key."""

    db: Database
    now: Callable[[], datetime] = utc_now
    """The database's time in a process of its own (`db/clock.py`)."""
    new_id: Callable[[], UUID] = uuid7
    clock_refusal: Callable[[], str | None] = no_refusal
    """Why the clock must not be trusted now, as a sentence; None when it is right."""
    tracer: Tracer = NO_TRACER
    offers: OfferCache = field(default_factory=OfferCache)
    """Of the database above."""
    sealing: KeyMaker | None = None
    """Makes the data keys of secrets, and can unwrap none. None when no key manager is configured."""
