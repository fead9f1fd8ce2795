"""The device flow (RFC 8628): a terminal shows a code, a person confirms it in a browser, and it gets its tokens."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

LASTS = timedelta(minutes=10)
FIRST_INTERVAL_SECONDS = 3
"""So many seconds a terminal waits between two questions at first."""
SLOWED_BY_SECONDS = 5
"""By so much the interval grows when it asks too soon (RFC 8628, section 3.5)."""
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that a code is no word, and nothing that looks like a digit (RFC 8628, section 6.1)."""
CODE_LENGTH = 8
_CODE = re.compile(rf"[{ALPHABET}]{{{CODE_LENGTH}}}")


class DeviceState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    REDEEMED = "redeemed"
    """The terminal has its tokens. A second question gets none."""


class Answer(StrEnum):
    """What a terminal that asks is told: tokens, or one of the errors of RFC 8628, section 3.5."""

    TOKENS = "tokens"
    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"


@dataclass(frozen=True, slots=True)
class Device:
    """A terminal that waits to be signed in."""

    id: UUID
    state: DeviceState
    client: str
    """What it calls itself."""
    address: str
    created_at: datetime
    expires_at: datetime
    interval_seconds: int
    polled_at: datetime | None
    approved_organization: UUID | None = None
    approved_user: UUID | None = None

    def waits(self, now: datetime) -> bool:
        """Whether a person may still confirm it."""
        return self.state is DeviceState.PENDING and now < self.expires_at


def poll(device: Device, now: datetime) -> Answer:
    """What a terminal is told that asks now. Approval counts only until the code expires."""
    if now >= device.expires_at or device.state is DeviceState.REDEEMED:
        return Answer.EXPIRED
    if device.state is DeviceState.DENIED:
        return Answer.DENIED
    early = device.polled_at is not None and now < device.polled_at + timedelta(
        seconds=device.interval_seconds
    )
    if early:
        return Answer.SLOW_DOWN
    return Answer.TOKENS if device.state is DeviceState.APPROVED else Answer.PENDING


def shown(code: str) -> str:
    """A user code as people read it: `BCDF-GHJK`."""
    return f"{code[:4]}-{code[4:]}"


def typed(text: str) -> str | None:
    """A user code as somebody typed it, in any case and with any separators; None when it can be none."""
    code = re.sub(r"[\s-]+", "", text.upper())[: CODE_LENGTH + 1]
    return code if _CODE.fullmatch(code) else None
