"""The fleet on the wire: every machine that may exist, for operators, and counts of them."""

from typing import Annotated

from control_plane.wire.common import Money, NextCursor, Timestamp, View
from control_plane.wire.vocabulary import (
    LeaseIdText,
    MachineIdText,
    MachineStateWord,
    OrganizationIdText,
    ProjectIdText,
    one_of,
)

HealthWord = Annotated[
    str,
    one_of(
        "MachineHealth",
        "How a machine is: the first word that applies.",
        ending="It has to be terminated.",
        starting="It was ordered, and is not verified yet.",
        missing="It was verified, and its provider's last list does not show it.",
        down="It was verified, and its provider lists it as failed, stopped or ending though nobody asked for that.",
        suspect="It was verified, and failed its last GPU proof since.",
        stopped="Its customer stopped it, or it is stopping or starting, so nobody reports from it.",
        silent="Its agent reported before, and not in the last five minutes.",
        healthy="It is verified, and nothing of the above is so.",
    ),
]


class FleetMachineView(View):
    """A machine that may exist, with whoever holds it."""

    id: MachineIdText
    """The machine."""
    account: str
    """The provider account that ordered it."""
    provider: str
    """Its provider."""
    provider_ref: str | None
    """The provider's id of it; null until it is known."""
    native_status: str | None
    """The provider's own word for its state, on the last list that showed it; null before the first."""
    region: str
    """Where it is."""
    gpu_model: str | None
    """The model of its GPUs; null when it has none."""
    gpu_count: int
    """How many GPUs it has."""
    state: MachineStateWord
    """How far it is."""
    health: HealthWord
    """How it is."""
    organization_id: OrganizationIdText | None
    """Whose lease holds it; null when no lease does."""
    organization: str | None
    """The name of that organization."""
    project_id: ProjectIdText | None
    """The project of that lease."""
    project: str | None
    """The name of that project."""
    lease_id: LeaseIdText | None
    """The lease that holds it; null when none does."""
    lease: str | None
    """The name of that lease."""
    created_at: Timestamp
    """When it was chosen for an order."""
    cost_per_hour: Money
    """What the provider charges for it while it is on."""
    cost: Money
    """What the provider has charged for it since the order, without what it rounds up, and with less for the times for
    which its last lease had it stopped."""


class FleetMachinePage(View):
    """Machines, newest first."""

    items: tuple[FleetMachineView, ...]
    """The machines."""
    next_cursor: NextCursor | None = None


class FleetCountView(View):
    """A number of machines, and of their GPUs."""

    machines: int
    """How many machines."""
    gpus: int
    """How many GPUs these machines have."""


class FleetTotalView(View):
    """Machines of a provider and a GPU model, or of all, counted."""

    provider: str | None
    """The provider; null for the sum of all."""
    gpu_model: str | None
    """The GPU model; null for the sum of all, and for machines without GPUs."""
    all: FleetCountView
    """Those that may exist at their provider."""
    delivered: FleetCountView
    """Those that run and have an address, and are not being terminated."""
    healthy: FleetCountView
    """Those whose health is `healthy` or `stopped`."""
    reserved: FleetCountView
    """Those that a lease holds, ready or not."""
    active: FleetCountView
    """Those whose lease is ready, and so billed."""
    cost_per_hour: Money
    """What the providers charge for all of them."""


class FleetTotals(View):
    """The fleet, counted."""

    total: FleetTotalView
    """The sum of all."""
    lines: tuple[FleetTotalView, ...]
    """A line for each provider and GPU model."""
