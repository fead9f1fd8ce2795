"""GPU proofs: what each challenge of a machine's GPUs came to, and the record of every provider."""

from typing import Any

from control_plane.wire.codes import FindingCodeWord
from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import (
    GpuModelWord,
    LeaseIdText,
    MachineIdText,
    OccasionWord,
    PhaseWord,
    ProofIdText,
    ProofOutcomeWord,
)


class FindingView(View):
    """Something that a challenge found."""

    code: FindingCodeWord
    """What it is."""
    gpu: int | None
    """Null when the finding is about the machine as a whole."""
    why: str
    """What it is, as a sentence."""


class RateView(View):
    """What one GPU did in one timed phase, measured by our clock."""

    gpu: int
    """The number of the GPU in its machine, from 0."""
    phase: PhaseWord
    """The phase."""
    seconds: float
    """How long the phase took, in seconds."""
    per_second: float
    """Bytes read for `walk`, multiply-adds for `int8` and `bf16`, units times iterations for `fill`."""
    least_seconds: float | None
    """The shortest time that is plausible for this model; null when it is not known."""
    most_seconds: float | None
    """The longest time that is allowed for this model; null when it is not known."""


class ProvenGpu(View):
    """What one GPU has proven."""

    uuid: str
    """The GPU's own id."""
    proven_bytes: int | None
    """Shown to be fast memory of one device; null when the memory was not measured."""
    sold_bytes: int
    """The memory of a whole card of this model."""


class ProofView(View):
    """What one challenge of a machine's GPUs came to."""

    id: ProofIdText
    """The id of the proof."""
    lease_id: LeaseIdText
    """The lease whose machine was challenged."""
    machine_id: MachineIdText
    """The machine."""
    at: Timestamp
    """When it ended."""
    occasion: OccasionWord
    """Why it was challenged."""
    outcome: ProofOutcomeWord
    """What came of it."""
    code: FindingCodeWord | None
    """The code of the first finding; null when there is none."""
    why: str | None
    """The first finding, as a sentence; null when there is none."""
    gpu_model: GpuModelWord
    """The model that was sold."""
    source: str
    """`cuda`, `emulated`, or empty when the machine did not answer."""
    driver: str
    """The version of the driver; empty when the machine did not answer."""
    reference: str
    """The reference times used: `measured`, `learnt` or `estimated`, and of when."""
    attested: bool
    """Whether we verified the signature of every GPU."""
    gpus: tuple[ProvenGpu, ...]
    """The GPUs that answered."""
    findings: tuple[FindingView, ...]
    """What is wrong."""
    hints: tuple[FindingView, ...]
    """Signs of sharing or throttling. They do not fail the proof; the next challenge comes sooner."""
    rates: tuple[RateView, ...]
    """How fast each GPU was."""
    seconds: float
    """How long the whole conversation took."""


class ProofDetail(ProofView):
    """A proof with its evidence."""

    evidence: dict[str, Any]
    """All that is needed to check the proof again; docs/gpu-proof.md says how. Its keys may grow and change."""


class ProofPage(View):
    """A page of proofs."""

    items: tuple[ProofView, ...]
    """The proofs, newest first."""
    next_cursor: NextCursor | None


class ProofRecordView(View):
    """One proof in the record of a provider account. It does not say whose machine it was."""

    id: ProofIdText
    """The id of the proof."""
    machine_id: MachineIdText
    """The machine."""
    account: str
    """The provider account."""
    offer: str
    """The key of the offer that the machine was bought from."""
    gpu_model: GpuModelWord
    """The model that was sold."""
    occasion: OccasionWord
    """Why it was challenged."""
    outcome: ProofOutcomeWord
    """What came of it."""
    code: FindingCodeWord | None
    """The code of the first finding; null when there is none."""
    why: str | None
    """The first finding, as a sentence; null when there is none."""
    ended: bool
    """Whether the machine was terminated because of it."""
    at: Timestamp
    """When it ended."""


class ProofRecordPage(View):
    """A page of the providers' record."""

    items: tuple[ProofRecordView, ...]
    """The proofs, newest first."""
    next_cursor: NextCursor | None
