"""Usage and its sums, the bill of a month, and the reconciliation of charges with the ledger."""

from typing import Annotated

from msgspec import field

from control_plane.wire.common import Money, NextCursor, Timestamp, View
from control_plane.wire.sla import PromiseWord, SlaBreachIdText
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import (
    ChargeIdText,
    GpuModelWord,
    LeaseIdText,
    MachineIdText,
    OrganizationIdText,
    ProjectIdText,
    PurchaseWord,
    one_of,
)

UnitWord = Annotated[
    str,
    one_of(
        "Unit",
        "What a price is for, and what a bill counts.",
        gpu="A GPU.",
        machine="A machine that has no GPUs.",
    ),
]


class UsageRow(View):
    """One charge: a rated interval of one lease."""

    id: ChargeIdText
    """The id of the charge."""
    lease_id: LeaseIdText
    """The lease that was used."""
    lease_name: str
    """The name of the lease."""
    interval: int
    """The number of the interval in its lease."""
    sku: str
    """The SKU of the lease."""
    started_at: Timestamp
    """Start of the interval."""
    ended_at: Timestamp
    """End of the interval."""
    unit: UnitWord
    """What the price is for: a GPU, or a machine where there are none."""
    unit_seconds: int
    """Seconds of the interval, times the number of GPUs, or 1 where there are none."""
    price_per_unit_hour: Money
    """The price when the lease was admitted."""
    amount: Money
    """What the interval costs."""
    project: str
    """The name of the lease's project."""
    project_id: ProjectIdText
    """The id of the lease's project."""
    machine_id: MachineIdText
    """The machine that was used."""
    provider: str
    """Whose machine it was."""
    region: str
    """Where it was."""
    purchase: PurchaseWord
    """How the lease is bought."""
    price_book: int
    """The version of the price book that the price is from."""
    organization_id: OrganizationIdText
    """The organization that pays."""
    gpu_model: GpuModelWord | None
    """The model of the lease's GPUs; null for a machine without GPUs."""
    gpu_count: int
    """How many GPUs the lease has."""
    currency: str
    """The currency of all amounts: `USD`."""
    labels: dict[str, str] = field(default_factory=dict)
    """The labels that the lease has now. Charges never change; labels may."""
    node_pool: str | None = None
    """The name of the node pool that the lease is a node of; null for a machine."""
    stopped: bool = False
    """Whether the machine was stopped, and charged at the price for that."""
    sla: SlaTierWord = "bronze"
    """The tier that the lease is sold with; its price is that of the tier."""
    unused: bool = False
    """Whether it is the rest of a term, which was not used: it is charged at once, and counts as no use."""


class UsagePage(View):
    """A page of charges."""

    items: tuple[UsageRow, ...]
    """The charges, oldest first."""
    next_cursor: NextCursor | None


UsageGroupingWord = Annotated[
    str,
    one_of(
        "UsageGrouping",
        "By what usage is added up.",
        organization="The customer: all of its usage together.",
        project="The project of the lease.",
        lease="The lease.",
        sku="The SKU of the lease.",
        day="The day in UTC.",
        label="The value that a label of the lease has now.",
    ),
]


class UsageGroupView(View):
    """The charges that have something in common."""

    id: LeaseIdText | OrganizationIdText | ProjectIdText | None
    """The id of the organization, the project or the lease; null for other groups."""
    name: str | None
    """The name of the organization, the project, the lease or the SKU, the day such as `2026-11-20`, or the label's
    value. Null for leases without the label."""
    charges: int
    """The number of charges."""
    gpu_seconds: int
    """GPU-seconds that are charged."""
    machine_seconds: int
    """Seconds of machines without GPUs that are charged."""
    amount: Money
    """What they cost."""
    unused: Money
    """The part of it for the rest of terms, which was not used."""


class UsageSumsView(View):
    """The usage of a month, added up by something that charges have in common."""

    by: UsageGroupingWord
    """By what it is added up."""
    label_key: str | None
    """The key of the label, where it is added up by one."""
    since: Timestamp
    """Start of the month."""
    until: Timestamp
    """The month is a calendar month in UTC. It includes `since` and excludes `until`."""
    groups: tuple[UsageGroupView, ...]
    """Days in their order; other groups by what they cost, the most expensive first."""
    gpu_seconds: int
    """The sum of the groups, exactly."""
    machine_seconds: int
    """The sum of the groups, exactly."""
    amount: Money
    """The sum of the groups, exactly."""
    unused: Money
    """The sum of the groups, exactly."""


class CustomerUsageView(View):
    """The usage of a customer in a month."""

    organization_id: OrganizationIdText
    """The customer."""
    organization: str
    """The customer's name."""
    usage: UsageSumsView
    """What it used, added up."""


class CustomerUsagePage(View):
    """A page of customers with their usage."""

    items: tuple[CustomerUsageView, ...]
    """The customers, oldest first, also those that used nothing."""
    next_cursor: NextCursor | None


