"""A proof as the rest of the system sees it: who is challenged, over what line, and what came of it.

    challenger.challenge(line, expected, occasion) -> ProofReport

A report never raises a question about money or placement by itself: it is evidence. What follows from
it is decided by the control plane (`control_plane/domain/proof.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from data_plane.access.line import Line


class Occasion(StrEnum):
    """Why a machine is challenged."""

    START = "start"
    """Before a lease becomes ready: all phases."""
    IDLE = "idle"
    """At random while the GPUs are idle: all phases, with smaller samples."""
    RECHECK = "recheck"
    """While the GPUs are idle, because the challenge before was failed or not answered: all phases."""
    END = "end"
    """When the customer let go: all phases. The fill overwrites what the customer left."""

    @property
    def held(self) -> bool:
        """Whether somebody holds the machine: more than half of the memory is filled and the rest left to them.

        Where too much is in use for that, nothing is asked.
        """
        return self in (Occasion.IDLE, Occasion.RECHECK)


@dataclass(frozen=True, slots=True)
class Expected:
    """What was sold, and so what has to be proven."""

    model: str
    """Our word for it, such as `h100-sxm-80gb`."""
    count: int
    names: frozenset[str]
    """NVML names of this model."""
    memory_mib: tuple[int, ...]
    """NVML totals of this model, MiB; each is the centre of a band."""
    memory_tolerance_percent: int


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """An answer was wrong, too late or too early, or the claims contradict each other."""
    UNANSWERED = "unanswered"
    """The line broke, or the prover declined: nothing is known. Not a strike by itself."""
    EMULATED = "emulated"
    """All answers were right, by a prover that says it is an emulation. Never counts as proof."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason, with a stable code. `gpu` is None when it is about the machine."""

    code: str
    gpu: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What one GPU did in one timed phase, on our clock. The raw material of reference times."""

    gpu: int
    phase: str
    """`fill`, `walk`, `int8` or `bf16`."""
    seconds: float
    work: float
    """Bytes read for `walk`, multiply-adds for tiles, units times iterations for `fill`."""


@dataclass(frozen=True, slots=True)
class ProofReport:
    outcome: Outcome
    occasion: Occasion
    source: str
    """`cuda`, `emulated`, or empty when the prover never said."""
    driver: str
    reference: str
    """Which reference times were used: `measured`, `learnt` or `estimated`, and of when; empty if none."""
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]
    """Phase 5: signs of sharing or throttling. They fail nobody; they bring the next challenge forward."""
    gpu_uuids: tuple[str, ...]
    proven_bytes: tuple[int, ...]
    """Memory shown to be fast memory of one device, per GPU: filled and walked, bytes."""
    rates: tuple[Rate, ...]
    seconds: float
    """The whole conversation on our clock."""
    attested: bool = False
    """Whether every GPU's own attestation was asked for with a fresh nonce and verified on our side."""
    devices: tuple[str, ...] = ()
    """Identities that GPUs of this machine attested, each of one chip for life."""
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All that is needed to check it again: orders with seeds and nonces, roots, times, what was opened.
    JSON-able, at most EVIDENCE_BYTES_MAX when written."""


EVIDENCE_BYTES_MAX = 256 * 1024


class Challenger(Protocol):
    """Challenges all GPUs of a machine at the same time and judges what they answer."""

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        """Never raises for anything a prover does. Raises VerifierAway when our own verifier cannot be asked."""
        ...
