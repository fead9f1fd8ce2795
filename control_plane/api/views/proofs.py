"""GPU proofs on the wire."""

from typing import Any

from control_plane.domain.gpu import APPEARANCES
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services import proofs
from control_plane.services.proofs import Finding, Proof, Rate, RecordLine
from control_plane.wire.proofs import (
    FindingView,
    ProofDetail,
    ProofRecordView,
    ProofView,
    ProvenGpu,
    RateView,
)


def proof_view(proof: Proof) -> ProofView:
    return ProofView(**_fields(proof, {}))


def proof_detail(proof: proofs.ProofDetail) -> ProofDetail:
    bounds = proof.evidence.get("bounds")
    return ProofDetail(
        **_fields(proof, bounds if isinstance(bounds, dict) else {}), evidence=dict(proof.evidence)
    )


def _fields(proof: Proof, bounds: dict[str, Any]) -> dict[str, Any]:
    """Every field that the short and the detailed form share. `bounds` are those of the evidence."""
    return {
        "id": on_wire(Prefix.PROOF, proof.id),
        "lease_id": on_wire(Prefix.LEASE, proof.lease_id),
        "machine_id": on_wire(Prefix.MACHINE, proof.machine_id),
        "at": proof.at,
        "occasion": proof.occasion.value,
        "outcome": proof.outcome.value,
        "code": proof.code,
        "why": proof.why,
        "gpu_model": proof.gpu_model.value,
        "source": proof.source,
        "driver": proof.driver,
        "reference": proof.reference,
        "attested": proof.attested,
        "gpus": _gpus(proof),
        "findings": tuple(_finding(finding) for finding in proof.findings),
        "hints": tuple(_finding(hint) for hint in proof.hints),
        "rates": tuple(_rate(rate, bounds) for rate in proof.rates),
        "seconds": proof.seconds,
    }


def _gpus(proof: Proof) -> tuple[ProvenGpu, ...]:
    sold_bytes = max(APPEARANCES[proof.gpu_model].memory_mib) << 20
    proven = proof.proven_bytes or [None] * len(proof.gpu_uuids)
    return tuple(
        ProvenGpu(uuid, proven_bytes, sold_bytes)
        for uuid, proven_bytes in zip(proof.gpu_uuids, proven, strict=False)
    )


def _finding(finding: Finding) -> FindingView:
    return FindingView(code=finding.code, gpu=finding.gpu, why=finding.why)


def _rate(rate: Rate, bounds: dict[str, Any]) -> RateView:
    """`bounds` has, by phase and GPU, the least and the most seconds allowed, and those of the reference."""
    of_phase = bounds.get(rate.phase, [])
    least, most = of_phase[rate.gpu][:2] if rate.gpu < len(of_phase) else (None, None)
    return RateView(
        gpu=rate.gpu,
        phase=rate.phase,
        seconds=rate.seconds,
        per_second=rate.work / rate.seconds if rate.seconds else 0.0,
        least_seconds=least,
        most_seconds=most,
    )


def proof_record_view(line: RecordLine) -> ProofRecordView:
    return ProofRecordView(
        id=on_wire(Prefix.PROOF, line.proof_id),
        machine_id=on_wire(Prefix.MACHINE, line.machine_id),
        account=line.account,
        offer=line.offer_key,
        gpu_model=line.gpu_model.value,
        occasion=line.occasion.value,
        outcome=line.outcome.value,
        code=line.code,
        why=line.why,
        ended=line.ended,
        at=line.at,
    )
