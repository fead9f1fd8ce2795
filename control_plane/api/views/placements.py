"""Rankings of offers on the wire: the candidates, and why the others were rejected.

A ranking is fresh (of a quote) or stored (of a lease's placement).
"""

from collections.abc import Iterable
from uuid import UUID

from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.money import money, money_or_none
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.placement import Offer, RejectCode, Rejection, stopped_nano_per_hour
from control_plane.domain.pool_claim import PoolChoice
from control_plane.domain.price import ListPrice
from control_plane.services.lease_overviews import Placement, RankedOffer, RejectedOffer
from control_plane.wire.catalogue import CandidateView, RejectedView
from control_plane.wire.explanations import PlacementView, PooledView, UnfitMachineView

_FOR_CUSTOMERS = {
    RejectCode.COSTS_MORE_THAN_SOLD: "It is not sold at the SKU's price.",
    RejectCode.ACCOUNT_UNHEALTHY: "Nothing is bought there for the moment.",
    RejectCode.BLOCKED: "The provider refused an order lately, so this offer is left alone for a few minutes.",
}
"""What replaces the domain's sentence, where that one names our purchase price or the state of our accounts."""


def candidate_view(offer: Offer, disclosure: Disclosure, price: ListPrice | None) -> CandidateView:
    """A candidate of a quote, at this price."""
    stopped = None if price is None else stopped_nano_per_hour(offer, price)
    return CandidateView(
        key=offer.key,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        confidence=offer.confidence,
        cost_per_hour=money(offer.cost_nano_per_hour) if disclosure.costs else None,
        effective_cost_per_hour=money(offer.effective_nano_per_hour) if disclosure.costs else None,
        power=tuple(action.value for action in offer.power),
        price_per_hour_stopped=money_or_none(stopped),
        network_gbps=offer.network_gbps,
        ephemeral_gib=offer.ephemeral_gib,
    )


def rejected_view(rejection: Rejection, disclosure: Disclosure) -> RejectedView:
    return RejectedView(
        key=rejection.offer.key,
        provider=rejection.offer.provider,
        region=rejection.offer.region,
        native_type=rejection.offer.native_type,
        code=rejection.code.value,
        why=_why(rejection.code, rejection.why, disclosure),
        proofs=_proof_ids(rejection.proofs, disclosure),
        more=rejection.more,
    )


def placement_view(placement: Placement, disclosure: Disclosure) -> PlacementView:
    return PlacementView(
        number=placement.number,
        decided_at=placement.decided_at,
        chosen=placement.chosen,
        candidates=tuple(_stored_candidate(offer, disclosure) for offer in placement.ranking.candidates),
        rejected=tuple(_stored_rejected(offer, disclosure) for offer in placement.ranking.rejected),
        more_candidates=placement.ranking.more_candidates,
        pooled=_pooled(placement.ranking.pooled, disclosure),
    )


def _pooled(choice: PoolChoice | None, disclosure: Disclosure) -> PooledView | None:
    if choice is None:
        return None
    claimed = choice.machine_id is not None
    return PooledView(
        machine_id=None if choice.machine_id is None else on_wire(Prefix.MACHINE, choice.machine_id),
        reserved=claimed and choice.pool is None,
        pool=choice.pool if disclosure.accounts else None,
        unfit=tuple(
            UnfitMachineView(on_wire(Prefix.MACHINE, each.machine_id), each.pool, each.code.value, each.why)
            for each in (choice.unfit if disclosure.accounts else ())
        ),
        fit_count=choice.more_fit + claimed,
        unfit_count=choice.more_unfit + len(choice.unfit),
    )


def _stored_candidate(offer: RankedOffer, disclosure: Disclosure) -> CandidateView:
    return CandidateView(
        key=offer.offer,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        confidence=offer.confidence,
        cost_per_hour=money(offer.cost_nano_per_hour) if disclosure.costs else None,
        effective_cost_per_hour=money(offer.effective_nano_per_hour) if disclosure.costs else None,
    )


def _stored_rejected(offer: RejectedOffer, disclosure: Disclosure) -> RejectedView:
    return RejectedView(
        key=offer.offer,
        provider=offer.provider,
        region=offer.region,
        native_type=offer.native_type,
        code=offer.code.value,
        why=_why(offer.code, offer.why, disclosure),
        proofs=_proof_ids(offer.proofs, disclosure),
        more=offer.more,
    )


def _why(code: RejectCode, why: str, disclosure: Disclosure) -> str:
    disclosed = {
        RejectCode.COSTS_MORE_THAN_SOLD: disclosure.costs,
        RejectCode.ACCOUNT_UNHEALTHY: disclosure.accounts,
        RejectCode.BLOCKED: disclosure.accounts,
    }
    return why if disclosed.get(code, True) else _FOR_CUSTOMERS[code]


def _proof_ids(proofs: Iterable[UUID], disclosure: Disclosure) -> tuple[str, ...]:
    """The ids of proofs, which are of other customers' machines, too."""
    return tuple(on_wire(Prefix.PROOF, proof) for proof in proofs) if disclosure.proof_records else ()
