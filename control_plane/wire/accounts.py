"""Provider accounts, and permits to terminate machines there."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import AccountText, Request, Sentence, View


class PermitRequest(Request):
    account: AccountText
    why: Sentence
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class PermitView(View):
    """Machines of the account that fail their GPU proof may be terminated, however many fail."""

    account: str
    why: str
    actor: str
    at: datetime
    until: datetime


class AccountView(View):
    name: str
    provider: str
    listing_asked_at: datetime | None
    listing_size: int
    """How many machines the last complete list had."""
    frozen_since: datetime | None
    frozen_why: str | None
    failing_since: datetime | None
    failing_why: str | None
    ending_permit: PermitView | None


class AccountList(View):
    items: tuple[AccountView, ...]
