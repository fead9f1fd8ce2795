"""Rankings of offers on the wire: the candidates, and why the others were rejected.

A ranking is fresh (a quote, as domain values) or stored (a placement of a lease, as JSON).
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.money import money, money_or_none
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.placement import Offer, RejectCode, Rejection
from control_plane.wire.catalogue import CandidateView, RejectedView
from control_plane.wire.leases import PlacementView

_FOR_CUSTOMERS = {
    RejectCode.COSTS_MORE_THAN_SOLD: "It is not sold at the SKU's price.",
    RejectCode.ACCOUNT_UNHEALTHY: "Nothing is bought there for the moment.",
}
"""What replaces the domain's sentence, where that one names our purchase price or the state of our accounts."""


def candidate_view(offer: Offer, disclosure: Disclosure) -> CandidateView:
    return CandidateView(
        key=offer.key,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        confidence=offer.confidence,
        cost_per_hour=money(offer.cost_nano_per_hour) if disclosure.costs else None,
    )


def rejected_view(rejection: Rejection, disclosure: Disclosure) -> RejectedView:
    return RejectedView(
        key=rejection.offer.key,
        provider=rejection.offer.provider,
        region=rejection.offer.region,
        native_type=rejection.offer.native_type,
        code=rejection.code.value,
        why=_why(rejection.code, rejection.why, disclosure),
        proofs=_proof_ids((proof.hex for proof in rejection.proofs), disclosure),
    )


def placement_view(row: dict[str, Any], disclosure: Disclosure) -> PlacementView:
    ranking = row["ranking"]
    return PlacementView(
        number=row["number"],
        decided_at=row["decided_at"],
        chosen=row["chosen"],
        candidates=tuple(_stored_candidate(stored, disclosure) for stored in ranking["candidates"]),
        rejected=tuple(_stored_rejected(stored, disclosure) for stored in ranking["rejected"]),
    )


def _stored_candidate(stored: dict[str, Any], disclosure: Disclosure) -> CandidateView:
    return CandidateView(
        key=stored["offer"],
        provider=stored["provider"],
        region=stored["region"],
        native_type=stored["native_type"],
        confidence=stored.get("confidence"),
        cost_per_hour=money_or_none(stored.get("cost_nano_per_hour")) if disclosure.costs else None,
    )


def _stored_rejected(stored: dict[str, Any], disclosure: Disclosure) -> RejectedView:
    return RejectedView(
        key=stored["offer"],
        provider=stored["provider"],
        region=stored["region"],
        native_type=stored["native_type"],
        code=stored["code"],
        why=_why(RejectCode(stored["code"]), stored["why"], disclosure),
        proofs=_proof_ids(stored.get("proofs", ()), disclosure),
    )


def _why(code: RejectCode, why: str, disclosure: Disclosure) -> str:
    disclosed = {
        RejectCode.COSTS_MORE_THAN_SOLD: disclosure.costs,
        RejectCode.ACCOUNT_UNHEALTHY: disclosure.accounts,
    }
    return why if disclosed.get(code, True) else _FOR_CUSTOMERS[code]


def _proof_ids(digits: Iterable[str], disclosure: Disclosure) -> tuple[str, ...]:
    """The ids of proofs, which are of other customers' machines, too."""
    return tuple(on_wire(Prefix.PROOF, UUID(hex=one)) for one in digits) if disclosure.proof_records else ()
