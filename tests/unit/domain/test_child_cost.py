"""What outlived its machine costs money until a list lacks it, in margins and in the match."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.child import ListedChild, listed_children
from control_plane.domain.child_cost import ChildCost
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.machine import MachineState
from control_plane.domain.margin import LEFT_BEHIND, Line, Margin, MarginBy, Margins, margins
from control_plane.domain.match import Match, MatchedMachine, MatchWord
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.provider_cost import bounds_between
from control_plane.domain.supplier_invoice import BilledMachine, SupplierLine
from tests.support.clock import START
from tests.support.values import OURS, THEIRS, a_machine
from tests.unit.domain.test_child import LATE, a_parent, a_script, a_volume, sort
from tests.unit.domain.test_margin import record

HOUR = timedelta(hours=1)
PRICE = Nano(20_000_000)


def at(hours: float) -> datetime:
    return START + hours * HOUR


def volume(*, left: float = 2, gone: float | None = 8, last_seen: float = 7, ending: float = 1) -> ChildCost:
    """Of a machine that was asked to end after an hour, gone after two, and the volume after eight."""
    return ChildCost(
        account=AccountName("verda"),
        provider="verda",
        kind="volume",
        ref="vol-1",
        nano_per_hour=PRICE,
        first_seen_at=START,
        last_seen_at=None if gone is None else at(last_seen),
        left_at=at(left),
        gone_at=None if gone is None else at(gone),
        machine_id=MachineId(UUID(int=9)),
        ending_at=at(ending),
        lease_id=LeaseId(UUID(int=1)),
        lease="l1",
        organization_id=OrganizationId(UUID(int=2)),
        organization="odd",
    )


def test_a_volume_costs_from_the_end_of_its_machine_until_a_list_lacks_it() -> None:
    assert volume().cost(START, at(20)) == 6 * PRICE
    assert volume(gone=None).cost(START, at(20)) == 18 * PRICE
    assert volume().cost(START, at(2)) == 0, "the price of its machine includes it until then"
    bounds = bounds_between(volume().terms, volume().life, START, at(20))
    assert (bounds.least_nano, bounds.most_nano) == (5 * PRICE, 7 * PRICE)


@given(st.lists(st.floats(0, 20), min_size=1, max_size=6))
def test_months_add_up_however_time_is_cut(moments: list[float]) -> None:
    cuts = [START, *sorted(map(at, moments)), at(20)]
    parts = [volume().cost(since, until) for since, until in pairwise(cuts)]
    assert sum(parts) == volume().cost(START, at(20))


def _added(by: MarginBy) -> Margins:
    found = margins(by, START, at(20))
    found.add(record())
    found.add_child(volume())
    found.add_child(volume(left=30, gone=None, ending=29))
    return found


def test_what_was_left_behind_is_a_line_of_its_own_and_by_provider_a_part_of_the_providers_line() -> None:
    cost = Nano(6 * PRICE)
    for by in MarginBy:
        found = _added(by)
        assert found.total.left_nano == cost
        assert [(child.ref, nano) for child, nano in found.left] == [("vol-1", cost)], "only of this month"
        assert found.uncertain_nano == 2 * PRICE
        if by is MarginBy.PROVIDER:
            assert found.lines == {Line("verda", "verda"): found.total}
        else:
            assert found.lines[LEFT_BEHIND] == Margin(cost_nano=cost, left_nano=cost)
            assert found.total.unsold_nano == found.total.cost_nano - cost, (
                "no machine's time is in it, and it is in none"
            )


def billed(hours: float, price: Nano = PRICE, unit: str = "hour") -> SupplierLine:
    return SupplierLine("vol-1", START, at(20), round(hours * NANO_PER_USD), unit, Nano(round(hours * price)))


def matched(*lines: SupplierLine, child: ChildCost | None = None) -> list[MatchedMachine]:
    theirs = BilledMachine()
    for line in lines:
        theirs.add(line)
    found = Match(START, at(20), {"vol-1": theirs} if lines else {})
    found.add_child(child or volume())
    found.finish()
    return found.machines


def test_a_suppliers_line_for_what_was_left_behind_has_its_record_and_is_explained() -> None:
    # Dear enough that a cent for each line explains nothing.
    dear = replace(volume(), nano_per_hour=Nano(NANO_PER_USD))
    (found,) = matched(billed(6, dear.nano_per_hour), child=dear)
    assert (found.expected_nano, found.theirs_nano, found.is_open) == (
        6 * NANO_PER_USD,
        6 * NANO_PER_USD,
        False,
    )
    assert [(step.word, step.amount_nano) for step in found.differences] == [
        (MatchWord.LEFT_BEHIND, 6 * NANO_PER_USD)
    ]
    assert found.child is dear
    for hours, price, word in (
        (6.5, 1, "observed_times"),
        (9, 1, "time_differs"),
        (6, 3, "price_differs"),
        (0, 1, "not_on_theirs"),
    ):
        lines = [billed(hours, Nano(price * NANO_PER_USD))] if hours else []
        (found,) = matched(*lines, child=dear)
        assert found.differences[-1].word == word
        assert found.is_open == (word != "observed_times")
        assert sum(step.amount_nano for step in found.differences) == found.theirs_nano


def test_what_costs_nothing_in_the_month_and_is_not_billed_is_not_named() -> None:
    assert matched(child=volume(left=30, gone=None)) == []
    (found,) = matched(billed(1), child=volume(left=30, gone=None))
    assert found.child is not None, (
        "a supplier that bills it all the same is told from one that bills a stranger"
    )


def test_a_list_says_since_when_each_child_of_ours_serves_nobody() -> None:
    gone = START - 2 * LATE
    children = [a_volume(1), a_volume(2), a_volume(3), a_script(4, THEIRS)]
    parents = [a_parent(1), a_parent(2, MachineState.GONE, gone_at=gone)]
    found = listed_children(children, sort(children, parents).leftovers, installation=OURS, now=START)

    def of(child: ListedChild) -> tuple[str, datetime | None, MachineId | None]:
        return child.ref, child.left_at, child.machine_id

    assert [of(child) for child in found] == [
        ("volume-1", None, None),
        ("volume-2", gone, a_machine(2).id),
        ("volume-3", START, None),
    ]


@pytest.mark.parametrize("armed", [True, False])
def test_what_is_held_back_counts_since_the_same_moment(armed: bool) -> None:
    gone = START - 2 * LATE
    found = sort([a_volume()], [a_parent(state=MachineState.GONE, gone_at=gone)], armed=armed)
    assert [leftover.gone_at for leftover in found.leftovers] == [gone]
