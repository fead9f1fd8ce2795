"""Margins: every part of what providers bill belongs to somebody, or is unsold."""

from datetime import datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.cost_record import Charged, CostRecord, Holder
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.margin import (
    IDLE,
    UNSOLD,
    Line,
    Margin,
    MarginBy,
    Margins,
    idle_line,
    margins,
    ordered,
    together,
)
from control_plane.domain.money import Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife
from control_plane.domain.sla import SlaTier
from tests.support.clock import START

HOUR = timedelta(hours=1)
PRICE = Nano(8_000_000_000)
TERMS = BillingTerms(nano_per_hour=PRICE, stopped_nano_per_hour=None)


def holder(
    number: int,
    since: float,
    until: float | None,
    *,
    slot: int | None = None,
    units: int = 8,
    sla: SlaTier = SlaTier.BRONZE,
) -> Holder:
    return Holder(
        lease_id=LeaseId(UUID(int=number)),
        lease=f"l{number}",
        organization_id=OrganizationId(UUID(int=100 + number % 2)),
        organization=("even", "odd")[number % 2],
        sku=f"sku{number % 3}",
        sla=sla,
        units=units,
        slot=slot,
        claimed_at=START + since * HOUR,
        admitted_at=None,
        ended_at=None if until is None else START + until * HOUR,
    )


def record(
    *holders: Holder,
    hours: float | None = 10,
    terms: BillingTerms = TERMS,
    charged: tuple[Charged, ...] = (),
    pooled: bool = False,
    pool_sla: SlaTier | None = None,
) -> CostRecord:
    ended_at = None if hours is None else START + hours * HOUR
    return CostRecord(
        id=MachineId(UUID(int=1)),
        account=AccountName("verda"),
        provider="verda",
        provider_ref="ref-1",
        gpu_count=8,
        spot=False,
        pooled=pooled,
        pool_sla=pool_sla,
        terms=terms,
        life=MachineLife(ordered_at=START, running_at=START, ending_at=ended_at, ended_at=ended_at),
        holders=holders,
        charged=charged,
    )


def _added(by: MarginBy, *records: CostRecord, since: datetime = START, hours: float = 20) -> Margins:
    found = margins(by, since, START + hours * HOUR)
    for each in records:
        found.add(each)
    return found


def _hours(found: Margins) -> dict[str, float]:
    return {line.name: margin.cost_nano / PRICE for line, margin in ordered(found.lines)}


def test_time_belongs_to_the_lease_that_holds_the_machine_and_the_rest_is_unsold() -> None:
    machine = record(holder(1, 0, 4), holder(2, 5, None))
    found = _added(MarginBy.LEASE, machine)
    assert _hours(found) == {"even/l2": 5, "odd/l1": 4, UNSOLD.name: 1}
    assert found.lines[UNSOLD] == Margin(cost_nano=PRICE, unsold_nano=PRICE)
    assert _hours(_added(MarginBy.LEASE, machine, since=START + 2 * HOUR, hours=4.5)) == {
        "odd/l1": 2,
        UNSOLD.name: 0.5,
    }


def test_a_slot_costs_its_share_of_the_machine_and_free_slots_are_unsold() -> None:
    machine = record(holder(1, 0, 10, slot=1, units=2), holder(2, 0, 5, slot=2, units=6))
    assert _hours(_added(MarginBy.LEASE, machine)) == {"even/l2": 3.75, "odd/l1": 2.5, UNSOLD.name: 3.75}


def test_by_provider_unsold_time_is_a_part_of_the_providers_line() -> None:
    charged = Charged(LeaseId(UUID(int=1)), Nano(100_000_000_000), 4 * 3_600, 0)
    found = _added(MarginBy.PROVIDER, record(holder(1, 0, 4), charged=(charged,)))
    margin = Margin(Nano(100_000_000_000), Nano(10 * PRICE), Nano(6 * PRICE))
    assert found.lines == {Line("verda", "verda"): margin}
    assert (margin.margin_nano, margin.basis_points) == (20_000_000_000, 2_000)
    assert Margin(Nano(3), Nano(4)).basis_points == -3_334
    assert Margin(cost_nano=PRICE).basis_points is None


def test_what_waits_in_a_pool_belongs_to_the_level_that_asked_and_what_follows_its_claim_does_not() -> None:
    gold = SlaTier.GOLD
    claimed = record(holder(1, 3, 8, sla=gold), pooled=True)
    for_silver = record(holder(2, 1, 10), pooled=True, pool_sla=SlaTier.SILVER)
    nobody, bought = record(pooled=True), record(holder(3, 2, 10))
    found = _added(MarginBy.SKU, claimed, for_silver, nobody, bought)
    assert found.idle == {gold: 3 * PRICE, SlaTier.SILVER: PRICE, None: 10 * PRICE}
    assert (found.total.idle_nano, found.total.unsold_nano) == (14 * PRICE, 18 * PRICE)
    unsold = {line.name: margin for line, margin in found.lines.items() if not line.key}
    assert unsold == {
        name: Margin(
            cost_nano=Nano(hours * PRICE), unsold_nano=Nano(hours * PRICE), idle_nano=Nano(idle * PRICE)
        )
        for name, hours, idle in (
            (idle_line(gold).name, 3, 3),
            (idle_line(SlaTier.SILVER).name, 1, 1),
            (IDLE.name, 10, 10),
            (UNSOLD.name, 4, 0),
        )
    }
    by_level = _added(MarginBy.SLA, claimed, for_silver, nobody, bought)
    assert _hours(by_level) == {"bronze": 17, "gold": 8, "silver": 1, IDLE.name: 10, UNSOLD.name: 4}
    by_provider = _added(MarginBy.PROVIDER, claimed, for_silver, nobody, bought)
    assert by_provider.lines == {Line("verda", "verda"): by_provider.total}
    assert by_provider.idle == by_level.idle == found.idle


_HOLDERS = st.builds(
    lambda number, since, hours, slot, units: holder(number, since, since + hours, slot=slot, units=units),
    st.integers(1, 9),
    st.floats(-2, 12),
    st.floats(0, 12),
    st.none() | st.integers(1, 8),
    st.integers(1, 8),
)


@given(
    st.lists(_HOLDERS, max_size=5, unique_by=lambda each: each.lease_id),
    st.sampled_from([1, 60, 600]),
    st.none() | st.floats(0, 12),
    st.integers(0, 10**12),
    st.booleans(),
    st.none() | st.sampled_from(SlaTier),
)
def test_whatever_is_added_up_by_the_parts_are_what_providers_bill_and_customers_were_charged(
    holders: list[Holder],
    increment: int,
    hours: float | None,
    amount: int,
    pooled: bool,
    pool_sla: SlaTier | None,
) -> None:
    terms = BillingTerms(nano_per_hour=PRICE, stopped_nano_per_hour=None, increment_seconds=increment)
    charged = tuple(Charged(each.lease_id, Nano(amount), 0, 0) for each in holders)
    machine = record(*holders, hours=hours, terms=terms, charged=charged, pooled=pooled, pool_sla=pool_sla)
    for by in MarginBy:
        found = _added(by, machine, machine)
        assert found.total == together(found.lines.items())
        assert found.total.cost_nano == 2 * machine.cost(found.since, found.until)
        assert found.total.revenue_nano == 2 * amount * len(holders)
        assert all(
            margin.cost_nano >= margin.unsold_nano >= margin.idle_nano >= 0 for margin in found.lines.values()
        )
        assert sum(found.idle.values()) == found.total.idle_nano
        assert pooled or not found.idle
