"""One challenge of a machine over an open session, and its report in the words in which it is stored.

The challenger bounds every answer it waits for; this bounds the whole, so that no prover and no fault of
ours holds a machine for longer than its claim. Text that a machine wrote is made printable here.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from prometheus_client import Counter

from control_plane.db.proofs import Stored
from control_plane.domain.gpu import APPEARANCES, MEMORY_TOLERANCE_PERCENT, GpuModel
from control_plane.domain.machine import Machine
from control_plane.domain.lease import Lease
from control_plane.domain.proof import Occasion, OwnCode, ProofOutcome, Result, settled
from control_plane.services.challenges import Challenged
from data_plane.access.port import Session, StepFailed
from data_plane.proof import port
from data_plane.proof.port import EVIDENCE_BYTES_MAX, Expected, Finding, ProofReport
from reconciler.loop import World

CHALLENGE_SECONDS_MAX = 300.0
"""Of one challenge as a whole, our verifier's checks included. A healthy machine should need about a minute."""
LOOK_SECONDS = 75.0
"""Of one look at a machine's health, before a challenge and after it."""
CLAIM = timedelta(seconds=CHALLENGE_SECONDS_MAX + 2 * LOOK_SECONDS + 30)
"""How long a machine is held for a challenge and what comes before and after it on the same session."""
TEXT_MAX = 500
LISTED_MAX = 256
"""Findings, hints or rates of one report that are stored."""

PROOFS = Counter("proofs", "Challenges of machines' GPUs.", ("occasion", "outcome"))


async def challenge(
    world: World,
    session: Session,
    lease: Lease,
    occasion: Occasion,
    *,
    seconds: float | None = None,
) -> ProofReport:
    """Challenge all GPUs of a machine. Raises Unreachable, and VerifierAway; everything else is in the report."""
    model = GpuModel(lease.gpu_model)
    looks = APPEARANCES[model]
    expected = Expected(
        model=model.value,
        count=lease.gpu_count,
        names=looks.nvml_names,
        memory_mib=looks.memory_mib,
        memory_tolerance_percent=MEMORY_TOLERANCE_PERCENT,
    )
    why = port.Occasion(occasion.value)
    limit = CHALLENGE_SECONDS_MAX if seconds is None else seconds
    try:
        async with asyncio.timeout(limit), session.prover(world.agent) as line:
            return await world.challenger.challenge(line, expected, why)
    except TimeoutError:
        return unanswered(why, OwnCode.NO_END, f"no end after {limit:g} s", limit)
    except StepFailed as error:
        return unanswered(why, OwnCode.NO_PROVER, str(error), 0.0)


def unanswered(occasion: port.Occasion, code: OwnCode, why: str, seconds: float) -> ProofReport:
    """The report of a challenge that came to nothing, and of one that could not be made on a machine in reach."""
    return ProofReport(
        outcome=port.Outcome.UNANSWERED,
        occasion=occasion,
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


def challenged(
    machine: Machine, token: UUID, report: ProofReport, *, proof_id: UUID, now: datetime
) -> Challenged:
    """A report as it is judged and stored."""
    outcome = settled(ProofOutcome(report.outcome.value), report.source)
    first = report.findings[0] if report.findings else None
    code = None if first is None else _printable(first.code)
    why = None if first is None else _printable(first.why)
    PROOFS.labels(report.occasion.value, outcome.value).inc()
    proof = Stored(
        id=proof_id,
        occasion=Occasion(report.occasion.value),
        outcome=outcome,
        source=_printable(report.source),
        driver=_printable(report.driver),
        reference=_printable(report.reference),
        attested=report.attested,
        code=code,
        why=why,
        findings=_findings(report.findings),
        hints=_findings(report.hints),
        rates=[
            {"gpu": one.gpu, "phase": one.phase, "seconds": one.seconds, "work": one.work}
            for one in report.rates[:LISTED_MAX]
        ],
        gpu_uuids=[_printable(uuid) for uuid in report.gpu_uuids],
        devices=list(report.devices),
        proven_bytes=list(report.proven_bytes),
        seconds=report.seconds,
        evidence=_evidence(report.evidence),
    )
    result = Result(outcome, now, code, why, hinted=bool(report.hints), attested=report.attested)
    return Challenged(machine, token, proof, result)


def _findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [
        {"code": _printable(one.code), "gpu": one.gpu, "why": _printable(one.why)}
        for one in findings[:LISTED_MAX]
    ]


def _printable(text: str) -> str:
    """At most TEXT_MAX characters, and none that PostgreSQL refuses or a terminal obeys."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:TEXT_MAX])


def _evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence as plain JSON; only its size when it is larger than agreed."""
    cleaned = _clean(dict(evidence))
    size = len(json.dumps(cleaned))
    return cleaned if size <= EVIDENCE_BYTES_MAX else {"too_large_bytes": size}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    return value
