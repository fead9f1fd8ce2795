"""Domain values and rows as they read on the wire. No decisions, except what a customer does not see: our costs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from control_plane.api import schemas
from control_plane.domain.admission import Price
from control_plane.domain.gpu import APPEARANCES, GpuModel
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.machine import Machine
from control_plane.domain.money import Nano, usd
from control_plane.domain.permission import Role
from control_plane.domain.placement import Offer, Ranking, RejectCode
from control_plane.domain.refusal import Refused
from control_plane.domain.rendering import CUSTOMER_USER
from control_plane.services.api_keys import ApiKey
from control_plane.services.billing import Bill, BillLine, Reconciliation
from control_plane.services.leases import Explanation, Quote, Shown
from control_plane.services.operators import Account, Permit
from control_plane.services.organizations import Organization
from control_plane.services.ssh_keys import SshKey

# What these sentences tell an operator is our purchase price, or the inside of our accounts.
_SPOKEN_TO_CUSTOMERS = {
    RejectCode.COSTS_MORE_THAN_SOLD: "It is not sold at the SKU's price.",
    RejectCode.ACCOUNT_UNHEALTHY: "Nothing is bought there for the moment.",
}


def money(amount: Nano) -> schemas.Money:
    return schemas.Money(usd(amount), amount)


def _money_or_none(amount: int | None) -> schemas.Money | None:
    return None if amount is None else money(Nano(amount))


def _instance_id(instance_id: UUID | None) -> str | None:
    return None if instance_id is None else on_wire(Prefix.MACHINE, instance_id)


def organization(found: Organization) -> schemas.OrganizationView:
    return schemas.OrganizationView(
        id=on_wire(Prefix.ORGANIZATION, found.id),
        name=found.name,
        suspended=found.suspended,
        gpu_quota=found.gpu_quota,
        gpus_held=found.gpus_held,
        balance=money(found.posted_nano),
        held=money(found.held_nano),
        available=money(Nano(found.posted_nano - found.held_nano)),
        created_at=found.created_at,
    )


def api_key(key: ApiKey) -> schemas.ApiKeyView:
    return schemas.ApiKeyView(
        on_wire(Prefix.API_KEY, key.id),
        key.name,
        key.role is Role.OPERATOR,
        key.hint,
        key.created_at,
        key.revoked_at,
    )


def ssh_key(key: SshKey) -> schemas.SshKeyView:
    return schemas.SshKeyView(
        on_wire(Prefix.SSH_KEY, key.id), key.name, key.public_key, key.fingerprint, key.created_at
    )


def sku(price: Price) -> schemas.SkuView:
    shape = price.sku.shape
    return schemas.SkuView(
        name=price.sku.name,
        gpu_model=shape.gpu_model.value,
        gpu_count=shape.gpu_count,
        vcpus=shape.vcpus,
        memory_gib=shape.memory_gib,
        disk_gib=shape.disk_gib,
        capacity=price.sku.capacity.value,
        proof=price.sku.proof.value,
        price_per_gpu_hour=money(price.nano_per_gpu_hour),
        price_per_hour=money(price.nano_per_hour),
    )


def offer(found: Offer, book: Sequence[Price], now: datetime, *, operator: bool) -> schemas.OfferView:
    served = [
        price
        for price in book
        if found.shape.holds(price.sku.shape) and found.cost_nano_per_hour <= price.nano_per_hour
    ]
    dearest = max((price.nano_per_hour for price in served), default=None)
    return schemas.OfferView(
        key=found.key,
        provider=found.provider,
        region=found.region,
        native_type=found.native_type,
        gpu_model=found.shape.gpu_model.value,
        gpu_count=found.shape.gpu_count,
        vcpus=found.shape.vcpus,
        memory_gib=found.shape.memory_gib,
        disk_gib=found.shape.disk_gib,
        capacity=found.capacity,
        available=found.available,
        confidence=found.confidence,
        observed_at=found.observed_at,
        age_seconds=max(0, int((now - found.observed_at).total_seconds())),
        price_per_hour=_money_or_none(dearest),
        skus=tuple(price.sku.name for price in served),
        cost_per_hour=money(found.cost_nano_per_hour) if operator else None,
    )


def quote(asked: Quote, sku_name: str, *, operator: bool) -> schemas.QuoteView:
    verdict, price = asked.verdict, asked.price
    refused = verdict if isinstance(verdict, Refused) else None
    first_hour = None if price is None else price.nano_per_hour
    return schemas.QuoteView(
        verdict=schemas.VerdictView(
            admitted=refused is None,
            code=None if refused is None else refused.code.value,
            why=None if refused is None else refused.why,
        ),
        sku=sku_name,
        price_per_gpu_hour=None if price is None else money(price.nano_per_gpu_hour),
        price_per_hour=_money_or_none(first_hour),
        first_hour=_money_or_none(first_hour),
        candidates=_candidates(asked.ranking, operator=operator),
        rejected=_rejected(asked.ranking, operator=operator),
    )


def _candidates(ranking: Ranking, *, operator: bool) -> tuple[schemas.CandidateView, ...]:
    return tuple(
        schemas.CandidateView(
            one.key,
            one.provider,
            one.region,
            one.native_type,
            one.confidence,
            money(one.cost_nano_per_hour) if operator else None,
        )
        for one in ranking.candidates
    )


def _rejected(ranking: Ranking, *, operator: bool) -> tuple[schemas.RejectedView, ...]:
    return tuple(
        schemas.RejectedView(
            one.offer.key,
            one.offer.provider,
            one.offer.region,
            one.offer.native_type,
            one.code.value,
            _why(one.code, one.why, operator=operator),
            _proof_ids((proof.hex for proof in one.proofs), operator=operator),
        )
        for one in ranking.rejected
    )


def _why(code: str, why: str, *, operator: bool) -> str:
    return why if operator else _SPOKEN_TO_CUSTOMERS.get(RejectCode(code), why)


def _proof_ids(digits: Iterable[str], *, operator: bool) -> tuple[str, ...]:
    """Proofs of other customers' machines: their ids are for operators."""
    return tuple(on_wire(Prefix.PROOF, UUID(hex=one)) for one in digits) if operator else ()


