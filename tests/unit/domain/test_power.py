"""The power of a machine: what follows from each look, over every state, listing and boot id."""

import itertools
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from control_plane.domain.ids import ClaimId, LaunchKey, LeaseId, MachineId, OrganizationId, ProviderRef
from control_plane.domain.listed_state import ListedState
from control_plane.domain.power import (
    ALREADY,
    ASK_AGAIN_AFTER,
    CHANGE_MAX,
    CHANGING,
    LISTS_FAIL_AFTER,
    NEXT,
    REQUESTS_MAX,
    Ask,
    Boot,
    Look,
    PowerChange,
    PowerEvent,
    PowerState,
    Settle,
    after_asking,
    before_asking,
    found_on,
    is_worth_a_visit,
    refused,
    step,
    too_many,
)
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.transitions import Moved
from tests.support.clock import START

S, E, A = PowerState, PowerEvent, PowerAction
SECOND = timedelta(seconds=1)
BEFORE, AFTER = Boot("before", START - 3_600 * SECOND), Boot("after", START + 15 * SECOND)


def a_change(state: PowerState, **other: object) -> PowerChange:
    """A change that was asked for at START, and of the provider ten seconds later, which accepted it."""
    made = PowerChange(
        claim_id=ClaimId(UUID(int=1)),
        organization_id=OrganizationId(UUID(int=2)),
        lease_id=LeaseId(UUID(int=3)),
        machine_id=MachineId(UUID(int=4)),
        state=state,
        generation=2,
        stopped=state is S.STARTING,
        tries=0,
        wanted_at=START,
        asked_at=START + 10 * SECOND,
        accepted=True,
        boot_id=BEFORE.id if state is S.REBOOTING else None,
        listed=None,
        listed_from=None,
        listed_at=None,
        launch_key=LaunchKey("sp-1"),
        provider_ref=ProviderRef("ref"),
        address="192.0.2.1",
        ssh_port=22,
        host_key="ssh-ed25519 A",
    )
    return replace(made, **other)  # type: ignore[arg-type]  # The fields are those of a change.


def listed(change: PowerChange, state: ListedState, seconds: float = 20) -> PowerChange:
    """The same, with a first list from then that shows it so."""
    at = START + seconds * SECOND
    return replace(change, listed=state, listed_from=at, listed_at=at)


def test_every_open_change_ends_and_whatever_can_be_asked_for_has_an_answer() -> None:
    for state in CHANGING:
        ends = {NEXT[state, event] for event in E if (state, event) in NEXT}
        assert ends
        assert ends <= {S.ON, S.OFF}
    for state, action in itertools.product(S, A):
        moved = step(state, E(action.value))
        assert not (isinstance(moved, Moved) and (state, action) in ALREADY)
        if isinstance(moved, Moved):
            assert CHANGING[moved.after] is action


def test_each_decision_can_be_applied_in_each_state() -> None:
    for state, word, boot, seconds, stopped in itertools.product(
        CHANGING, (None, *ListedState), (None, BEFORE, AFTER), (20, 200, 700), (False, True)
    ):
        made = a_change(state, stopped=stopped and state is S.STARTING)
        change = made if word is None else listed(made, word, seconds)
        for accepted, now in itertools.product((True, False), (START + seconds * SECOND,)):
            decision = after_asking(replace(change, accepted=accepted), boot, now)
            if isinstance(decision, Settle):
                assert isinstance(step(state, decision.event), Moved), (state, word, boot)
                assert (decision.why is None) is (decision.event is E.DONE)
                _keeps_the_price_true(change, decision)
        for settled in (refused(change, "no"), before_asking(change, START + CHANGE_MAX)):
            assert isinstance(settled, Settle)
            assert isinstance(step(state, settled.event), Moved)
            _keeps_the_price_true(change, settled)


def _keeps_the_price_true(change: PowerChange, settled: Settle) -> None:
    """The price changes with the state alone, and never without a list that shows what it changes to."""
    off = NEXT[change.state, settled.event] is S.OFF
    switches = off is not change.stopped
    assert (settled.switches_at is not None) is switches, (change, settled)
    if switches:
        assert settled.switches_at == change.listed_from
        assert change.listed is (ListedState.STOPPED if off else ListedState.RUNNING), (change, settled)


