"""The port of GPU proofs: what is challenged and why, and the report of a challenge.

    challenger.challenge(line, expected, occasion) -> ProofReport

A report is evidence and decides nothing about money or placement. The control plane decides what follows from it
(`control_plane/domain/proof.py`).
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
    """While the GPUs are idle, because the last challenge was failed or not answered: all phases."""
    END = "end"
    """After the customer has released the machine: all phases. The fill overwrites the customer's data."""

    @property
    def held(self) -> bool:
        """Whether a customer holds the machine. Then only somewhat more than half of the memory is filled.

        If too much memory is in use for this, the machine is not challenged.
        """
        return self in (Occasion.IDLE, Occasion.RECHECK)


@dataclass(frozen=True, slots=True)
class Expected:
    """What was sold, and therefore must be proven."""

    model: str
    """Our name for the model, such as `h100-sxm-80gb`."""
    count: int
    names: frozenset[str]
    """NVML names of this model."""
    memory_mib: tuple[int, ...]
    """NVML totals of this model in MiB. Each of them is the centre of an accepted range."""
    memory_tolerance_percent: int


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """An answer was wrong, too late or too early, or the claims contradict each other."""
    UNANSWERED = "unanswered"
    """The line broke or the prover refused, so nothing is known. This alone is not a strike."""
    EMULATED = "emulated"
    """All answers were right, but the prover says that it is an emulation. This never counts as a proof."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason, with a stable code. `gpu` is None if it concerns the whole machine."""

    code: str
    gpu: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Rate:
    """The work of one GPU in one timed phase, timed by our clock. Reference times are learnt from it."""

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
    """`cuda`, `emulated`, or empty if the prover did not say."""
    driver: str
    reference: str
    """Which reference times were used (`measured`, `learnt` or `estimated`) and their date; empty if none were."""
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]
    """Signs of sharing or throttling, for example. They fail no machine, but bring its next challenge forward."""
    gpu_uuids: tuple[str, ...]
    proven_bytes: tuple[int, ...]
    """For each GPU, the bytes that were filled and walked, and so are proven to be fast memory of one device."""
    rates: tuple[Rate, ...]
    seconds: float
    """The duration of the whole conversation on our clock."""
    attested: bool = False
    """Whether every GPU attested itself for a fresh nonce, and we verified it."""
    devices: tuple[str, ...] = ()
    """The identities that this machine's GPUs attested. A chip has the same one for its whole life."""
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Everything that is needed to check the proof again: orders with seeds and nonces, roots, times, opened digests.
    It can be written as JSON of at most EVIDENCE_BYTES_MAX."""


EVIDENCE_BYTES_MAX = 256 * 1024


class Challenger(Protocol):
    """Challenges all GPUs of a machine at the same time and judges what they answer."""

    async def challenge(self, line: Line, expected: Expected, occasion: Occasion) -> ProofReport:
        """Challenge a machine. Nothing that a prover does raises an exception. Raises VerifierAway if our own verifier
        does not answer.
        """
        ...
