"""What offers and placements show of our purchasing depends on permissions, each on its own."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from control_plane.api.views.catalogue import offer_view
from control_plane.api.views.disclosure import Disclosure
from control_plane.api.views.placements import candidate_view, placement_view, rejected_view
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from control_plane.domain.permission import Permission
from control_plane.domain.placement import Offer, RejectCode, Rejection
from control_plane.domain.role_permissions import OPERATOR, OWNER
from control_plane.domain.sku import Shape
from control_plane.services.lease_overviews import PlacedRanking, Placement, RankedOffer, RejectedOffer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OFFER = Offer(
    key="fake:eu:h100",
    account="fake",
    provider="fake",
    region="eu-central-1",
    native_region="eu",
    native_type="h100",
    shape=Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100),
    capacity="vm",
    cost_nano_per_hour=Nano(1_234_567_891),
    available=True,
    confidence="live",
    observed_at=NOW,
)
PROOF = UUID(int=7)
SECRETS = {
    Permission.COSTS_READ: {RejectCode.COSTS_MORE_THAN_SOLD},
    Permission.PROVIDER_ACCOUNTS_READ: {RejectCode.ACCOUNT_UNHEALTHY, RejectCode.BLOCKED},
}
COST = Nano(1_234_567_891)


def _placement(
    *, candidates: tuple[RankedOffer, ...] = (), rejected: tuple[RejectedOffer, ...] = ()
) -> Placement:
    return Placement(1, NOW, None, PlacedRanking(candidates, rejected))


def _rejections(disclosure: Disclosure) -> dict[RejectCode, str]:
    """The sentence for each code, once made anew and once read from storage; both have to be the same."""
    shown = {}
    for code in RejectCode:
        fresh = rejected_view(Rejection(OFFER, code, "secret"), disclosure)
        stored = RejectedOffer("k", "fake", "eu", "h100", COST, "live", NOW, code, "secret")
        row = _placement(rejected=(stored,))
        assert placement_view(row, disclosure).rejected[0].why == fresh.why
        shown[code] = fresh.why
    return shown


@pytest.mark.parametrize("permission", SECRETS)
def test_a_sentence_about_our_purchasing_needs_its_permission_and_no_other(permission: Permission) -> None:
    without = _rejections(Disclosure.of(OPERATOR - {permission}))
    assert {code for code, why in without.items() if why != "secret"} == SECRETS[permission]
    only = _rejections(Disclosure.of(OWNER | {permission}))
    assert {code for code, why in only.items() if why != "secret"} == set[RejectCode]().union(
        *(codes for other, codes in SECRETS.items() if other is not permission)
    )


def test_costs_need_their_permission() -> None:
    row = _placement(candidates=(RankedOffer("k", "fake", "eu", "h100", COST, "live", NOW, COST),))
    for permissions, shown in ((OPERATOR, True), (OPERATOR - {Permission.COSTS_READ}, False)):
        disclosure = Disclosure.of(permissions)
        for cost in (
            offer_view(OFFER, [], NOW, costs=disclosure.costs).cost_per_hour,
            candidate_view(OFFER, disclosure, None).cost_per_hour,
            placement_view(row, disclosure).candidates[0].cost_per_hour,
            offer_view(OFFER, [], NOW, costs=disclosure.costs).effective_cost_per_hour,
            candidate_view(OFFER, disclosure, None).effective_cost_per_hour,
            placement_view(row, disclosure).candidates[0].effective_cost_per_hour,
        ):
            assert (cost.nano if cost else None) == (1_234_567_891 if shown else None)


def test_proofs_of_other_customers_machines_need_their_permission() -> None:
    rejection = Rejection(OFFER, RejectCode.PROOF_RECORD, "why", (PROOF,))
    without = Disclosure.of(OPERATOR - {Permission.PROOF_RECORDS_READ})
    assert rejected_view(rejection, Disclosure.of(OPERATOR)).proofs == (f"pf_{PROOF.hex}",)
    assert rejected_view(rejection, without).proofs == ()
