"""Whether a request may become a lease: every refusal at its boundary, and their order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.admission import HOLD_SECONDS, Admitted, Price, Standing, admit, hold_for
from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano, accrued
from control_plane.domain.organization import OrganizationState
from control_plane.domain.proof import Tier
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku

PRICE = Price(
    Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 100), CapacityShape.VM, Tier.LISTED),
    Nano(2_490_000_000),
    book=1,
)
HOUR = 8 * 2_490_000_000
REQUEST = CapacityRequest("h100x8")
FINE = Standing(OrganizationState.ACTIVE, gpu_quota=8, gpus_held=0, available_nano=Nano(HOUR))


def expect_refusal(verdict: Admitted | Refused, code: RefusalCode, *words: str) -> None:
    assert isinstance(verdict, Refused), verdict
    assert verdict.code is code
    assert verdict.why.endswith(".")
    for word in words:
        assert word in verdict.why, verdict.why


def test_a_request_within_quota_balance_and_ceiling_is_admitted_with_its_first_hour_set_aside() -> None:
    assert admit(REQUEST, PRICE, FINE) == Admitted(PRICE, Nano(HOUR))


def test_a_suspended_organization_is_refused() -> None:
    expect_refusal(
        admit(REQUEST, PRICE, replace(FINE, state=OrganizationState.SUSPENDED)),
        RefusalCode.ORGANIZATION_SUSPENDED,
        "settle",
    )


def test_an_organization_that_is_closing_closed_or_deleted_is_refused() -> None:
    for state in (OrganizationState.CLOSING, OrganizationState.CLOSED, OrganizationState.DELETED):
        expect_refusal(admit(REQUEST, PRICE, replace(FINE, state=state)), RefusalCode.ORGANIZATION_CLOSED)


def test_a_sku_that_is_not_sold_is_refused() -> None:
    expect_refusal(admit(REQUEST, None, FINE), RefusalCode.SKU_UNKNOWN, "'h100x8'", "/v1/skus")


def test_a_sku_that_is_not_sold_names_the_nearest_one_and_all_others() -> None:
    sold = ["h100-sxm.1x", "h100-sxm.8x", "l4.1x"]
    mistyped = admit(CapacityRequest("h100-smx.1x"), None, FINE, sold=sold)
    expect_refusal(mistyped, RefusalCode.SKU_UNKNOWN, "did you mean 'h100-sxm.1x'?", *sold)
    strange = admit(CapacityRequest("potato"), None, FINE, sold=sold)
    expect_refusal(strange, RefusalCode.SKU_UNKNOWN, *sold)
    assert isinstance(strange, Refused)
    assert "did you mean" not in strange.why


def test_a_ceiling_admits_the_price_itself_and_refuses_a_nano_below_it() -> None:
    at = replace(REQUEST, price_nano_per_hour_max=Nano(HOUR))
    below = replace(REQUEST, price_nano_per_hour_max=Nano(HOUR - 1))
    assert isinstance(admit(at, PRICE, FINE), Admitted)
    expect_refusal(admit(below, PRICE, FINE), RefusalCode.PRICE_ABOVE_CEILING, "19.92", "19.91")


def test_a_ceiling_of_nothing_is_a_ceiling() -> None:
    free = replace(REQUEST, price_nano_per_hour_max=Nano(0))
    expect_refusal(admit(free, PRICE, FINE), RefusalCode.PRICE_ABOVE_CEILING)


def test_the_quota_can_be_used_up_and_not_exceeded_by_one() -> None:
    assert isinstance(admit(REQUEST, PRICE, replace(FINE, gpu_quota=9, gpus_held=1)), Admitted)
    expect_refusal(
        admit(REQUEST, PRICE, replace(FINE, gpu_quota=9, gpus_held=2)),
        RefusalCode.QUOTA_EXCEEDED,
        "10 GPUs",
        "9",
    )


def test_the_balance_can_be_used_up_and_not_overdrawn_by_a_nano() -> None:
    assert isinstance(admit(REQUEST, PRICE, FINE), Admitted)
    short = replace(FINE, available_nano=Nano(HOUR - 1))
    expect_refusal(admit(REQUEST, PRICE, short), RefusalCode.BALANCE_TOO_LOW, "19.92", "19.91")


def test_a_balance_below_zero_is_too_low() -> None:
    expect_refusal(admit(REQUEST, PRICE, replace(FINE, available_nano=Nano(-1))), RefusalCode.BALANCE_TOO_LOW)


def test_refusals_come_in_the_order_in_which_a_customer_can_fix_them() -> None:
    request = replace(REQUEST, price_nano_per_hour_max=Nano(0))
    hopeless = Standing(OrganizationState.SUSPENDED, gpu_quota=0, gpus_held=8, available_nano=Nano(-1))
    expect_refusal(admit(request, None, hopeless), RefusalCode.ORGANIZATION_SUSPENDED)
    welcome = replace(hopeless, state=OrganizationState.ACTIVE)
    expect_refusal(admit(request, None, welcome), RefusalCode.SKU_UNKNOWN)
    expect_refusal(admit(request, PRICE, welcome), RefusalCode.PRICE_ABOVE_CEILING)
    expect_refusal(admit(REQUEST, PRICE, welcome), RefusalCode.QUOTA_EXCEEDED)
    expect_refusal(admit(REQUEST, PRICE, replace(welcome, gpu_quota=16)), RefusalCode.BALANCE_TOO_LOW)


@given(
    state=st.sampled_from(OrganizationState),
    quota=st.integers(0, 32),
    held=st.integers(0, 32),
    available=st.integers(-HOUR, 2 * HOUR),
    ceiling=st.none() | st.integers(0, 2 * HOUR),
)
def test_who_is_admitted_stays_within_quota_balance_and_ceiling(
    state: OrganizationState, quota: int, held: int, available: int, ceiling: int | None
) -> None:
    standing = Standing(state, quota, held, Nano(available))
    request = replace(REQUEST, price_nano_per_hour_max=None if ceiling is None else Nano(ceiling))
    within = (
        state is OrganizationState.ACTIVE
        and held + 8 <= quota
        and available >= HOUR
        and (ceiling is None or ceiling >= PRICE.nano_per_hour)
    )
    assert isinstance(admit(request, PRICE, standing), Admitted) == within


@given(st.integers(0, 10**12), st.integers(1, 16), st.integers(0, 86_400))
def test_a_hold_costs_what_the_time_would(price: int, gpus: int, seconds: int) -> None:
    shape = replace(PRICE.sku.shape, gpu_count=gpus)
    priced = Price(replace(PRICE.sku, shape=shape), Nano(price), book=1)
    assert hold_for(priced, seconds) == accrued(Nano(price), gpus * seconds)
    assert hold_for(priced) == hold_for(priced, HOLD_SECONDS) == priced.nano_per_hour
