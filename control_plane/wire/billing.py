"""Usage, the running bill, and the reconciliation of charges with the ledger."""

from datetime import datetime

from control_plane.wire.common import Money, View


class UsageRow(View):
    """One charge: a rated interval of one lease."""

    id: str
    lease_id: str
    lease_name: str
    number: int
    """The number of the interval in its lease."""
    sku: str
    started_at: datetime
    ended_at: datetime
    gpu_seconds: int
    price_per_gpu_hour: Money
    amount: Money
    project: str
    """The name of the lease's project."""
    project_id: str
    machine_id: str
    provider: str
    region: str
    purchase: str
    """How the lease is bought: `on_demand`, which is by the second until it is released."""
    price_book: int
    """The version of the price book that the price is from."""


class UsagePage(View):
    items: tuple[UsageRow, ...]
    next_cursor: str | None


class BillLineView(View):
    lease_id: str
    name: str
    project: str
    """The name of the lease's project."""
    project_id: str
    sku: str
    price_per_gpu_hour: Money
    gpu_seconds: int
    amount: Money
    """Rated and posted."""
    unrated_gpu_seconds: int
    unrated: Money
    """Used since the last rated interval, and not rated yet."""


class BillView(View):
    since: datetime
    until: datetime
    """The period is a calendar month in UTC. It includes `since` and excludes `until`."""
    lines: tuple[BillLineView, ...]
    amount: Money
    unrated: Money
    balance: Money
    held: Money
    available: Money


class ReconciliationView(View):
    gpu_seconds: int
    rated: Money
    posted: Money
    balance: Money
    difference: Money
    """Rated less posted. Anything but zero is an error of ours."""
