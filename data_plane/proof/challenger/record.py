"""Records a challenge: its report, and the evidence with which it can be checked again.

The evidence contains everything that we chose (seeds, nonces, samples, sizes), the claims, the commitments and the
times. There are too many digests to store them, so only their SHA-256 is stored: whoever has the digests can show that
they are the same, and whoever has the seeds can compute the right ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from data_plane.proof.attestation.verdict import Attested, Rejected
from data_plane.proof.challenger import soundness
from data_plane.proof.challenger.judgement import FAULTS, NETWORK_SECONDS, TOLERANCE, Band, outcome
from data_plane.proof.challenger.plan import Plan
from data_plane.proof.challenger.port import (
    Expected,
    Finding,
    Occasion,
    Outcome,
    ProofReport,
    Rate,
)
from data_plane.proof.challenger.reference import Reference, Times
from data_plane.proof.protocol.messages import Committed, GapsAnswer, Identity
from data_plane.proof.verifier.jobs import Checked, Commitment, Job

EVIDENCE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Due:
    """A job for the verifier, with the phase and GPU that its result concerns."""

    gpu: int
    phase: str
    job: Job


@dataclass
class Record:
    """Collects findings and evidence during the conversation. `report` completes it."""

    expected: Expected
    occasion: Occasion
    reference: Reference
    identity: Identity | None = None
    times: Times | None = None
    plan: Plan | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    hints: list[Finding] = field(default_factory=list[Finding])
    due: list[Due] = field(default_factory=list[Due])
    rates: list[Rate] = field(default_factory=list[Rate])
    _attested: set[str] = field(default_factory=set[str])
    """Identities of chips. A chip has the same one for its whole life."""
    _evidence: dict[str, Any] = field(default_factory=dict[str, Any])

    def note(self, key: str, value: Any) -> None:
        self._evidence[key] = value

    def add(self, key: str, value: Any) -> None:
        """Add an entry to a list in the evidence."""
        self._evidence.setdefault(key, []).append(value)

    def bound(self, phase: str, bands: Sequence[Band]) -> None:
        self._evidence.setdefault("bounds", {})[phase] = [
            [_seconds(band.least), _seconds(band.most), _seconds(band.reference)] for band in bands
        ]

    def gaps(self, answer: GapsAnswer) -> None:
        self.add(
            "gaps",
            {
                "gpu": answer.gpu,
                "sms": len(answer.sms),
                "sms_with_gaps": sum(one.gaps > 0 for one in answer.sms),
                "gaps": sum(one.gaps for one in answer.sms),
                "longest_us": max((one.longest_us for one in answer.sms), default=0),
            },
        )

    def attest(self, gpu: int, nonce: bytes, report: bytes, judged: Attested | Rejected) -> None:
        """Record one GPU's attestation. If it is not accepted, that is only a hint: our own roots may be outdated."""
        one = {"gpu": gpu, "nonce": nonce.hex(), "report_sha256": sha256(report).hexdigest()}
        self.add("attestation", {**one, **asdict(judged)})
        if isinstance(judged, Rejected):
            self.hints.append(Finding("attestation_rejected", gpu, f"{judged.code}: {judged.why}"))
            return
        if judged.device in self._attested:
            self.findings.append(
                Finding("gpu_duplicate", gpu, f"Device {judged.device} attested itself twice.")
            )
        self._attested.add(judged.device)

    def check(self, results: Sequence[Checked]) -> None:
        """Record what the verifier found: one result for each of `due`."""
        for due, result in zip(self.due, results, strict=True):
            if result.fault is not None:
                self.findings.append(Finding(FAULTS[result.fault], due.gpu, f"{due.phase}: {result.why}"))
        self.note("recomputed", sum(result.recomputed for result in results))
        self.note("cpu_seconds", _seconds(sum(result.cpu_seconds for result in results)))

    def report(self, seconds: float) -> ProofReport:
        came_of_it = outcome(self.findings, self.identity.source if self.identity else "")
        genuine = self.identity is not None and self.identity.source == "cuda"
        proven: tuple[int, ...] = ()
        if self.plan is not None and came_of_it is Outcome.PASSED:
            proven = tuple(self.plan.bytes_filled(gpu) for gpu in range(len(self.plan.gpus)))
        return ProofReport(
            outcome=came_of_it,
            occasion=self.occasion,
            source=self.identity.source if self.identity else "",
            driver=self.identity.driver if self.identity else "",
            reference=self.times.describe() if self.times and genuine else "",
            findings=tuple(self.findings),
            hints=tuple(self.hints),
            gpu_uuids=tuple(gpu.cuda_uuid for gpu in self.identity.gpus) if self.identity else (),
            proven_bytes=proven,
            rates=tuple(self.rates) if genuine else (),
            seconds=seconds,
            attested=came_of_it is Outcome.PASSED and len(self._attested) == self.expected.count,
            devices=tuple(sorted(self._attested)),
            evidence=self._written(genuine=genuine),
        )

    def _written(self, *, genuine: bool) -> Mapping[str, Any]:
        evidence: dict[str, Any] = {
            "version": EVIDENCE_VERSION,
            "model": self.expected.model,
            "count": self.expected.count,
            "network_seconds": NETWORK_SECONDS,
        }
        if self.identity is not None:
            evidence["identity"] = plain(asdict(self.identity))
        if self.plan is not None:
            evidence["plan"] = {
                "sizes": asdict(self.plan.sizes),
                "gpus": [{**asdict(gpu), "tiles": dict(gpu.tiles)} for gpu in self.plan.gpus],
            }
            if genuine and self.times is not None:
                evidence["hidden_memory_max"] = round(self._hidden_memory_max(self.times, self.plan), 4)
        return evidence | self._evidence

    def _hidden_memory_max(self, times: Times, plan: Plan) -> float:
        """The share of the filled memory that a cheat as fast as the reference could have hidden."""
        return max(
            soundness.hidden_memory_max(
                soundness.slack(
                    TOLERANCE[times.walk.basis], NETWORK_SECONDS, plan.bytes_read(gpu) / times.walk.rate
                ),
                soundness.regeneration_cost(times.fill.rate, times.walk.rate, plan.gpus[gpu].iterations),
                soundness.link_cost(times.walk.rate, self.reference.host_link),
            )
            for gpu in range(len(plan.gpus))
        )


def commitment_evidence(
    commitment: Commitment, sample: Sequence[int], committed: Committed, seconds: float
) -> dict[str, Any]:
    """The evidence of one GPU in one try of a phase. The opened groups follow from the sample."""
    return {
        "gpu": committed.gpu,
        "key": commitment.key.hex(),
        "root": commitment.root.hex(),
        "hashes_sha256": sha256(commitment.hashes).hexdigest(),
        "seconds": _seconds(seconds),
        "device_us": committed.device_us,
        "throttle": committed.throttle,
        "sample": list(sample),
        "digests_sha256": sha256(commitment.digests).hexdigest(),
    }


def plain(value: Any) -> Any:
    """The value for JSON, with bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _seconds(value: float) -> float | None:
    """Rounded to microseconds. None for infinity, which JSON cannot represent."""
    return round(value, 6) if value != float("inf") else None
