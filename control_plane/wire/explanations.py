"""Why a lease is where it is: its placements, its attempts, and what its machines reported, on the wire."""

from control_plane.wire.admissions import DecisionView
from control_plane.wire.catalogue import CandidateView, RejectedView
from control_plane.wire.codes import FailReasonWord, PoolRejectCodeWord
from control_plane.wire.common import Timestamp, View
from control_plane.wire.journal import JournalLine
from control_plane.wire.leases import LeaseView
from control_plane.wire.proofs import ProofView
from control_plane.wire.vocabulary import (
    AttemptOutcomeWord,
    MachineIdText,
    MachineStateWord,
    StepWord,
    VerdictWord,
)


class UnfitMachineView(View):
    """A machine of a warm pool that the lease could not claim."""

    machine_id: MachineIdText
    """The machine."""
    pool: str | None
    """The name of its pool; null for one that is reserved for the lease."""
    code: PoolRejectCodeWord
    """Why not."""
    why: str
    """The reason as a sentence."""


class PooledView(View):
    """What was decided about the machines of warm pools, which go before any offer."""

    machine_id: MachineIdText | None
    """The machine that the lease claimed; null when none fitted."""
    reserved: bool
    """Whether it was reserved for the lease, in place of a machine that it had."""
    pool: str | None
    """The name of its pool. Only operators see it, with the permission `provider_accounts.read`; null otherwise."""
    unfit: tuple[UnfitMachineView, ...]
    """The machines that did not fit, the first 20. Empty without the permission `provider_accounts.read`."""
    fit_count: int
    """How many machines fitted."""
    unfit_count: int
    """How many did not."""


class PlacementView(View):
    """One choice among the machines that wait in pools and the offers."""

    number: int
    """Counts the placements of the lease from 1."""
    decided_at: Timestamp
    """When it was decided."""
    chosen: str | None
    """The key of the chosen candidate; null when there was none, and when a machine of a pool was claimed."""
    candidates: tuple[CandidateView, ...]
    """The offers that could serve the lease, best first."""
    rejected: tuple[RejectedView, ...]
    """The offers that could not, with the reasons."""
    more_candidates: int = 0
    """How many more candidates there were; the best 100 are named."""
    pooled: PooledView | None = None
    """What was decided about machines of warm pools; null where none was kept for the SKU."""


class AttemptView(View):
    """One try to serve the lease with a machine."""

    number: int
    """Counts the attempts of the lease from 1."""
    machine_id: MachineIdText
    """The machine."""
    provider: str
    """Whose machine it is."""
    region: str
    """Where it is."""
    native_type: str
    """The provider's own name of the machine type."""
    state: MachineStateWord
    """The machine's: `intended`, `launching`, `booting`, `bootstrapping`, `verified`, `terminating` or `gone`."""
    step: StepWord | None
    """The last step done; null before the first."""
    started_at: Timestamp
    """When it began."""
    ended_at: Timestamp | None
    """When it ended; null while it is under way."""
    outcome: AttemptOutcomeWord | None
    """`admitted`, `failed` or `abandoned`; null while the attempt is under way."""
    asked_at: Timestamp | None
    """When the machine was ordered; null before that."""
    sighted_at: Timestamp | None
    """When the provider last listed the machine; null before the first time."""
    fail_reason: FailReasonWord | None
    """Why it failed; null unless it did."""
    fail_why: str | None
    """Why it failed, as a sentence; null when it did not."""
    provider_words: str | None = None
    """What the provider said. Only operators see it, with the permission `provider_accounts.read`; null otherwise."""


class GpuReading(View):
    """One GPU, as the driver of the machine reports it."""

    name: str
    """The name of the model."""
    uuid: str
    """The GPU's own id."""
    memory_mib: int
    """Its memory in MiB."""


class ReportView(View):
    """What a machine reported about its GPUs, and our verdict."""

    id: str
    """The id of the report."""
    machine_id: MachineIdText
    """The machine."""
    at: Timestamp
    """When it reported."""
    verdict: VerdictWord
    """Whether the GPUs are the ones that were ordered."""
    why: str | None
    """What differs, as a sentence; null when nothing does."""
    source: str
    """`nvml`, or `emulated`."""
    gpus: tuple[GpuReading, ...]
    """Its GPUs."""


class ExplanationView(View):
    """Everything that led a lease to where it is."""

    lease: LeaseView
    """The lease."""
    admission: JournalLine | None
    """The line of the journal that admitted it."""
    placements: tuple[PlacementView, ...]
    """Every choice among the offers, oldest first."""
    attempts: tuple[AttemptView, ...]
    """Every try with a machine, oldest first."""
    journal: tuple[JournalLine, ...]
    """The first 1,000 lines; `/journal` pages through all of them."""
    reports: tuple[ReportView, ...]
    """What its machines reported about their GPUs."""
    decisions: tuple[DecisionView, ...] = ()
    """What was decided about the lease, with every rule that spoke, newest first; the latest 100."""
    proofs: tuple[ProofView, ...] = ()
    """The latest 200, newest first; `/proofs` pages through all of them. Empty without the permission `proofs.read`."""