def lease(shown: Shown) -> schemas.LeaseView:
    found, evidence = shown.overview.lease, shown.overview.evidence
    machine = None
    if evidence is not None:
        machine = schemas.MachineView(
            instance_id=on_wire(Prefix.MACHINE, evidence.machine_id),
            provider=evidence.provider,
            region=evidence.region,
            state=evidence.state.value,
            address=evidence.address,
            ssh_port=evidence.ssh_port,
            ssh_user=CUSTOMER_USER,
            host_key=evidence.host_key,
            mesh_address=evidence.mesh_address,
            sighted_at=evidence.sighted_at,
        )
    wish = found.request
    return schemas.LeaseView(
        id=on_wire(Prefix.LEASE, found.id),
        name=found.name,
        wish=schemas.WishView(
            wish.sku, wish.regions, wish.providers, _money_or_none(wish.price_nano_per_hour_max)
        ),
        gpu_model=found.gpu_model,
        gpu_count=found.gpu_count,
        price_per_gpu_hour=money(found.nano_per_gpu_hour),
        price_per_hour=money(Nano(found.nano_per_gpu_hour * found.gpu_count)),
        state=found.state.value,
        status=lease_status(shown),
        machine=machine,
        proof=_lease_proof(shown),
        attempts=found.attempts,
        end_reason=found.end_reason,
        end_why=found.end_why,
        created_at=found.created_at,
        ready_at=found.ready_at,
        billed_until=found.billed_until,
        ended_at=found.ended_at,
    )


def _lease_proof(shown: Shown) -> schemas.LeaseProofView:
    latest = shown.overview.proof
    return schemas.LeaseProofView(
        demanded=shown.overview.lease.proof.value,
        tier=shown.tier.value,
        id=None if latest is None else on_wire(Prefix.PROOF, latest.id),
        outcome=None if latest is None else latest.outcome.value,
        at=None if latest is None else latest.at,
    )


