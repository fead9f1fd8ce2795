"""What a process may use besides its arguments: the database, the clock and new ids.

The composition roots (`__main__.py`) build it; tests pass a virtual clock and ids from a counter.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from control_plane.db.engine import Database


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the one place that reads the clock


def uuid7() -> UUID:
    """A time-ordered id (RFC 9562, version 7): 48 bits of Unix milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= (chance >> 68 & 0xFFF) << 64
    value |= 0b10 << 62
    value |= chance & ((1 << 62) - 1)
    return UUID(int=value)


@dataclass(frozen=True, slots=True)
class World:
    """What the API process may use. It holds no provider key and no SSH key."""

    db: Database
    now: Callable[[], datetime] = utc_now
    new_id: Callable[[], UUID] = uuid7
