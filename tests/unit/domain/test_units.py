"""What a bill counts: GPUs, or one machine where there are none, which is never free."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.gpu import GpuModel
from control_plane.domain.metering import Meter, UsedUntil, due_intervals
from control_plane.domain.money import Nano, accrued
from control_plane.domain.price import Price, hold_for
from control_plane.domain.proof import Tier
from control_plane.domain.rating import charge
from control_plane.domain.sku import CapacityShape, Shape, Sku, Unit, unit_of, units_of
from tests.support.tariff import a_tariff

SECOND = timedelta(seconds=1)
DAY = datetime(2026, 11, 20, tzinfo=UTC)
PRICES = st.integers(3_600, 10**12).map(Nano)
"""From one nano for each second of a unit."""


@given(gpus=st.integers(0, 64), price=PRICES, seconds=st.integers(1, 10 * 24 * 3_600))
def test_a_bill_is_units_by_time_by_price_and_never_zero(gpus: int, price: Nano, seconds: int) -> None:
    ended_at = DAY + seconds * SECOND
    intervals = list(
        due_intervals(Meter(a_tariff(DAY, units_of(gpus)), None, 0), UsedUntil(ended_at, ended_at, True))
    )
    charged = sum(charge(price, each.unit_seconds_before, each.unit_seconds) for each in intervals)
    assert charged == accrued(price, (gpus or 1) * seconds) > 0


@given(gpus=st.integers(0, 64), price=PRICES)
def test_the_price_of_an_hour_is_also_its_hold(gpus: int, price: Nano) -> None:
    shape = Shape(GpuModel.L4_24GB if gpus else None, gpus, 16, 64, 100)
    found = Price(Sku("some", shape, CapacityShape.VM, Tier.LISTED), price, book=1)
    assert found.nano_per_hour == hold_for(found) == price * (gpus or 1)
    assert found.nano_per_gpu_hour == (price if gpus else None)
    assert unit_of(gpus) is (Unit.GPU if gpus else Unit.MACHINE)
