"""GPU proofs: what each challenge of a machine's GPUs came to, and the record of every provider."""

from datetime import datetime
from typing import Any

from control_plane.wire.common import View


class FindingView(View):
    code: str
    gpu: int | None
    """Null when the finding is about the machine as a whole."""
    why: str


class RateView(View):
    """What one GPU did in one timed phase, measured by our clock."""

    gpu: int
    phase: str
    """`fill`, `walk`, `int8` or `bf16`."""
    seconds: float
    per_second: float
    """Bytes read for `walk`, multiply-adds for `int8` and `bf16`, units times iterations for `fill`."""
    least_seconds: float | None
    """The shortest time that is plausible for this model; null when it is not known."""
    most_seconds: float | None
    """The longest time that is allowed for this model; null when it is not known."""


class ProvenGpu(View):
    uuid: str
    proven_bytes: int | None
    """Shown to be fast memory of one device; null when the memory was not measured."""
    sold_bytes: int
    """The memory of a whole card of this model."""


class ProofView(View):
    """What one challenge of a machine's GPUs came to."""

    id: str
    lease_id: str
    machine_id: str
    at: datetime
    occasion: str
    """`start`, `recheck`, `idle` or `end`."""
    outcome: str
    """`passed`, `failed`, `unanswered` (nothing is known) or `emulated` (correct answers, but of an emulation)."""
    code: str | None
    """The code of the first finding."""
    why: str | None
    gpu_model: str
    source: str
    """`cuda`, `emulated`, or empty when the machine did not answer."""
    driver: str
    reference: str
    """The reference times used: `measured`, `learnt` or `estimated`, and of when."""
    attested: bool
    """Whether we verified the signature of every GPU."""
    gpus: tuple[ProvenGpu, ...]
    findings: tuple[FindingView, ...]
    hints: tuple[FindingView, ...]
    """Signs of sharing or throttling. They do not fail the proof; the next challenge comes sooner."""
    rates: tuple[RateView, ...]
    seconds: float
    """How long the whole conversation took."""


class ProofDetail(ProofView):
    evidence: dict[str, Any]
    """All that is needed to check the proof again; docs/gpu-proof.md says how. Its keys may grow and change."""


class ProofPage(View):
    items: tuple[ProofView, ...]
    next_cursor: str | None


class ProofRecordView(View):
    """One proof in the record of a provider account. It does not say whose machine it was."""

    id: str
    machine_id: str
    account: str
    offer: str
    gpu_model: str
    occasion: str
    outcome: str
    code: str | None
    why: str | None
    ended: bool
    """Whether the machine was terminated because of it."""
    at: datetime


class ProofRecordPage(View):
    items: tuple[ProofRecordView, ...]
    next_cursor: str | None
