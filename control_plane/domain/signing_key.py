"""The life of a key that signs access tokens: published first, then signing, then only verifying.

A key is published a day before it signs, so that whoever caches our keys knows it in time, and it verifies for an hour
longer than it signs, which is longer than any token lasts. So three keys can be published: next, current and previous.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

PUBLISHED_BEFORE = timedelta(days=1)
SIGNS_FOR = timedelta(days=30)
VERIFIES_AFTER = timedelta(hours=1)
"""So long after its last signature a key still verifies."""
TOKEN_LASTS = timedelta(minutes=15)
"""How long an access token is valid."""


class Phase(StrEnum):
    NEXT = "next"
    CURRENT = "current"
    PREVIOUS = "previous"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """What everybody may know of a key."""

    id: str
    public: bytes
    """32 bytes, as Ed25519 has them."""
    signs_from: datetime
    signs_until: datetime
    removed_at: datetime | None = None
    """When an operator removed it: from then on it verifies nothing."""

    def phase(self, now: datetime) -> Phase:
        if self.removed_at is not None or now >= self.signs_until + VERIFIES_AFTER:
            return Phase.OVER
        if now >= self.signs_until:
            return Phase.PREVIOUS
        return Phase.CURRENT if now >= self.signs_from else Phase.NEXT


def published(keys: Iterable[SigningKey], now: datetime) -> list[SigningKey]:
    """The keys that verify tokens now, or soon will."""
    return [key for key in keys if key.phase(now) is not Phase.OVER]


def signing(keys: Iterable[SigningKey], now: datetime) -> SigningKey | None:
    """The key that signs now. Of several, the one that began last."""
    current = [key for key in keys if key.phase(now) is Phase.CURRENT]
    return max(current, key=lambda key: (key.signs_from, key.id), default=None)


def term(keys: Iterable[SigningKey], now: datetime) -> tuple[datetime, datetime] | None:
    """From when until when a new key should sign; None while none is needed.

    It follows the last one. When there is no key that signs now, it signs at once.
    """
    held = list(keys)
    if signing(held, now) is None:
        return now, now + SIGNS_FOR
    alive = [key for key in held if key.phase(now) in {Phase.CURRENT, Phase.NEXT}]
    end = max(key.signs_until for key in alive)
    return (end, end + SIGNS_FOR) if now >= end - PUBLISHED_BEFORE else None
