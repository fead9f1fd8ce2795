"""Challenges a machine over an open session, and converts the report to what is stored.

The challenger limits the time of every single answer. This file limits the time of the whole challenge, so that
neither a prover nor a fault of ours keeps a worker for longer than it may hold the machine. It also makes text from
the machine printable.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from prometheus_client import Counter

from control_plane.db import proofs
from control_plane.db.proofs import NewProof
from control_plane.domain.gpu import APPEARANCES, MEMORY_TOLERANCE_PERCENT
from control_plane.domain.machine import Machine
from control_plane.domain.proof import Occasion, OwnCode, ProofOutcome, settled
from control_plane.outcomes.challenges import Challenged
from data_plane.access.port import Session, StepFailed
from data_plane.documents.strict import shown
from data_plane.proof.challenger import port
from data_plane.proof.challenger.port import EVIDENCE_BYTES_MAX, Expected, Finding, ProofReport
from data_plane.proof.challenger.prover_line import prover_line
from reconciler.worlds.proof import ProofWorld

CHALLENGE_SECONDS_MAX = 300.0
"""Limit of one whole challenge, including our verifier's checks. A healthy machine needs about a minute."""
LOOK_SECONDS = 75.0
"""Limit of one reading of a machine's health, before or after a challenge."""
HELD_FOR = timedelta(seconds=CHALLENGE_SECONDS_MAX + 2 * LOOK_SECONDS + 30)
"""How long a worker holds a machine for a challenge and the health readings before and after it."""
TEXT_MAX = 500
LISTED_MAX = 256
"""How many findings, hints and rates of one report are stored, each."""

PROOFS = Counter("splitplane_proofs", "Challenges of machines' GPUs.", ("occasion", "outcome"))


async def challenge(
    world: ProofWorld,
    session: Session,
    machine: Machine,
    occasion: Occasion,
    *,
    seconds: float | None = None,
) -> ProofReport:
    """Challenge all GPUs of a machine, for `seconds` at most (CHALLENGE_SECONDS_MAX when None).

    Raises Unreachable, and VerifierAway; everything else is in the report.
    """
    if machine.gpu_model is None:
        raise ValueError(f"{machine.id} has no GPUs to prove")
    appearance = APPEARANCES[machine.gpu_model]
    expected = Expected(
        model=machine.gpu_model.value,
        count=machine.gpu_count,
        names=appearance.nvml_names,
        memory_mib=appearance.memory_mib,
        memory_tolerance_percent=MEMORY_TOLERANCE_PERCENT,
    )
    limit = CHALLENGE_SECONDS_MAX if seconds is None else seconds
    try:
        async with asyncio.timeout(limit), prover_line(session, world.agent) as line:
            return await world.challenger.challenge(line, expected, port.Occasion(occasion.value))
    except TimeoutError:
        return unanswered(occasion, OwnCode.NO_END, f"the challenge did not end within {limit:g} s", limit)
    except StepFailed as error:
        return unanswered(occasion, OwnCode.NO_PROVER, str(error), 0.0)


def unanswered(occasion: Occasion, code: OwnCode, why: str, seconds: float) -> ProofReport:
    """The report of a challenge that had no result, or could not be made although the machine was reachable."""
    return ProofReport(
        outcome=port.Outcome.UNANSWERED,
        occasion=port.Occasion(occasion.value),
        source="",
        driver="",
        reference="",
        findings=(Finding(code.value, None, why),),
        hints=(),
        gpu_uuids=(),
        proven_bytes=(),
        rates=(),
        seconds=seconds,
    )


def challenged(machine: Machine, token: UUID, report: ProofReport, *, proof_id: UUID) -> Challenged:
    """Convert a report to the form that is judged and stored, and count it in the metrics."""
    outcome = settled(ProofOutcome(report.outcome.value), report.source)
    findings = _findings(report.findings)
    first = findings[0] if findings else None
    PROOFS.labels(report.occasion.value, outcome.value).inc()
    proof = NewProof(
        id=proof_id,
        occasion=Occasion(report.occasion.value),
        outcome=outcome,
        source=shown(report.source, TEXT_MAX),
        driver=shown(report.driver, TEXT_MAX),
        reference=shown(report.reference, TEXT_MAX),
        attested=report.attested,
        code=None if first is None else first.code,
        why=None if first is None else first.why,
        findings=findings,
        hints=_findings(report.hints),
        rates=[
            proofs.Rate(rate.gpu, rate.phase, rate.seconds, rate.work) for rate in report.rates[:LISTED_MAX]
        ],
        gpu_uuids=[shown(uuid, TEXT_MAX) for uuid in report.gpu_uuids],
        devices=list(report.devices),
        proven_bytes=list(report.proven_bytes),
        seconds=report.seconds,
        evidence=_evidence(report.evidence),
    )
    return Challenged(machine, token, proof)


def _findings(findings: Sequence[Finding]) -> list[proofs.Finding]:
    return [
        proofs.Finding(shown(finding.code, TEXT_MAX), finding.gpu, shown(finding.why, TEXT_MAX))
        for finding in findings[:LISTED_MAX]
    ]


def _evidence(evidence: Mapping[str, object]) -> dict[str, object]:
    """The evidence as plain JSON, or only its size when it is larger than EVIDENCE_BYTES_MAX."""
    cleaned = {shown(str(key), EVIDENCE_BYTES_MAX): _cleaned(value) for key, value in evidence.items()}
    size = len(json.dumps(cleaned))
    return cleaned if size <= EVIDENCE_BYTES_MAX else {"too_large_bytes": size}


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return shown(value, EVIDENCE_BYTES_MAX)
    if isinstance(value, Mapping):
        return {shown(str(key), EVIDENCE_BYTES_MAX): _cleaned(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each) for each in value]
    return value
