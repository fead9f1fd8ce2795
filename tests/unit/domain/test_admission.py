"""Whether a request may become a lease: every refusal at its boundary, their order, and that all are reported."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.admission import APPLIES, Admitted, Proposal, Standing, admit
from control_plane.domain.decision import Action, NotAdmitted, Rule, Stage, Verdict
from control_plane.domain.envelope import Burst, Envelope, Level
from control_plane.domain.envelope_rules import Applied, Use
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NOTHING, Nano, accrued
from control_plane.domain.organization import OrganizationState
from control_plane.domain.price import HOLD_SECONDS, Price, hold_for
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PRICE = Price(
    Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100), CapacityShape.VM, Tier.LISTED),
    Nano(2_490_000_000),
    book=1,
)
HOUR = 8 * 2_490_000_000
REQUEST = CapacityRequest("h100x8")
ACTIVE = Standing(OrganizationState.ACTIVE, available_nano=Nano(HOUR))


def ceiling(limit: int, held: int = 0) -> Applied:
    return Applied(
        Level.CEILING,
        Envelope(gpus=limit),
        Use({GpuModel.H100_SXM_80GB: held}, Nano(held * PRICE.nano_per_unit_hour)),
    )


FINE = Proposal(Action.LEASE_CREATE, REQUEST, PRICE, ACTIVE, (ceiling(8),), NOW)


def with_available(amount: int) -> Proposal:
    return replace(FINE, standing=replace(ACTIVE, available_nano=Nano(amount)))


def expect_refusal(verdict: Admitted | NotAdmitted, code: RefusalCode, *words: str) -> None:
    assert isinstance(verdict, Refused), verdict
    assert verdict.code is code
    assert verdict.why.endswith(".")
    for word in words:
        assert word in verdict.why, verdict.why


def expect_admitted(verdict: Admitted | NotAdmitted) -> Admitted:
    assert isinstance(verdict, Admitted), verdict
    return verdict


def test_a_request_within_envelope_balance_and_ceiling_is_admitted_with_its_first_hour_set_aside() -> None:
    admitted = expect_admitted(admit(FINE))
    assert (admitted.price, admitted.hold_nano, admitted.over) == (PRICE, HOUR, ())
    assert admitted.decision.outcome is Verdict.ALLOWED


def test_a_suspended_organization_is_refused() -> None:
    suspended = replace(FINE, standing=replace(ACTIVE, state=OrganizationState.SUSPENDED))
    expect_refusal(admit(suspended), RefusalCode.ORGANIZATION_SUSPENDED, "settle")


def test_an_organization_that_is_closing_closed_or_deleted_is_refused() -> None:
    for state in (OrganizationState.CLOSING, OrganizationState.CLOSED, OrganizationState.DELETED):
        closed = replace(FINE, standing=replace(ACTIVE, state=state))
        expect_refusal(admit(closed), RefusalCode.ORGANIZATION_CLOSED)


def test_a_sku_that_is_not_sold_is_refused() -> None:
    expect_refusal(admit(replace(FINE, price=None)), RefusalCode.SKU_UNKNOWN, "'h100x8'", "/v1/skus")


def test_a_sku_that_is_not_sold_names_the_nearest_one_and_all_others() -> None:
    sold = ("h100-sxm.1x", "h100-sxm.8x", "l4.1x")
    unknown = replace(FINE, price=None, sold=sold)
    mistyped = admit(replace(unknown, request=CapacityRequest("h100-smx.1x")))
    expect_refusal(mistyped, RefusalCode.SKU_UNKNOWN, "did you mean 'h100-sxm.1x'?", *sold)
    strange = admit(replace(unknown, request=CapacityRequest("potato")))
    expect_refusal(strange, RefusalCode.SKU_UNKNOWN, *sold)
    assert isinstance(strange, Refused)
    assert "did you mean" not in strange.why


def test_a_ceiling_admits_the_price_itself_and_refuses_a_nano_below_it() -> None:
    at = replace(REQUEST, price_nano_per_hour_max=Nano(HOUR))
    below = replace(REQUEST, price_nano_per_hour_max=Nano(HOUR - 1))
    expect_admitted(admit(replace(FINE, request=at)))
    expect_refusal(admit(replace(FINE, request=below)), RefusalCode.PRICE_ABOVE_CEILING, "19.92", "19.91")


def test_a_ceiling_of_nothing_is_a_ceiling() -> None:
    free = replace(REQUEST, price_nano_per_hour_max=NOTHING)
    expect_refusal(admit(replace(FINE, request=free)), RefusalCode.PRICE_ABOVE_CEILING)


SPOT = replace(REQUEST, purchase=PurchaseKind.SPOT)


def test_a_spot_lease_needs_a_ceiling_of_at_least_its_price() -> None:
    expect_refusal(admit(replace(FINE, request=SPOT)), RefusalCode.PRICE_CEILING_MISSING, "ceiling")
    for ceiling_nano, admitted in ((HOUR, True), (HOUR - 1, False)):
        verdict = admit(replace(FINE, request=replace(SPOT, price_nano_per_hour_max=Nano(ceiling_nano))))
        assert isinstance(verdict, Admitted) is admitted, ceiling_nano


def test_a_sku_without_a_spot_price_is_not_sold_as_spot_and_the_refusal_says_so() -> None:
    unsold = replace(FINE, request=SPOT, price=None, sold=(SPOT.sku,))
    expect_refusal(admit(unsold), RefusalCode.PURCHASE_NOT_OFFERED, SPOT.sku, "on demand")


def test_an_envelope_that_allows_leases_on_demand_alone_refuses_spot_and_no_other() -> None:
    only = Applied(Level.PROJECT, Envelope(purchases=frozenset({PurchaseKind.ON_DEMAND})))
    expect_admitted(admit(replace(FINE, envelopes=(only,))))
    wanted = replace(SPOT, price_nano_per_hour_max=Nano(HOUR))
    spot = admit(replace(FINE, request=wanted, envelopes=(only,)))
    expect_refusal(spot, RefusalCode.ENVELOPE_EXCLUDES, "purchase kinds", "on_demand", "spot")


def test_the_spot_price_takes_the_place_of_the_price_and_is_the_one_of_a_stopped_machine_too() -> None:
    price = FINE.price
    assert price is not None
    sold = replace(price, stopped_nano_per_unit_hour=Nano(1), spot_nano_per_unit_hour=Nano(7))
    spot = sold.bought(PurchaseKind.SPOT)
    assert spot is not None
    assert (spot.nano_per_unit_hour, spot.stopped_nano, spot.purchase) == (7, 7, PurchaseKind.SPOT)
    assert spot.bought(PurchaseKind.SPOT) == spot
    assert sold.bought(PurchaseKind.ON_DEMAND) == sold
    assert price.bought(PurchaseKind.SPOT) is None


def test_an_interruptible_lease_has_a_price_of_its_own_and_needs_no_ceiling() -> None:
    price, wanted = FINE.price, replace(REQUEST, purchase=PurchaseKind.INTERRUPTIBLE)
    assert price is not None
    sold = replace(price, spot_nano_per_unit_hour=Nano(3), interruptible_nano_per_unit_hour=Nano(7))
    assert replace(sold, interruptible_nano_per_unit_hour=None).bought(PurchaseKind.INTERRUPTIBLE) is None
    bought = sold.bought(PurchaseKind.INTERRUPTIBLE)
    assert bought is not None
    assert (bought.nano_per_unit_hour, bought.purchase) == (7, PurchaseKind.INTERRUPTIBLE)
    expect_admitted(admit(replace(FINE, request=wanted, price=bought)))


def test_a_limit_on_gpus_can_be_used_up_and_not_exceeded_by_one() -> None:
    expect_admitted(admit(replace(FINE, envelopes=(ceiling(9, held=1),))))
    over = admit(replace(FINE, envelopes=(ceiling(9, held=2),)))
    expect_refusal(over, RefusalCode.QUOTA_EXCEEDED, "10 GPUs", "9")


def test_the_balance_can_be_used_up_and_not_overdrawn_by_a_nano() -> None:
    expect_admitted(admit(FINE))
    expect_refusal(admit(with_available(HOUR - 1)), RefusalCode.BALANCE_TOO_LOW, "19.92", "19.91")


def test_a_balance_below_zero_is_too_low() -> None:
    expect_refusal(admit(with_available(-1)), RefusalCode.BALANCE_TOO_LOW)


HOPELESS = replace(
    FINE,
    request=replace(REQUEST, price_nano_per_hour_max=NOTHING),
    standing=Standing(OrganizationState.SUSPENDED, Nano(-1)),
    envelopes=(ceiling(0, held=8),),
    unserved=Refused(RefusalCode.SKU_NOT_OFFERED, "No provider offers it."),
)


def test_refusals_come_in_the_order_identity_envelope_policy_money_capacity() -> None:
    expect_refusal(admit(HOPELESS), RefusalCode.ORGANIZATION_SUSPENDED)
    active = replace(HOPELESS, standing=Standing(OrganizationState.ACTIVE, Nano(-1)))
    expect_refusal(admit(active), RefusalCode.QUOTA_EXCEEDED)
    within = replace(active, envelopes=(ceiling(16),))
    expect_refusal(admit(within), RefusalCode.PRICE_ABOVE_CEILING)
    payable = replace(within, request=REQUEST)
    expect_refusal(admit(payable), RefusalCode.BALANCE_TOO_LOW)
    funded = replace(payable, standing=ACTIVE)
    expect_refusal(admit(funded), RefusalCode.SKU_NOT_OFFERED)
    expect_admitted(admit(replace(funded, unserved=None)))


def test_all_refusals_are_reported_beside_the_first() -> None:
    verdict = admit(HOPELESS)
    assert isinstance(verdict, NotAdmitted)
    assert [spoken.stage for spoken in verdict.decision.refusals] == list(Stage)
    assert [spoken.code for spoken in verdict.decision.refusals] == [
        RefusalCode.ORGANIZATION_SUSPENDED,
        RefusalCode.QUOTA_EXCEEDED,
        RefusalCode.PRICE_ABOVE_CEILING,
        RefusalCode.BALANCE_TOO_LOW,
        RefusalCode.SKU_NOT_OFFERED,
    ]


def test_an_admitted_request_reports_every_rule_that_spoke_with_its_figures() -> None:
    spoken = expect_admitted(admit(replace(FINE, envelopes=(ceiling(9, held=1),)))).decision.rules
    assert [each.rule for each in spoken] == [
        Rule.ORGANIZATION,
        Rule.GPUS,
        Rule.SOLD,
        Rule.BALANCE,
        Rule.OFFERED,
    ]
    gpus = spoken[1]
    assert (gpus.level, gpus.limit, gpus.used, gpus.wanted) == (Level.CEILING, "9", "1", "8")


def bursting(limit: int, held: int, burst: Burst, since: datetime | None = None) -> Applied:
    applied = ceiling(limit, held)
    return replace(
        applied,
        envelope=replace(applied.envelope, burst=burst),
        use=replace(applied.use, over_since=since),
    )


def test_a_burst_admits_over_the_limit_at_its_price_and_names_the_level() -> None:
    rich = with_available(10 * HOUR)
    over = replace(rich, envelopes=(bursting(8, 4, Burst(50, 3_600, price_percent=150)),))
    admitted = expect_admitted(admit(over))
    assert admitted.decision.outcome is Verdict.BURST
    assert admitted.over == (Level.CEILING,)
    assert admitted.price.nano_per_unit_hour == PRICE.nano_per_unit_hour * 3 // 2
    assert admitted.hold_nano == admitted.price.nano_per_hour
    one_more = replace(rich, envelopes=(bursting(8, 5, Burst(50, 3_600)),))
    expect_refusal(admit(one_more), RefusalCode.QUOTA_EXCEEDED)


def test_a_burst_whose_price_is_above_the_ceiling_or_the_balance_is_refused() -> None:
    over = (bursting(8, 4, Burst(50, 3_600, price_percent=150)),)
    capped = replace(REQUEST, price_nano_per_hour_max=Nano(HOUR))
    rich = with_available(10 * HOUR)
    expect_refusal(admit(replace(rich, envelopes=over, request=capped)), RefusalCode.PRICE_ABOVE_CEILING)
    expect_refusal(admit(replace(FINE, envelopes=over)), RefusalCode.BALANCE_TOO_LOW)


def test_the_price_of_one_burst_counts_for_the_spend_that_another_level_limits() -> None:
    spend = Envelope(spend_nano_per_hour=Nano(HOUR))
    over = bursting(8, 4, Burst(50, 3_600, price_percent=150))
    rich = replace(with_available(10 * HOUR), envelopes=(Applied(Level.PROJECT, spend), over))
    expect_refusal(admit(rich), RefusalCode.SPEND_LIMIT_REACHED, "29.88", "19.92")


def test_every_action_lets_its_rules_speak_and_no_others() -> None:
    for action in APPLIES:
        proposal = replace(
            HOPELESS,
            action=action,
            envelopes=(
                Applied(
                    Level.PROJECT,
                    Envelope(
                        gpus=0,
                        gpus_of_model={GpuModel.H100_SXM_80GB: 0},
                        spend_nano_per_hour=NOTHING,
                        spend_nano_per_month=NOTHING,
                        skus=frozenset(),
                        regions=frozenset(),
                        providers=frozenset(),
                        tiers=frozenset(),
                        purchases=frozenset(),
                        priority=0,
                        batch_size=0,
                    ),
                    Use({GpuModel.H100_SXM_80GB: 8}, Nano(HOUR), Nano(HOUR)),
                ),
            ),
        )
        verdict = admit(proposal)
        assert isinstance(verdict, NotAdmitted), action
        assert {spoken.rule for spoken in verdict.decision.rules} == APPLIES[action], action
        refused = {spoken.rule for spoken in verdict.decision.refusals}
        assert refused == APPLIES[action] - {Rule.SOLD}, action


def test_every_action_says_which_rules_speak_on_it_and_asks_who_it_is_first() -> None:
    assert APPLIES.keys() == set(Action) - {Action.QUOTA_INCREASE, Action.LEASE_RUN}
    for action, rules in APPLIES.items():
        assert Rule.ORGANIZATION in rules, action


def test_what_adds_nothing_is_refused_only_where_the_use_is_over_a_limit_already() -> None:
    for action in (Action.LEASE_EXTEND, Action.LEASE_PLACE, Action.LEASE_MOVE, Action.LEASE_PRIORITY):
        full = replace(with_available(0), action=action, adds=False, envelopes=(ceiling(8, held=8),))
        assert isinstance(admit(full), Admitted), action
        over = admit(replace(full, envelopes=(ceiling(7, held=8),)))
        expect_refusal(over, RefusalCode.QUOTA_EXCEEDED, "8 GPUs")


@given(
    state=st.sampled_from(OrganizationState),
    quota=st.integers(0, 32),
    held=st.integers(0, 32),
    available=st.integers(-HOUR, 2 * HOUR),
    most=st.none() | st.integers(0, 2 * HOUR),
)
def test_who_is_admitted_stays_within_envelope_balance_and_ceiling(
    state: OrganizationState, quota: int, held: int, available: int, most: int | None
) -> None:
    request = replace(REQUEST, price_nano_per_hour_max=None if most is None else Nano(most))
    proposal = replace(
        FINE,
        request=request,
        standing=Standing(state, Nano(available)),
        envelopes=(ceiling(quota, held),),
    )
    within = (
        state is OrganizationState.ACTIVE
        and held + 8 <= quota
        and available >= HOUR
        and (most is None or most >= PRICE.nano_per_hour)
    )
    assert isinstance(admit(proposal), Admitted) == within


@given(st.integers(0, 10**12), st.integers(1, 16), st.integers(1, 1_100))
def test_a_hold_costs_what_the_first_hour_or_the_term_would(price: int, gpus: int, days: int) -> None:
    shape = replace(PRICE.sku.shape, gpu_count=gpus)
    priced = Price(replace(PRICE.sku, shape=shape), Nano(price), book=1, committed_days=days)
    assert hold_for(priced) == accrued(Nano(price), gpus * HOLD_SECONDS) == priced.nano_per_hour
    term = replace(priced, purchase=PurchaseKind.COMMITTED)
    assert hold_for(term) == accrued(Nano(price), gpus * days * 86_400) == 24 * days * priced.nano_per_hour


def test_new_leases_come_after_those_whose_next_hour_cannot_be_set_aside() -> None:
    short = replace(ACTIVE, available_nano=Nano(HOUR + 4_999_999_999), short_nano=Nano(5_000_000_000))
    refused = admit(replace(FINE, standing=short))
    expect_refusal(
        refused, RefusalCode.BALANCE_EXHAUSTED, "need 5.00 USD", "takes 19.92 USD", "top up 0.01 USD"
    )
    expect_admitted(admit(replace(FINE, standing=replace(short, available_nano=Nano(HOUR + 5_000_000_000)))))
    spends_nothing = replace(FINE, standing=replace(short, available_nano=Nano(0)), adds=False)
    expect_admitted(admit(spends_nothing))