def test_a_reboot_is_done_when_the_machine_answers_from_another_boot() -> None:
    change, now = a_change(S.REBOOTING), START + 30 * SECOND
    assert after_asking(change, AFTER, now) == Settle(E.DONE)
    assert after_asking(change, BEFORE, now) == Look()
    assert after_asking(change, None, now) == Look()


def test_a_machine_that_did_not_answer_before_its_reboot_must_have_booted_after_it() -> None:
    change, late = a_change(S.REBOOTING, boot_id=None), START + 10 * SECOND + ASK_AGAIN_AFTER
    assert after_asking(change, AFTER, START + 30 * SECOND) == Settle(E.DONE)
    assert after_asking(change, BEFORE, START + 30 * SECOND) == Look(), (
        "it runs since an hour before the request"
    )
    assert after_asking(replace(change, accepted=False), BEFORE, late) == Ask()
    overdue = after_asking(listed(change, ListedState.RUNNING, 600), BEFORE, START + CHANGE_MAX)
    assert overdue == Settle(E.FAILED, "it was not rebooted within ten minutes")


def test_a_reboot_is_asked_for_again_only_when_the_machine_says_that_there_was_none() -> None:
    lost = a_change(S.REBOOTING, accepted=False)
    assert lost.asked_at is not None
    late = lost.asked_at + ASK_AGAIN_AFTER
    assert after_asking(lost, BEFORE, late) == Ask()
    assert after_asking(lost, BEFORE, late - SECOND) == Look()
    assert after_asking(lost, None, late) == Look(), "it may be booting"
    assert after_asking(replace(lost, accepted=True), BEFORE, late) == Look(), "it was accepted"


@pytest.mark.parametrize(
    ("state", "same", "done"),
    [
        (S.STOPPING, ListedState.RUNNING, ListedState.STOPPED),
        (S.STARTING, ListedState.STOPPED, ListedState.RUNNING),
    ],
)
def test_stops_and_starts_follow_lists_from_after_the_request(
    state: PowerState, same: ListedState, done: ListedState
) -> None:
    change = a_change(state, accepted=False)
    late = START + 10 * SECOND + ASK_AGAIN_AFTER
    assert after_asking(listed(change, done, 5), AFTER, late) == Look(), "that list is older than the request"
    shown = START + 20 * SECOND
    assert after_asking(listed(change, done), AFTER, late) == Settle(E.DONE, switches_at=shown)
    assert after_asking(listed(change, same), None, late) == Ask()
    assert after_asking(listed(change, ListedState.UNKNOWN), None, late) == Look()
    assert after_asking(replace(listed(change, same), accepted=True), None, late) == Look()


def test_a_started_machine_has_to_answer() -> None:
    change = listed(a_change(S.STARTING), ListedState.RUNNING)
    assert after_asking(change, None, START + 30 * SECOND) == Look()


def test_a_refusal_says_nothing_about_where_the_machine_is() -> None:
    """A start is allowed while it is on: it may have stopped by itself."""
    for stopped, word in itertools.product((False, True), (None, *ListedState)):
        change = a_change(S.STARTING, stopped=stopped)
        settled = refused(change if word is None else listed(change, word), "no")
        off = (
            stopped if word not in (ListedState.RUNNING, ListedState.STOPPED) else word is ListedState.STOPPED
        )
        assert NEXT[S.STARTING, settled.event] is (S.OFF if off else S.ON), (stopped, word)
        given_up = before_asking(replace(change, asked_at=None, accepted=False), START + CHANGE_MAX)
        assert isinstance(given_up, Settle)
        assert NEXT[S.STARTING, given_up.event] is (S.OFF if stopped else S.ON)
    shown = START + 20 * SECOND
    seen = refused(listed(a_change(S.STOPPING), ListedState.STOPPED), "no")
    assert seen == Settle(E.DONE, switches_at=shown), "it is stopped, whoever stopped it"