def lease_status(shown: Shown) -> schemas.StatusView:
    status = shown.status
    return schemas.StatusView(
        status.phase.value, status.step, status.steps_done, status.steps_total, status.message
    )


def journal_line(row: Any) -> schemas.JournalLine:
    return schemas.JournalLine(
        number=row.number,
        at=row.at,
        actor=row.actor,
        event=row.event,
        instance_id=_instance_id(row.machine_id),
        state_before=row.state_before,
        state_after=row.state_after,
        why=row.why,
    )


def explanation(found: Explanation, *, operator: bool) -> schemas.ExplanationView:
    lines = tuple(journal_line(row) for row in found.journal)
    return schemas.ExplanationView(
        lease=lease(found.shown),
        admission=next((line for line in lines if line.event == "admitted"), None),
        placements=tuple(_placement(row, operator=operator) for row in found.placements),
        attempts=tuple(_attempt(one) for one in found.attempts),
        journal=lines,
        reports=tuple(_report(row) for row in found.reports),
        proofs=tuple(proof(row) for row in found.proofs),
    )


def _placement(row: dict[str, Any], *, operator: bool) -> schemas.PlacementView:
    return schemas.PlacementView(
        number=row["number"],
        decided_at=row["decided_at"],
        chosen=row["chosen"],
        candidates=tuple(
            schemas.CandidateView(
                one["offer"],
                one["provider"],
                one["region"],
                one["native_type"],
                one.get("confidence"),
                _money_or_none(one.get("cost_nano_per_hour")) if operator else None,
            )
            for one in row["ranking"]["candidates"]
        ),
        rejected=tuple(
            schemas.RejectedView(
                one["offer"],
                one["provider"],
                one["region"],
                one["native_type"],
                one["code"],
                _why(one["code"], one["why"], operator=operator),
                _proof_ids(one.get("proofs", ()), operator=operator),
            )
            for one in row["ranking"]["rejected"]
        ),
    )


def _attempt(found: Machine) -> schemas.AttemptView:
    return schemas.AttemptView(
        instance_id=on_wire(Prefix.MACHINE, found.id),
        provider=found.provider,
        region=found.region,
        native_type=found.native_type,
        state=found.state.value,
        step=found.step,
        asked_at=found.asked_at,
        sighted_at=found.sighted_at,
        fail_reason=found.fail_reason,
        fail_why=found.fail_why,
    )


def _report(row: Any) -> schemas.ReportView:
    return schemas.ReportView(
        id=row.id.hex,
        instance_id=on_wire(Prefix.MACHINE, row.machine_id),
        at=row.at,
        verdict=row.verdict,
        why=row.why,
        source=row.source,
        gpus=tuple(_gpu(one) for one in _gpus(row.reading)),
    )


def _gpus(reading: Any) -> list[Any]:
    """The GPUs of a stored reading. It is a machine's own word: anything may be missing (law 11)."""
    listed = reading.get("gpus") if isinstance(reading, dict) else reading
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _gpu(one: dict[str, Any]) -> schemas.GpuReading:
    memory = one.get("memory_mib")
    return schemas.GpuReading(
        str(one.get("name", ""))[:200],
        str(one.get("uuid", ""))[:200],
        memory if isinstance(memory, int) else 0,
    )


def proof(row: Any) -> schemas.ProofView:
    return schemas.ProofView(**_proof(row, {}))


def proof_detail(row: Any) -> schemas.ProofDetail:
    return schemas.ProofDetail(**_proof(row, row.evidence), evidence=row.evidence)


def _proof(row: Any, evidence: dict[str, Any]) -> dict[str, Any]:
    """Every field that both forms have."""
    sold = max(APPEARANCES[GpuModel(row.gpu_model)].memory_mib) << 20
    proven = row.proven_bytes or [None] * len(row.gpu_uuids)
    return {
        "id": on_wire(Prefix.PROOF, row.id),
        "lease_id": on_wire(Prefix.LEASE, row.lease_id),
        "instance_id": on_wire(Prefix.MACHINE, row.machine_id),
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
        "gpus": tuple(
            schemas.ProvenGpu(uuid, size, sold) for uuid, size in zip(row.gpu_uuids, proven, strict=False)
        ),
        "findings": tuple(schemas.FindingView(**one) for one in row.findings),
        "hints": tuple(schemas.FindingView(**one) for one in row.hints),
        "rates": tuple(_rate(one, evidence.get("bounds", {})) for one in row.rates),
        "seconds": row.seconds,
    }


