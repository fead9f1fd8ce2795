"""Orphans: machines at a provider that no open record claims."""

from datetime import datetime

from control_plane.wire.common import View


class OrphanView(View):
    account: str
    provider_ref: str
    """The provider's id of the machine."""
    launch_key: str
    native_status: str
    """The status in the provider's own words."""
    first_seen_at: datetime
    last_seen_at: datetime
    lists_seen: int
    """How many of the provider's lists have shown it."""
    terminate_asked_at: datetime | None
    note: str | None


class OrphanList(View):
    items: tuple[OrphanView, ...]
