"""Machines held against a listing: who is found, who is missed, when a list is not believed, and what it means."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.downtime import (
    DOWN_MAX,
    FLAPS_WITHIN,
    SETTLED_AFTER,
    CameUp,
    Reworded,
    Wavered,
    WentDown,
    can_be_started,
)
from control_plane.domain.eviction import Eviction, EvictionState
from control_plane.domain.evidence import NO_EVIDENCE, Evidence
from control_plane.domain.failure import FailReason
from control_plane.domain.freeze import FEW, THAW_AFTER, THAW_LISTS, Freeze, MissingPermit, Odd, freeze_after
from control_plane.domain.lease import LeaseKind
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import MAY_EXIST, SHOULD_BE_SIGHTED, Machine, MachineEvent, MachineState
from control_plane.domain.outage import CAUSES, OFF, Cause
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.progress import Step
from control_plane.domain.readdressing import Readdressing
from control_plane.domain.sighting import NOT_RUNNING, LateRefusal, Sighting, may_be_refused
from control_plane.domain.sweep import (
    MISSED_LISTS_MIN,
    SETUP_MAX,
    Adoption,
    Findings,
    Swept,
    Timing,
    absence_proves_gone,
    expected_and_missed,
    look_for,
    match,
    oddness,
    sweep,
    unlisted_regions,
)
from tests.support.clock import START
from tests.support.values import AN_HOUR_BEFORE, OURS, THEIRS, a_key, a_machine, a_ref, a_sighting

S, E = MachineState, MachineEvent
MOMENT = timedelta(microseconds=1)
LAG, BOOT = 30.0, 600.0
TIMING = Timing(list_lag_seconds=LAG, boot_seconds_max=BOOT)


def a_lost_launch(number: int = 1, **other: Any) -> Machine:
    """A machine whose launch was asked for and never answered."""
    return a_machine(number, state=S.LAUNCHING, provider_ref=None, sighted_at=None, **other)


def a_listing(*numbers: int) -> list[Sighting]:
    return [a_sighting(number) for number in numbers]


def found(machines: list[Machine], listing: list[Sighting]) -> Findings:
    return match(machines, listing, installation=OURS, asked_at=START)


# Matching.


def test_a_machine_is_found_by_its_reference() -> None:
    findings = found([a_machine()], a_listing(1))
    assert findings == Findings(((a_machine(), a_sighting(1)),), (), {}, (), 0)


def test_a_lost_answer_is_found_by_its_launch_key() -> None:
    assert found([a_lost_launch()], a_listing(1)).found == ((a_lost_launch(), a_sighting(1)),)


def test_a_list_is_incomplete_while_a_machine_may_exist_where_the_provider_does_not_look() -> None:
    def unlisted(state: MachineState) -> tuple[str, ...]:
        machines = [a_machine(number, state=state, native_region=f"here-{number}") for number in (1, 2, 3)]
        return unlisted_regions(machines, lambda region: region == "here-2")

    for state in MachineState:
        assert unlisted(state) == (("here-1", "here-3") if state in MAY_EXIST else ()), state


def test_a_list_asked_for_before_the_launch_cannot_miss_it() -> None:
    def launched(asked_at: datetime) -> Machine:
        return a_lost_launch(asked_at=asked_at)

    assert not found([launched(START)], []).missed
    assert not found([launched(START + MOMENT)], []).missed
    assert found([launched(START - MOMENT)], []).missed


def test_a_machine_that_nobody_claims_is_an_orphan_and_that_of_another_installation_is_not() -> None:
    foreign = a_sighting(9, launch_key=a_key(9, THEIRS))
    unmarked = a_sighting(10, launch_key="web-1")
    findings = found([], [*a_listing(1), foreign, unmarked])
    assert findings.orphans == tuple(a_listing(1))
    assert findings.foreign == 2


def test_a_name_that_is_only_like_a_launch_key_of_ours_is_foreign() -> None:
    ours = a_key(9)
    for name in (
        f"{ours}-backup",
        f"x{ours}",
        ours.upper(),
        ours[:-1],
        f"{ours}\n",
        ours.replace("sp-", "sp_"),
    ):
        findings = found([], [a_sighting(9, launch_key=name)])
        assert (findings.orphans, findings.foreign) == ((), 1), name


def test_a_second_machine_of_one_launch_key_is_an_orphan() -> None:
    twin = a_sighting(1, provider_ref="ref-twin")
    findings = found([a_lost_launch()], [*a_listing(1), twin])
    assert findings.found == ((a_lost_launch(), a_sighting(1)),)
    assert findings.orphans == (twin,)


def test_the_machine_of_a_closed_record_is_an_orphan() -> None:
    assert found([a_machine(state=S.GONE)], a_listing(1)).orphans == tuple(a_listing(1))


def test_a_reference_that_a_provider_gave_twice_is_claimed_once() -> None:
    # A provider that hands out a reference again: the new machine carries the key of a launch that is looked for.
    old = a_machine(1, state=S.TERMINATING)
    new = a_lost_launch(2)
    listed = a_sighting(1, launch_key=a_key(2))
    for machines in ([old, new], [new, old]):
        claims = [machine.id for machine, sighting in found(machines, [listed]).found if sighting == listed]
        assert len(claims) == 1, "one machine would be written down twice, and the whole listing refused"


def test_a_machine_that_is_listed_twice_is_one_machine() -> None:
    assert found([], [*a_listing(1), *a_listing(1)]).orphans == tuple(a_listing(1))


MACHINES = st.lists(
    st.builds(
        a_machine,
        st.integers(1, 8),
        state=st.sampled_from(S),
        asked_at=st.sampled_from([None, AN_HOUR_BEFORE, START + MOMENT]),
        sighted_at=st.sampled_from([None, AN_HOUR_BEFORE]),
        missed_since=st.sampled_from([None, AN_HOUR_BEFORE]),
        missed_lists=st.integers(0, 3),
        provider_ref=st.none() | st.integers(1, 8).map(a_ref),
    ),
    unique_by=lambda machine: machine.id,
    max_size=8,
).filter(
    # The database keeps the references of open records apart.
    lambda machines: (
        len({one.provider_ref for one in machines if one.provider_ref and one.state in MAY_EXIST})
        == sum(1 for one in machines if one.provider_ref and one.state in MAY_EXIST)
    )
)
LISTINGS = st.lists(
    st.builds(
        lambda ref, number, installation, state: a_sighting(
            number, provider_ref=a_ref(ref), launch_key=a_key(number, installation), state=state
        ),
        st.integers(1, 10),
        st.integers(1, 10),
        st.sampled_from([OURS, OURS, THEIRS]),
        st.sampled_from(ListedState),
    ),
    max_size=10,
)


@given(MACHINES, LISTINGS)
def test_no_machine_is_both_found_and_missed_and_only_open_ones_are_looked_at(
    machines: list[Machine], listing: list[Sighting]
) -> None:
    findings = found(machines, listing)
    seen = [machine.id for machine, _ in findings.found]
    missed = [machine.id for machine in findings.missed]
    assert not set(seen) & set(missed)
    assert len(set(seen)) == len(seen)
    assert len(set(missed)) == len(missed)
    for machine in [*findings.missed, *(machine for machine, _ in findings.found)]:
        assert machine.state in MAY_EXIST


@given(MACHINES, LISTINGS)
def test_every_listed_machine_is_claimed_once_or_an_orphan_or_foreign(
    machines: list[Machine], listing: list[Sighting]
) -> None:
    findings = found(machines, listing)
    claimed = [sighting.provider_ref for _, sighting in findings.found]
    orphans = [sighting.provider_ref for sighting in findings.orphans]
    assert len(set(claimed)) == len(claimed)
    assert len(set(orphans)) == len(orphans)
    assert not set(claimed) & set(orphans)
    listed = {sighting.provider_ref for sighting in listing}
    assert len(claimed) + len(findings.ended) + len(orphans) + findings.foreign == len(listed)


@given(MACHINES, LISTINGS)
def test_every_open_record_that_was_asked_for_in_time_is_found_or_missed(
    machines: list[Machine], listing: list[Sighting]
) -> None:
    findings = found(machines, listing)
    judged = {machine.id for machine, _ in findings.found} | {machine.id for machine in findings.missed}
    for machine in machines:
        if machine.state in MAY_EXIST and machine.asked_at == AN_HOUR_BEFORE:
            assert machine.id in judged


@given(MACHINES, LISTINGS, st.randoms(use_true_random=False))
def test_what_is_found_does_not_depend_on_the_order_of_the_records(
    machines: list[Machine], listing: list[Sighting], random: Random
) -> None:
    shuffled = list(machines)
    random.shuffle(shuffled)
    straight, other = found(machines, listing), found(shuffled, listing)
    assert {(machine.id, sighting.provider_ref) for machine, sighting in straight.found} == {
        (machine.id, sighting.provider_ref) for machine, sighting in other.found
    }


# Oddness.


def odd(missed: int, of: int, *, listing_size: int | None = None, **other: object) -> Odd | None:
    machines = [a_machine(number, **other) for number in range(1, of + 1)]
    findings = found(machines, a_listing(*range(missed + 1, of + 1)))
    return oddness(findings, len(findings.found) if listing_size is None else listing_size)


def test_a_list_that_shows_everything_is_sane() -> None:
    assert odd(0, 3) is None
    assert odd(0, 0) is None


def test_an_empty_list_is_odd_even_for_one_machine() -> None:
    verdict = odd(1, 1)
    assert verdict is not None
    assert verdict.why == "The list is empty and 1 machines should be on it."


def test_a_list_is_odd_when_it_misses_three_and_thirty_percent_or_two_and_half_or_more_than_ten() -> None:
    for missed, of, is_odd in (
        (1, 2, False),
        (1, 3, False),
        (2, 4, False),
        (2, 3, True),
        (3, 5, True),
        (3, 9, True),
        (3, 10, False),
        (10, 100, False),
        (11, 100, True),
    ):
        machines = [a_machine(number, region=f"region-{number}") for number in range(1, of + 1)]
        findings = found(machines, a_listing(*range(missed + 1, of + 1)))
        assert (oddness(findings, of - missed) is not None) is is_odd, (missed, of)


def test_a_list_that_lacks_a_region_is_odd_however_many_machines_are_elsewhere() -> None:
    here = [a_machine(number) for number in range(1, 101)]
    there = [a_machine(number, region="eu-central-1") for number in range(101, 105)]

    def verdict(missed: int) -> Odd | None:
        findings = found([*here, *there], a_listing(*range(1, 105 - missed)))
        return oddness(findings, len(findings.found))

    assert verdict(2) is None
    assert verdict(4) == Odd("The list misses 4 of 4 machines in eu-central-1 that should be on it.", 4)


def test_one_machine_missing_beside_orphans_is_an_absence_and_no_oddness() -> None:
    assert odd(1, 1, listing_size=1) is None


@pytest.mark.parametrize("state", sorted(MAY_EXIST - SHOULD_BE_SIGHTED))
def test_what_has_to_go_or_may_not_exist_is_not_expected(state: MachineState) -> None:
    assert odd(3, 3, state=state) is None


def test_a_machine_that_was_never_sighted_is_not_expected() -> None:
    assert odd(3, 3, sighted_at=None) is None


# Freezing.

ODD = Odd("too short", 3)


def test_an_odd_list_freezes_and_a_sane_one_thaws_at_once() -> None:
    frozen = freeze_after(None, ODD, now=START)
    assert frozen == Freeze(START, 1, "too short", 3)
    assert freeze_after(frozen, None, now=START + MOMENT) is None


def test_a_freeze_keeps_its_beginning_and_counts_its_lists() -> None:
    again = freeze_after(Freeze(START, 1, "too short", 3), Odd("shorter", 4), now=START + MOMENT)
    assert again == Freeze(START, 2, "shorter", 4)


PERSISTENCE = [
    (THAW_LISTS, THAW_AFTER, True),
    (THAW_LISTS, THAW_AFTER - MOMENT, False),
    (THAW_LISTS - 1, THAW_AFTER, False),
    (2, timedelta(days=1), False),
    (1_000, timedelta(0), False),
]


@pytest.mark.parametrize(("lists", "after", "persists"), PERSISTENCE)
def test_odd_lists_are_believed_only_when_they_came_long_enough_and_often_enough(
    lists: int, after: timedelta, persists: bool
) -> None:
    assert Freeze(START, lists, "too short", FEW).believed(START + after, None) is persists
    assert not Freeze(START, lists, "too short", FEW + 1).believed(START + after, None), "those are many"


def test_a_permit_counts_for_the_freeze_that_its_operator_saw_and_for_no_list_that_misses_more() -> None:
    permit = MissingPermit(START, 12)
    for since, missing, believed in (
        (START, 12, True),
        (START, 4, True),
        (START, 13, False),
        (START + MOMENT, 12, False),
    ):
        freeze = Freeze(since, 1, "too short", missing)
        assert freeze.believed(START + MOMENT, permit) is believed, (since, missing)


def test_machines_that_vanished_in_the_last_hour_count_as_missed() -> None:
    """Lists that lose three of ten machines at a time would otherwise never be odd, and end all of them."""
    machines = [a_machine(number, region=f"region-{number}") for number in range(1, 8)]
    findings = found(machines, a_listing(*range(2, 8)))
    assert oddness(findings, 6) is None
    assert oddness(findings, 6, lost=1) is None
    verdict = oddness(findings, 6, lost=3)
    assert verdict is not None
    assert (verdict.missing, Freeze(START, 1, verdict.why, verdict.missing).needs_permit) == (4, True)
    assert (
        verdict.why == "The list misses 4 of 10 machines that should be on it, 3 of them for up to an hour."
    )
    assert oddness(found(machines, a_listing(*range(1, 8))), 7, lost=9) is None, "this list shows all"


# Absence.


def gone(machine: Machine) -> bool:
    return absence_proves_gone(machine, TIMING, START)


MISSING = a_machine(missed_since=START - timedelta(seconds=LAG), missed_lists=MISSED_LISTS_MIN)


def test_a_machine_that_was_sighted_is_gone_when_lists_a_lag_apart_miss_it() -> None:
    assert gone(MISSING)


@pytest.mark.parametrize(
    "other",
    [
        {"missed_since": None},
        {"missed_lists": MISSED_LISTS_MIN - 1},
        {"missed_since": START - timedelta(seconds=LAG) + MOMENT},
        {"asked_at": None},
    ],
)
def test_less_than_that_proves_nothing(other: dict[str, Any]) -> None:
    assert not gone(replace(MISSING, **other))


def test_a_machine_that_was_never_sighted_may_still_be_on_its_way_for_a_whole_boot() -> None:
    whole = timedelta(seconds=LAG + BOOT)
    assert gone(replace(MISSING, sighted_at=None, asked_at=START - whole))
    assert not gone(replace(MISSING, sighted_at=None, asked_at=START - whole + MOMENT))


def test_a_lost_launch_is_looked_for_longer_than_a_list_may_lag() -> None:
    assert look_for(0) > timedelta(0)
    assert look_for(LAG) > timedelta(seconds=2 * LAG)


# What the list means.


def swept(
    machines: list[Machine],
    listing: list[Sighting],
    before: Freeze | None = None,
    refused: Sequence[LateRefusal] = (),
    evidence: Evidence = NO_EVIDENCE,
) -> Swept:
    return sweep(
        machines,
        listing,
        before,
        installation=OURS,
        timing=TIMING,
        asked_at=START,
        refused=refused,
        evidence=evidence,
    )


def an_empty_sweep(**other: Any) -> Swept:
    return replace(Swept((), (), (), (), (), (), (), (), (), (), (), (), 1, 0, None, believed=True), **other)


def test_only_a_booting_machine_that_the_list_lacks_or_fails_is_worth_asking_for_refused_launches() -> None:
    booting = a_machine(1, state=MachineState.BOOTING)
    assert may_be_refused([booting], a_listing(2))
    assert not may_be_refused([booting], a_listing(1))
    for state in ListedState:
        failed = state in NOT_RUNNING | {ListedState.SOLD_OUT}
        assert may_be_refused([booting], [a_sighting(1, state=state)]) is failed, state
    assert not may_be_refused([a_machine(1), a_lost_launch(2)], [])


def test_a_steady_machine_means_nothing_and_costs_no_write() -> None:
    assert swept([a_machine()], a_listing(1)) == an_empty_sweep()


def test_a_lost_launch_that_is_listed_is_found_and_has_a_whole_boot_before_it() -> None:
    result = swept([a_lost_launch()], a_listing(1))
    (move,) = result.moves
    assert (move.moved.event, move.provider_ref, move.step) == (E.FOUND, a_ref(1), Step.LAUNCHED)
    assert move.deadline_at == START + timedelta(seconds=BOOT)
    assert result == an_empty_sweep(moves=(move,), sighted=(a_lost_launch().id,))


def test_a_mapped_ssh_port_that_changes_on_the_same_address_is_noticed() -> None:
    machine = a_machine(ssh_port=2222)
    for port, expected in ((2222, ()), (2223, (Readdressing(machine.id, "10.0.0.1", 2223),))):
        listed = a_sighting(1, address="10.0.0.1", ssh_port=port)
        assert swept([machine], [listed]).readdressed == expected, port


def test_a_machine_that_runs_and_shows_its_address_is_to_be_set_up_by_a_deadline() -> None:
    booting = a_machine(state=S.BOOTING, address=None)
    listed = a_sighting(1, address="192.0.2.7", ssh_port=2222, native_status="active")
    (move,) = swept([booting], [listed]).moves
    assert (move.seen, move.moved.event, move.step) == (booting.generation, E.REACHABLE, Step.BOOTED)
    assert (move.address, move.ssh_port) == ("192.0.2.7", 2222)
    assert swept([booting], [listed]).reworded == (Reworded(booting.id, "active"),)
    assert move.deadline_at == START + SETUP_MAX
    assert not swept([booting], [replace(listed, address=None)]).moves


def test_a_terminating_machine_that_is_listed_as_gone_is_closed_with_the_providers_word() -> None:
    listed = a_sighting(1, state=ListedState.GONE, native_status="terminated")
    (move,) = swept([a_machine(state=S.TERMINATING)], [listed]).moves
    assert move.moved.after is S.GONE
    assert move.gone_evidence == "the provider lists it as 'terminated'"


def test_a_terminating_machine_whose_launch_answer_was_lost_is_adopted() -> None:
    lost = a_machine(state=S.TERMINATING, provider_ref=None)
    result = swept([lost], a_listing(1))
    assert result.adoptions == (Adoption(lost.id, a_ref(1)),)
    assert not result.moves
    assert not result.orphans


@pytest.mark.parametrize("state", sorted(SHOULD_BE_SIGHTED))
def test_a_wanted_machine_that_is_listed_as_gone_has_vanished_and_is_no_longer_sighted(
    state: MachineState,
) -> None:
    listed = a_sighting(1, state=ListedState.GONE, native_status="terminated")
    first = swept([a_machine(state=state)], [listed])
    assert (first.losses, first.missed, first.sighted) == ((), (a_machine().id,), ()), "one word is no proof"
    assert (first.orphans, first.freeze) == ((), None)
    machine = replace(MISSING, state=state)
    living = Evidence(reported_at={machine.id: START})
    assert swept([machine], [listed], evidence=living).losses == (), "its agent reported"
    assert swept([replace(machine, sighted_at=None)], [listed]).losses, "it need not boot first"
    result = swept([machine], [listed])
    (loss,) = result.losses
    assert loss.id == machine.id
    assert (loss.failure.event, loss.failure.reason) == (E.VANISHED, FailReason.VANISHED)
    assert loss.failure.why == "the provider lists it as ended"
    assert (loss.failure.provider_words or "").startswith(
        "the provider lists it as 'terminated'; missing from"
    )
    assert (result.missed, result.sighted) == ((machine.id,), ()), "this list is no evidence that it ran"


def test_a_machine_is_evicted_only_when_its_provider_says_so_of_a_machine_that_it_lists_as_ended() -> None:
    taken = Eviction(EvictionState.TAKEN, START, "no-capacity")
    announced = replace(taken, state=EvictionState.ANNOUNCED)

    def reason(machine: Machine, eviction: Eviction | None) -> FailReason:
        gone = a_sighting(1, state=ListedState.GONE, eviction=eviction)
        (loss,) = swept([machine], [gone]).losses
        assert loss.failure.event is E.VANISHED
        return loss.failure.reason

    noted = replace(MISSING, eviction_announced_at=START)
    assert {reason(a_machine(state=state), taken) for state in SHOULD_BE_SIGHTED} == {FailReason.EVICTED}
    for machine in (MISSING, noted):
        assert [reason(machine, said) for said in (announced, None)] == [FailReason.VANISHED] * 2
    assert not swept([a_machine()], [a_sighting(1, eviction=taken)]).losses, (
        "the list says that it still runs"
    )
    ending = swept([a_machine(state=S.TERMINATING)], [a_sighting(1, state=ListedState.GONE, eviction=taken)])
    assert (len(ending.moves), ending.losses, ending.notices) == (1, (), ())


@pytest.mark.parametrize("listed", [ListedState.FAILED, ListedState.STOPPED])
def test_a_machine_that_its_provider_calls_failed_is_given_up_unless_its_customer_is_on_it(
    listed: ListedState,
) -> None:
    for state in (S.BOOTING, S.BOOTSTRAPPING, S.VERIFIED):
        (loss,) = swept([a_machine(state=state)], [a_sighting(1, state=listed)]).losses
        assert (loss.failure.event, loss.failure.reason) == (E.FAILED, FailReason.PROVIDER_REPORTED_FAILURE)
    assert swept([a_machine(state=S.TERMINATING)], [a_sighting(1, state=listed)]) == an_empty_sweep()


def test_a_verified_machine_that_is_listed_as_failed_or_stopped_is_down_unless_somebody_asked_for_that() -> (
    None
):
    machine = a_machine()
    for state in ListedState:
        down = swept([machine], [a_sighting(1, state=state)]).down
        cause = CAUSES.get(state)
        assert down == ((WentDown(machine.id, "running", cause),) if cause else ()), state
        asked = Evidence(powers={machine.id: PowerState.STOPPING})
        assert not swept([machine], [a_sighting(1, state=state)], evidence=asked).down, state
        was_down = replace(machine, down_since=AN_HOUR_BEFORE + MOMENT, down_cause=Cause.PROVIDER)
        for evidence in (NO_EVIDENCE, asked):
            now = swept([was_down], [a_sighting(1, state=state)], evidence=evidence)
            assert now.up == ((CameUp(machine.id),) if state is ListedState.RUNNING else ()), state
            assert not now.down, state


def test_a_machine_that_was_listed_as_stopped_and_then_as_failed_counts_as_failed_from_then_on() -> None:
    stopped = a_machine(down_since=AN_HOUR_BEFORE + MOMENT, down_cause=Cause.CUSTOMER)
    assert not swept([stopped], [a_sighting(1, state=ListedState.STOPPED)]).down
    for state in (ListedState.FAILED, ListedState.ENDING, ListedState.STOPPED_BY_PROVIDER):
        (worse,) = swept([stopped], [a_sighting(1, state=state)]).down
        assert worse.cause is Cause.PROVIDER, state
    failed = replace(stopped, down_cause=Cause.PROVIDER)
    for state in CAUSES:
        assert not swept([failed], [a_sighting(1, state=state)]).down, "what was admitted once, stays so"


def test_a_machine_that_is_off_goes_down_when_it_is_listed_as_failed_until_it_is_where_its_customer_left_it() -> (
    None
):
    machine, off = a_machine(), Evidence(powers={a_machine().id: PowerState.OFF})
    for state in ListedState:
        cause = None if state in OFF else CAUSES.get(state)
        down = swept([machine], [a_sighting(1, state=state)], evidence=off).down
        assert down == ((WentDown(machine.id, "running", cause),) if cause else ()), state
        was_down = replace(machine, down_since=START - DOWN_MAX, down_cause=Cause.PROVIDER)
        now = swept([was_down], [a_sighting(1, state=state)], evidence=off)
        ends = state in (ListedState.RUNNING, *OFF)
        assert now.up == ((CameUp(machine.id),) if ends else ()), state
        assert not any(loss.failure.overdue for loss in now.losses), "no agent could speak for it"


def test_a_machine_that_goes_down_again_has_to_be_listed_as_running_for_a_while_and_without_a_break() -> None:
    running, failed = a_sighting(1), a_sighting(1, state=ListedState.FAILED)
    first = a_machine(down_since=START - MOMENT, down_cause=Cause.PROVIDER)
    (up,) = swept([first], [running]).up
    assert up == CameUp(first.id), "the first time, one list is enough"
    long_ago = replace(first, back_at=START - MOMENT - FLAPS_WITHIN)
    assert swept([long_ago], [running]).up == (up,)

    again = replace(first, back_at=START - MOMENT - FLAPS_WITHIN + MOMENT)
    back = swept([again], [running])
    assert (back.up, back.wavered) == ((), (Wavered(first.id, back=True),))
    for shown in (timedelta(), SETTLED_AFTER - MOMENT):
        waits = swept([replace(again, back_since=START - shown)], [running])
        assert (waits.up, waits.wavered) == ((), ()), "a list that says nothing new costs no write"
    settled = replace(again, back_since=START - SETTLED_AFTER)
    assert swept([settled], [running]).up == (CameUp(first.id, START - SETTLED_AFTER),)
    for machine in (settled, replace(again, back_since=START)):
        gone = swept([machine], [failed])
        assert (gone.up, gone.wavered, gone.down) == ((), (Wavered(first.id, back=False),), ())


def test_a_machine_that_is_listed_as_running_in_between_is_not_given_up_after_an_hour() -> None:
    failed = a_sighting(1, state=ListedState.FAILED)
    down = a_machine(down_since=START - 3 * DOWN_MAX, down_cause=Cause.PROVIDER)

    def given_up(machine: Machine) -> int:
        return sum(loss.failure.overdue for loss in swept([machine], [failed]).losses)

    assert given_up(down) == 1
    assert given_up(replace(down, back_at=START - DOWN_MAX)) == 1
    assert given_up(replace(down, back_at=START - DOWN_MAX + MOMENT)) == 0
    assert given_up(replace(down, back_at=START - DOWN_MAX, back_since=START - DOWN_MAX)) == 0
    assert given_up(replace(down, back_at=down.down_since)) == 1


def test_a_stopped_machine_is_kept_for_whoever_can_start_it() -> None:
    assert can_be_started(LeaseKind.MACHINE, {PowerAction.START})
    assert not can_be_started(LeaseKind.MACHINE, {PowerAction.REBOOT, PowerAction.STOP})
    assert not can_be_started(LeaseKind.NODE, set(PowerAction)), "no request for one node is taken"


def test_what_is_down_for_an_hour_is_given_up_unless_it_is_many_or_its_agent_reports() -> None:
    def given_up(count: int, evidence: Evidence = NO_EVIDENCE, **other: Any) -> int:
        facts = {"down_since": START - DOWN_MAX} | other
        machines = [a_machine(number, **facts) for number in range(1, count + 1)]
        listed = [a_sighting(machine, state=ListedState.FAILED) for machine in range(1, count + 1)]
        losses = swept(machines, listed, evidence=evidence).losses
        return sum(loss.failure.overdue for loss in losses)

    assert [given_up(count) for count in (1, FEW, FEW + 1)] == [1, FEW, 0]
    assert given_up(1, down_since=START - DOWN_MAX + MOMENT) == 0
    assert given_up(1, Evidence(lost=FEW)) == 0, "as many were lost within an hour"
    assert given_up(1, Evidence(reported_at={a_machine(1).id: START})) == 0


def test_a_machine_that_turns_out_to_be_sold_out_is_given_up_for_lack_of_capacity_at_once() -> None:
    listed = a_sighting(1, state=ListedState.SOLD_OUT, native_status="no_capacity")
    (loss,) = swept([a_machine(state=S.BOOTING)], [listed]).losses
    assert (loss.failure.event, loss.failure.reason) == (E.FAILED, FailReason.NO_CAPACITY)
    assert loss.failure.why == "the provider accepted the order and then had no capacity left"


def test_a_booting_machine_whose_launch_is_refused_late_is_given_up_without_being_listed() -> None:
    booting = a_machine(state=S.BOOTING)
    assert booting.provider_ref is not None
    for state, reason in (
        (ListedState.SOLD_OUT, FailReason.NO_CAPACITY),
        (ListedState.FAILED, FailReason.PROVIDER_REPORTED_FAILURE),
    ):
        refusal = LateRefusal(booting.provider_ref, state, "out_of_stock")
        (loss,) = swept([booting], [], refused=[refusal]).losses
        assert (loss.failure.event, loss.failure.reason) == (E.FAILED, reason)
        assert loss.failure.provider_words == "the provider lists it as 'out_of_stock'"


def test_a_late_refusal_says_nothing_about_a_machine_that_is_listed_or_known_to_be_reachable() -> None:
    for machine in (a_machine(state=S.VERIFIED), a_machine(state=S.TERMINATING)):
        assert machine.provider_ref is not None
        refusal = LateRefusal(machine.provider_ref, ListedState.SOLD_OUT, "out_of_stock")
        assert swept([machine], [], refused=[refusal]) == swept([machine], [])
    booting = a_machine(state=S.BOOTING)
    assert booting.provider_ref is not None
    refusal = LateRefusal(booting.provider_ref, ListedState.SOLD_OUT, "out_of_stock")
    listing = [a_sighting(1, state=ListedState.PROVISIONING)]
    assert swept([booting], listing, refused=[refusal]).losses == ()


def test_a_late_refusal_says_why_a_booting_machine_is_listed_as_stopped_or_failed() -> None:
    booting = a_machine(state=S.BOOTING)
    assert booting.provider_ref is not None
    refusal = LateRefusal(booting.provider_ref, ListedState.SOLD_OUT, "out_of_stock")
    for state in (ListedState.STOPPED, ListedState.FAILED):
        (loss,) = swept([booting], [a_sighting(1, state=state)], refused=[refusal]).losses
        assert (loss.failure.event, loss.failure.reason) == (E.FAILED, FailReason.NO_CAPACITY), state


def test_a_machine_that_is_listed_again_is_sighted_and_one_that_always_was_is_not_written() -> None:
    back = a_machine(1, missed_since=AN_HOUR_BEFORE, missed_lists=1)
    assert swept([back, a_machine(2)], a_listing(1, 2)).sighted == (back.id,)


def test_one_absence_is_counted_and_proves_nothing() -> None:
    result = swept([a_machine(1), a_machine(2)], a_listing(2))
    assert result == an_empty_sweep(missed=(a_machine(1).id,))


def test_an_absence_that_lasts_ends_what_was_terminated_and_loses_what_was_wanted() -> None:
    terminating = replace(MISSING, state=S.TERMINATING)
    evidence = "missing from 3 complete lists, the first at 2026-11-20T11:59:30+00:00"
    (move,) = swept([terminating, a_machine(2)], a_listing(2)).moves
    assert (move.moved.event, move.gone_evidence) == (E.CONFIRMED_GONE, evidence)
    (loss,) = swept([MISSING, a_machine(2)], a_listing(2)).losses
    assert (loss.failure.event, loss.failure.why) == (E.VANISHED, evidence)


def test_a_lost_launch_that_no_list_shows_stays_open_and_is_looked_for() -> None:
    lost = a_lost_launch(missed_since=AN_HOUR_BEFORE, missed_lists=9)
    assert swept([lost], []) == an_empty_sweep(size=0, missed=(lost.id,))


# Frozen accounts.


def many_missing(count: int = 3) -> list[Machine]:
    return [
        replace(MISSING, id=a_machine(number).id, provider_ref=a_ref(number))
        for number in range(1, count + 1)
    ]


def test_odd_lists_that_miss_many_machines_are_never_believed_without_a_permit() -> None:
    before = Freeze(START - timedelta(days=3), 99_999, "too short", FEW + 1)
    machines = many_missing(FEW + 1)
    assert (swept(machines, [], before).losses, swept(machines, [], before).missed) == ((), ())
    for since, covers, ended in (
        (before.since, FEW + 1, FEW + 1),
        (before.since, FEW, 0),
        (before.since + MOMENT, FEW + 1, 0),
    ):
        evidence = Evidence(permit=MissingPermit(since, covers))
        assert len(swept(machines, [], before, evidence=evidence).losses) == ended, (since, covers)


def test_what_reported_in_the_last_five_minutes_is_not_gone_whatever_lists_and_permits_say() -> None:
    living, silent, proven, dying = many_missing(4)
    lately, long_ago = START - SILENT_AFTER + MOMENT, START - SILENT_AFTER
    machines = [
        living,
        silent,
        replace(proven, last_passed_at=lately),
        replace(dying, state=S.TERMINATING),
    ]
    evidence = Evidence(
        reported_at={living.id: lately, silent.id: long_ago, dying.id: lately},
        permit=MissingPermit(AN_HOUR_BEFORE, 4),
    )
    result = swept(machines, [], Freeze(AN_HOUR_BEFORE, 9, "odd", 4), evidence=evidence)
    assert [loss.id for loss in result.losses] == [silent.id]
    assert [move.id for move in result.moves] == [dying.id], "what has to go may report until it is gone"
    assert {living.id, proven.id} <= set(result.missed), "it is not billed beyond the lists"
    assert result.freeze is not None
    assert result.freeze.why.endswith("should be on it. 2 of them reported in the last five minutes.")
    (alone,) = many_missing(1)
    for heard, kept in ((lately, True), (long_ago, False)):
        evidence = Evidence(reported_at={alone.id: heard})
        result = swept([alone, a_machine(2)], a_listing(2), evidence=evidence)
        assert (result.losses == (), result.freeze) == (kept, None), heard


def test_only_machines_that_were_listed_and_are_wanted_are_looked_for_besides_the_list() -> None:
    machines = [a_machine(1), a_machine(2), a_machine(3, state=S.TERMINATING), a_lost_launch(4)]
    assert expected_and_missed(machines, a_listing(1)) == [machines[1].id]


def test_an_odd_list_freezes_the_account_and_no_absence_on_it_is_believed() -> None:
    result = swept(many_missing(), a_listing(9))
    assert result.freeze == Freeze(START, 1, "The list misses 3 of 3 machines that should be on it.", 3)
    assert (result.missed, result.losses, result.moves) == ((), (), ())
    assert result.orphans == (a_sighting(9),)


def test_what_a_frozen_account_does_list_is_believed() -> None:
    machines = [*many_missing(), a_lost_launch(4), a_machine(5, state=S.TERMINATING)]
    listing = [a_sighting(4), a_sighting(5, state=ListedState.GONE)]
    result = swept(machines, listing, Freeze(AN_HOUR_BEFORE, 1, "too short", 3))
    assert result.freeze is not None
    assert {move.moved.event for move in result.moves} == {E.FOUND, E.CONFIRMED_GONE}
    assert (result.sighted, result.missed) == ((machines[3].id,), (machines[4].id,))


def test_odd_lists_that_persist_are_believed_and_the_freeze_stays_until_they_look_sane() -> None:
    before = Freeze(START - THAW_AFTER, THAW_LISTS - 1, "too short", 3)
    result = swept(many_missing(), a_listing(9), before)
    assert [loss.failure.event for loss in result.losses] == [E.VANISHED] * 3
    assert len(result.missed) == 3
    assert result.freeze is not None
    assert (result.freeze.since, result.freeze.lists) == (before.since, THAW_LISTS)
    # One list earlier, or one moment, and nothing is believed.
    for early in (replace(before, lists=THAW_LISTS - 2), replace(before, since=before.since + MOMENT)):
        assert not swept(many_missing(), a_listing(9), early).losses
    assert swept([a_machine()], a_listing(1), result.freeze) == an_empty_sweep()


def test_an_orphan_that_ended_and_is_still_listed_is_history() -> None:
    ended = a_sighting(1, state=ListedState.GONE)
    assert swept([], [ended, a_sighting(2)]).orphans == (a_sighting(2),)


@given(
    MACHINES,
    LISTINGS,
    st.sampled_from([None, Freeze(AN_HOUR_BEFORE, 1, "odd", 3), Freeze(START, 9, "odd", 3)]),
)
def test_every_conclusion_is_about_one_open_machine_and_nothing_is_concluded_twice(
    machines: list[Machine], listing: list[Sighting], before: Freeze | None
) -> None:
    result = swept(machines, listing, before)
    open_ids = {machine.id for machine in machines if machine.state in MAY_EXIST}
    concluded = [move.id for move in result.moves] + [loss.id for loss in result.losses]
    assert len(set(concluded)) == len(concluded)
    assert result.written | {loss.id for loss in result.losses} <= open_ids
    assert result.written >= {*(move.id for move in result.moves), *result.sighted, *result.missed}
    assert not set(result.sighted) & set(result.missed)


@given(MACHINES, LISTINGS)
def test_a_frozen_account_concludes_nothing_from_an_absence(
    machines: list[Machine], listing: list[Sighting]
) -> None:
    result = swept(machines, listing, Freeze(START, 1, "odd", 3))
    if result.freeze is None:
        return
    listed = {(sighting.provider_ref, sighting.launch_key) for sighting in listing}
    refs, keys = {ref for ref, _ in listed}, {key for _, key in listed}
    of = {machine.id: machine for machine in machines}
    for concluded in (*result.missed, *(loss.id for loss in result.losses)):
        assert of[concluded].provider_ref in refs or of[concluded].launch_key in keys


def test_the_size_of_a_list_counts_the_live_machines_of_this_installation() -> None:
    ended = a_sighting(2, state=ListedState.GONE)
    foreign = [a_sighting(number, launch_key=a_key(number, THEIRS)) for number in range(3, 40)]
    assert swept([a_machine()], [a_sighting(1), ended, *foreign, a_sighting(90)]).size == 2