def _rate(one: dict[str, Any], bounds: dict[str, Any]) -> schemas.RateView:
    """`bounds` are by phase and GPU: seconds at least, at most, and of the reference."""
    of_phase = bounds.get(one["phase"], [])
    least, most = of_phase[one["gpu"]][:2] if one["gpu"] < len(of_phase) else (None, None)
    per_second = one["work"] / one["seconds"] if one["seconds"] else 0.0
    return schemas.RateView(one["gpu"], one["phase"], one["seconds"], per_second, least, most)


def proof_record(row: Any) -> schemas.ProofRecordView:
    return schemas.ProofRecordView(
        id=on_wire(Prefix.PROOF, row.proof_id),
        instance_id=on_wire(Prefix.MACHINE, row.machine_id),
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


def usage(row: Any) -> schemas.UsageRow:
    return schemas.UsageRow(
        id=on_wire(Prefix.CHARGE, row.id),
        lease_id=on_wire(Prefix.LEASE, row.lease_id),
        lease_name=row.lease_name,
        number=row.number,
        sku=row.sku,
        started_at=row.started_at,
        ended_at=row.ended_at,
        gpu_seconds=row.gpu_seconds,
        price_per_gpu_hour=money(Nano(row.nano_per_gpu_hour)),
        amount=money(Nano(row.amount_nano)),
    )


def bill(found: Bill) -> schemas.BillView:
    return schemas.BillView(
        since=found.since,
        until=found.until,
        lines=tuple(_bill_line(line) for line in found.lines),
        amount=money(found.amount_nano),
        unrated=money(found.unrated_nano),
        balance=money(found.posted_nano),
        held=money(found.held_nano),
        available=money(Nano(found.posted_nano - found.held_nano)),
    )


def _bill_line(line: BillLine) -> schemas.BillLineView:
    return schemas.BillLineView(
        lease_id=on_wire(Prefix.LEASE, line.lease_id),
        name=line.name,
        sku=line.sku,
        price_per_gpu_hour=money(line.nano_per_gpu_hour),
        gpu_seconds=line.gpu_seconds,
        amount=money(line.amount_nano),
        unrated_gpu_seconds=line.unrated_gpu_seconds,
        unrated=money(line.unrated_nano),
    )


def reconciliation(found: Reconciliation) -> schemas.ReconciliationView:
    return schemas.ReconciliationView(
        gpu_seconds=found.gpu_seconds,
        rated=money(found.rated_nano),
        posted=money(found.posted_nano),
        balance=money(found.balance_nano),
        difference=money(found.difference_nano),
    )


def loop(row: dict[str, Any], now: datetime) -> schemas.LoopView:
    age = max(0, int((now - row["finished_at"]).total_seconds()))
    return schemas.LoopView(
        loop=row["loop"],
        account=row["account"],
        replica=row["replica"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        every_seconds=row["every_seconds"],
        looked_at=row["looked_at"],
        acted_on=row["acted_on"],
        errors=tuple(row["errors"]),
        notes=tuple(row["notes"]),
        activations=row["activations"],
        age_seconds=age,
        late_after_seconds=row["late_after_seconds"],
        late=age > row["late_after_seconds"],
    )


def permit(found: Permit) -> schemas.PermitView:
    return schemas.PermitView(found.account, found.why, found.actor, found.at, found.until)


def account(found: Account, standing: Permit | None) -> schemas.AccountView:
    return schemas.AccountView(
        name=found.name,
        provider=found.provider,
        listing_asked_at=found.listing_asked_at,
        listing_size=found.listing_size,
        frozen_since=None if found.freeze is None else found.freeze.since,
        frozen_why=None if found.freeze is None else found.freeze.why,
        failing_since=found.failing_since,
        failing_why=found.failing_why,
        ending_permit=None if standing is None else permit(standing),
    )
