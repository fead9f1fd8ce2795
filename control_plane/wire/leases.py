"""Leases: the request, the four faces of a lease, and the explanation of how it came to be where it is."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from control_plane.wire.catalogue import CandidateView, QuoteRequest, RejectedView
from control_plane.wire.common import Money, Name, SshKeyIdText, View
from control_plane.wire.journal import JournalLine
from control_plane.wire.proofs import ProofView


class LeaseRequest(QuoteRequest):
    name: Name | None = None
    """Generated when it is left out. It need not be unique."""
    project: Name | None = None
    """The name of the project that the lease belongs to; the default one when it is left out."""
    ssh_key_ids: Annotated[tuple[SshKeyIdText, ...], Meta(max_length=32)] = ()


class LeaseRequestView(View):
    """Desired: what the customer asked for."""

    sku: str
    regions: tuple[str, ...]
    providers: tuple[str, ...]
    price_per_hour_max: Money | None


class StatusView(View):
    """Projected: what the lease is to its customer now."""

    phase: str
    """`pending`, `starting`, `ready`, `unconfirmed`, `ending` or `ended`."""
    step: str | None
    """The last step done: `placed`, `launched`, `booted`, `connected`, `gpus_verified`, `gpus_proven` where the
    SKU demands proof, `mesh_joined`, `keys_installed`."""
    steps_done: int
    steps_total: int
    message: str


class MachineView(View):
    """Observed: the latest attempt's machine."""

    machine_id: str
    provider: str
    region: str
    state: str
    address: str | None
    ssh_port: int
    ssh_user: str
    host_key: str | None
    """The SSH host key to pin. A machine that presents another one is not yours."""
    mesh_address: str | None
    """The machine's address in your private network."""
    sighted_at: datetime | None
    """When the provider last listed the machine."""


class LeaseProofView(View):
    """Observed: what the latest attempt's machine has proven of its GPUs."""

    demanded: str
    """What the SKU demanded when the lease was admitted: `listed`, `proven` or `attested`."""
    tier: str
    """What the machine is now: `listed`, `proven`, `watched` or `attested`."""
    id: str | None
    """The latest proof; null before the first."""
    outcome: str | None
    at: datetime | None


def _no_proof() -> LeaseProofView:
    """What an API that knows no GPU proofs means by leaving them out."""
    return LeaseProofView("listed", "listed", None, None, None)


class LeaseView(View, kw_only=True):
    id: str
    name: str
    project: str
    """The name of the project that the lease belongs to."""
    project_id: str
    request: LeaseRequestView
    gpu_model: str
    gpu_count: int
    price_per_gpu_hour: Money
    """Fixed when the lease was admitted."""
    price_per_hour: Money
    state: str
    """`placing`, `starting`, `ready`, `ending` or `ended`; what `?state=` filters by."""
    status: StatusView
    machine: MachineView | None
    proof: LeaseProofView = field(default_factory=_no_proof)
    attempts: int
    end_reason: str | None
    end_why: str | None
    created_at: datetime
    ready_at: datetime | None
    """The bill starts at the first full second after this."""
    billed_until: datetime | None
    ended_at: datetime | None


class LeasePage(View):
    items: tuple[LeaseView, ...]
    next_cursor: str | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class PlacementView(View):
    number: int
    decided_at: datetime
    chosen: str | None
    """The key of the chosen candidate; null when there was no candidate."""
    candidates: tuple[CandidateView, ...]
    rejected: tuple[RejectedView, ...]


class AttemptView(View):
    """One try to serve the lease with a machine."""

    number: int
    machine_id: str
    provider: str
    region: str
    native_type: str
    state: str
    """The machine's: `intended`, `launching`, `booting`, `bootstrapping`, `verified`, `terminating` or `gone`."""
    step: str | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    """`admitted`, `failed` or `abandoned`; null while the attempt is under way."""
    asked_at: datetime | None
    sighted_at: datetime | None
    fail_reason: str | None
    fail_why: str | None


class GpuReading(View):
    name: str
    uuid: str
    memory_mib: int


class ReportView(View):
    """What a machine reported about its GPUs, and our verdict."""

    id: str
    machine_id: str
    at: datetime
    verdict: str
    why: str | None
    source: str
    """`nvml`, or `emulated`."""
    gpus: tuple[GpuReading, ...]


class ExplanationView(View):
    """Everything that led a lease to where it is."""

    lease: LeaseView
    admission: JournalLine | None
    placements: tuple[PlacementView, ...]
    attempts: tuple[AttemptView, ...]
    journal: tuple[JournalLine, ...]
    """The first 1,000 lines; `/journal` pages through all of them."""
    reports: tuple[ReportView, ...]
    proofs: tuple[ProofView, ...] = ()
    """The latest 200, newest first; `/proofs` pages through all of them."""


class StreamEnd(View):
    """The data of a stream's `end` event."""

    reason: str
    """`ended`; with `?until=ready` also `ready`, or `ending` when the lease will never be ready."""