class BillLineView(View):
    """What one lease costs in the period, on or stopped, or for the rest of a term."""

    lease_id: LeaseIdText
    """The lease."""
    name: str
    """The name of the lease."""
    project: str
    """The name of the lease's project."""
    project_id: ProjectIdText
    """The id of the lease's project."""
    sku: str
    """The SKU of the lease."""
    unit: UnitWord
    """What the price is for: a GPU, or a machine where there are none."""
    price_per_unit_hour: Money
    """The price when the lease was admitted."""
    unit_seconds: int
    """Seconds that are rated, times the number of GPUs, or 1 where there are none."""
    amount: Money
    """Rated and posted."""
    unrated_unit_seconds: int
    """The same of what is not rated yet."""
    unrated: Money
    """Used since the last rated interval, and not rated yet."""
    node_pool: str | None = None
    """The name of the node pool that the lease is a node of; null for a machine."""
    stopped: bool = False
    """Whether it is the time in which the machine was stopped."""
    unused: bool = False
    """Whether it is the rest of a term, which was not used."""
    sla: SlaTierWord = "bronze"
    """The tier that the lease is sold with."""


class ProjectTotalView(View):
    """The sums of a bill's lines that belong to one project."""

    project: str
    """The project's name."""
    project_id: ProjectIdText
    """The project's id."""
    gpu_seconds: int
    """GPU-seconds that are rated."""
    machine_seconds: int
    """Seconds of machines without GPUs that are rated."""
    amount: Money
    """Rated and posted."""
    unrated_gpu_seconds: int
    """GPU-seconds that are not rated yet."""
    unrated_machine_seconds: int
    """Seconds of machines without GPUs that are not rated yet."""
    unrated: Money
    """Used since the last rated intervals, and not rated yet."""


class SlaCreditView(View):
    """What the balance got because a promise was broken in the month."""

    breach_id: SlaBreachIdText
    """The id of the breach; the entries of the balance name it as well."""
    lease_id: LeaseIdText
    """The lease."""
    lease_name: str
    """The name of the lease."""
    promise: PromiseWord
    """Which promise."""
    why: str
    """The evidence in figures, as a sentence."""
    amount: Money
    """What the balance got, with later corrections."""


class BillView(View):
    """The bill of a calendar month: of the present one so far, or of an earlier one."""

    since: Timestamp
    """Start of the period."""
    until: Timestamp
    """The period is a calendar month in UTC. It includes `since` and excludes `until`."""
    lines: tuple[BillLineView, ...]
    """One line per lease, and others for the time in which its machine was stopped, and for the rest of its term."""
    projects: tuple[ProjectTotalView, ...]
    """The sums of each project that has a line, in order of name."""
    amount: Money
    """The sum of the lines: rated and posted."""
    unrated: Money
    """The sum of what is not rated yet."""
    balance: Money | None
    """Of the organization as it is now, also where the lines are those of one project or of an earlier month. Null for
    a caller who sees less than the whole organization."""
    held: Money | None
    """Set aside for running leases; null like the balance."""
    available: Money | None
    """The balance less what is set aside; null like the balance."""
    balance_warning: str | None = None
    """The warning as a sentence while the balance is low (`GET /v1/balance/alerts`); null otherwise, and like the
    balance."""
    sla_credits: tuple[SlaCreditView, ...] = ()
    """What the balance got for promises that were broken in the month. It is not part of `amount`."""


class ReconciliationView(View):
    """The charges of an organization against its ledger."""

    gpu_seconds: int
    """GPU-seconds of all charges."""
    machine_seconds: int
    """Seconds of machines without GPUs, of all charges."""
    rated: Money
    """The sum of all charges."""
    posted: Money
    """The sum of the charges in the ledger."""
    balance: Money
    """What was paid in, less the charges posted."""
    difference: Money
    """Rated less posted. Anything but zero is an error of ours."""


class UsageCsvRow(View):
    """A line of `/v1/usage.csv`: the columns in their order. New columns go to the end."""

    charge_id: ChargeIdText
    """The id of the charge."""
    lease_id: LeaseIdText
    """The lease that was used."""
    lease_name: str
    """The name of the lease."""
    interval: int
    """The number of the interval in its lease."""
    sku: str
    """The SKU of the lease."""
    started_at: Timestamp
    """Start of the interval, in UTC."""
    ended_at: Timestamp
    """End of the interval, in UTC."""
    unit_seconds: int
    """Seconds of the interval, times the number of GPUs, or 1 where there are none."""
    price_usd_per_unit_hour: str
    """The price when the lease was admitted, in US dollars with nine decimal places."""
    amount_usd: str
    """What the interval costs, in US dollars with nine decimal places."""
    amount_nano_usd: int
    """The same amount in nano-US-dollars (1e-9 USD)."""
    project: str
    """The name of the lease's project."""
    project_id: ProjectIdText
    """The id of the lease's project."""
    machine_id: MachineIdText
    """The machine that was used."""
    provider: str
    """Whose machine it was."""
    region: str
    """Where it was."""
    purchase: PurchaseWord
    """How the lease is bought."""
    price_book: int
    """The version of the price book that the price is from."""
    labels: str
    """The labels that the lease has now, as one JSON object."""
    node_pool: str
    """The name of the node pool that the lease is a node of; empty for a machine."""
    unit: UnitWord
    """What the price is for: a GPU, or a machine where there are none."""
    stopped: bool
    """Whether the machine was stopped: `true` or `false`."""
    gpu_model: str
    """The model of the lease's GPUs; empty for a machine without GPUs."""
    gpu_count: int
    """How many GPUs the lease has."""
    organization_id: OrganizationIdText
    """The organization that pays."""
    currency: str
    """The currency of all amounts: `USD`."""
    sla: SlaTierWord
    """The tier that the lease is sold with."""
    unused: bool
    """Whether it is the rest of a term, which was not used: `true` or `false`."""
