"""GPU proofs on the wire."""

from typing import Any

from control_plane.domain.gpu import APPEARANCES, GpuModel
from control_plane.domain.ids import Prefix, on_wire
from control_plane.wire.proofs import (
    FindingView,
    ProofDetail,
    ProofRecordView,
    ProofView,
    ProvenGpu,
    RateView,
)


def proof_view(row: Any) -> ProofView:
    return ProofView(**_fields(row, {}))


def proof_detail(row: Any) -> ProofDetail:
    return ProofDetail(**_fields(row, row.evidence), evidence=row.evidence)


def _fields(row: Any, evidence: dict[str, Any]) -> dict[str, Any]:
    """Every field that the short and the detailed form share."""
    return {
        "id": on_wire(Prefix.PROOF, row.id),
        "lease_id": on_wire(Prefix.LEASE, row.lease_id),
        "instance_id": on_wire(Prefix.INSTANCE, row.instance_id),
        "at": row.at,
        "occasion": row.occasion,
        "outcome": row.outcome,
        "code": row.code,
        "why": row.why,
        "gpu_model": row.gpu_model,
        "source": row.source,
        "driver": row.driver,
        "reference": row.reference,
        "attested": row.attested,
        "gpus": _gpus(row),
        "findings": tuple(FindingView(**finding) for finding in row.findings),
        "hints": tuple(FindingView(**hint) for hint in row.hints),
        "rates": tuple(_rate(rate, evidence.get("bounds", {})) for rate in row.rates),
        "seconds": row.seconds,
    }


def _gpus(row: Any) -> tuple[ProvenGpu, ...]:
    sold_bytes = max(APPEARANCES[GpuModel(row.gpu_model)].memory_mib) << 20
    proven = row.proven_bytes or [None] * len(row.gpu_uuids)
    return tuple(
        ProvenGpu(uuid, proven_bytes, sold_bytes)
        for uuid, proven_bytes in zip(row.gpu_uuids, proven, strict=False)
    )


def _rate(rate: dict[str, Any], bounds: dict[str, Any]) -> RateView:
    """`bounds` has, by phase and GPU, the least and the most seconds allowed, and those of the reference."""
    of_phase = bounds.get(rate["phase"], [])
    least, most = of_phase[rate["gpu"]][:2] if rate["gpu"] < len(of_phase) else (None, None)
    return RateView(
        gpu=rate["gpu"],
        phase=rate["phase"],
        seconds=rate["seconds"],
        per_second=rate["work"] / rate["seconds"] if rate["seconds"] else 0.0,
        least_seconds=least,
        most_seconds=most,
    )


def proof_record_view(row: Any) -> ProofRecordView:
    return ProofRecordView(
        id=on_wire(Prefix.PROOF, row.proof_id),
        instance_id=on_wire(Prefix.INSTANCE, row.instance_id),
        account=row.account,
        offer=row.offer_key,
        gpu_model=row.gpu_model,
        occasion=row.occasion,
        outcome=row.outcome,
        code=row.code,
        why=row.why,
        ended=row.ended,
        at=row.at,
    )