def test_a_machine_that_is_listed_as_running_while_it_is_off_is_on_since_that_list() -> None:
    change = listed(a_change(S.OFF, stopped=True), ListedState.RUNNING)
    assert found_on(change) == Settle(E.FOUND_ON, switches_at=START + 20 * SECOND)


def test_when_the_lists_fail_ten_minutes_are_not_exceeded_by_much_and_only_a_stop_stays_open() -> None:
    over = START + CHANGE_MAX + LISTS_FAIL_AFTER
    for state in CHANGING:
        assert after_asking(a_change(state), None, over - SECOND) == Look()
    shown = "the provider's lists cannot be read"
    stop = after_asking(a_change(S.STOPPING), None, over)
    assert stop == Look(f"{shown}, so nobody knows whether it stopped")
    reboot = after_asking(a_change(S.REBOOTING), None, over)
    assert reboot == Settle(E.UNREACHABLE, f"it did not answer within ten minutes; {shown}")
    for stopped, event in ((True, E.FAILED), (False, E.STAYS_ON)):
        start = after_asking(a_change(S.STARTING, stopped=stopped), None, over)
        assert start == Settle(event, f"{shown} after ten minutes")


def test_power_is_changed_twenty_times_an_hour_at_most() -> None:
    assert too_many(REQUESTS_MAX - 1) is None
    refusal = too_many(REQUESTS_MAX)
    assert refusal is not None
    assert refusal.code is RefusalCode.POWER_REQUESTS_TOO_MANY


def test_after_ten_minutes_it_is_said_why_and_only_with_a_list_from_then() -> None:
    deadline = START + CHANGE_MAX
    for state in CHANGING:
        assert after_asking(a_change(state), None, deadline) == Look()
        assert after_asking(listed(a_change(state), ListedState.UNKNOWN, 599), None, deadline) == Look()
    ends = {
        (state, word, boot): after_asking(listed(a_change(state), word, 600), boot, deadline)
        for state, word, boot in itertools.product(
            CHANGING, (ListedState.RUNNING, ListedState.STOPPED), (None, BEFORE)
        )
    }
    events = {key: end.event for key, end in ends.items() if isinstance(end, Settle)}
    assert events == {
        (S.REBOOTING, ListedState.RUNNING, None): E.UNREACHABLE,
        (S.REBOOTING, ListedState.RUNNING, BEFORE): E.FAILED,
        (S.REBOOTING, ListedState.STOPPED, None): E.UNREACHABLE,
        (S.REBOOTING, ListedState.STOPPED, BEFORE): E.FAILED,
        (S.STOPPING, ListedState.RUNNING, None): E.FAILED,
        (S.STOPPING, ListedState.RUNNING, BEFORE): E.FAILED,
        (S.STOPPING, ListedState.STOPPED, None): E.DONE,
        (S.STOPPING, ListedState.STOPPED, BEFORE): E.DONE,
        (S.STARTING, ListedState.RUNNING, None): E.UNREACHABLE,
        (S.STARTING, ListedState.RUNNING, BEFORE): E.DONE,
        (S.STARTING, ListedState.STOPPED, None): E.FAILED,
        (S.STARTING, ListedState.STOPPED, BEFORE): E.FAILED,
    }


def test_a_request_that_nobody_took_is_made_until_ten_minutes_are_over() -> None:
    for state in CHANGING:
        change = a_change(state, asked_at=None, accepted=False)
        assert before_asking(change, START + CHANGE_MAX - SECOND) == Ask()
        assert isinstance(before_asking(change, START + CHANGE_MAX), Settle)


def test_only_machines_that_may_be_up_are_visited() -> None:
    assert is_worth_a_visit(a_change(S.REBOOTING))
    assert not is_worth_a_visit(a_change(S.STOPPING))
    assert not is_worth_a_visit(a_change(S.STARTING))
    assert is_worth_a_visit(listed(a_change(S.STARTING), ListedState.RUNNING))
