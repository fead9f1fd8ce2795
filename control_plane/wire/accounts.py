"""Provider accounts, and permits to terminate machines there."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import AccountText, Request, Sentence, View


class TerminationPermitRequest(Request):
    account: AccountText
    why: Sentence
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class TerminationPermitView(View):
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
    """Since when no machine is bought or terminated there, because a list looked wrong; null when it is not so."""
    frozen_why: str | None
    failing_since: datetime | None
    """Since when the provider does not answer; null when it does."""
    failing_why: str | None
    termination_permit: TerminationPermitView | None
    """The permit in force; null when there is none."""


class AccountList(View):
    items: tuple[AccountView, ...]
