"""The fleet on the wire: every machine that may exist, for operators, and counts of them."""

from control_plane.wire.common import Money, NextCursor, Timestamp, View
from control_plane.wire.repairs import VerdictWord
from control_plane.wire.vocabulary import (
    LeaseIdText,
    MachineIdText,
    MachineStateWord,
    OrganizationIdText,
    ProjectIdText,
)


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
    verdict: VerdictWord | None
    """How healthy it is: `GET /v1/operator/repairs` says what is done about it. Null before it is verified, and while
    it has to be terminated."""
    silent: bool
    """Whether its agent reported before, and not in the last five minutes, though its customer did not stop it. Silence
    is no fault."""
    stopped: bool
    """Whether its customer stopped it, or it is stopping or starting, so that nobody reports from it."""
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
    """Those that are verified, `healthy` and not silent."""
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
