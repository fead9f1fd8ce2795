"""The power of a machine: what follows from each look, over every state, listing and boot id."""

import itertools
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from control_plane.domain.ids import ClaimId, LaunchKey, LeaseId, MachineId, OrganizationId, ProviderRef
from control_plane.domain.power import (
    ALREADY,
    ASK_AGAIN_AFTER,
    CHANGE_MAX,
    CHANGING,
    NEXT,
    Ask,
    Look,
    PowerChange,
    PowerEvent,
    PowerState,
    Settle,
    after_asking,
    before_asking,
    is_worth_a_visit,
    refused,
    step,
)
from control_plane.domain.power_action import PowerAction
from control_plane.domain.sighting import ListedState
from control_plane.domain.transitions import Moved
from tests.support.clock import START

S, E, A = PowerState, PowerEvent, PowerAction
BEFORE, AFTER = "before", "after"
SECOND = timedelta(seconds=1)


def a_change(state: PowerState, **other: object) -> PowerChange:
    """A change that was asked for at START, and of the provider ten seconds later, which accepted it."""
    made = PowerChange(
        claim_id=ClaimId(UUID(int=1)),
        organization_id=OrganizationId(UUID(int=2)),
        lease_id=LeaseId(UUID(int=3)),
        machine_id=MachineId(UUID(int=4)),
        state=state,
        generation=2,
        tries=0,
        wanted_at=START,
        asked_at=START + 10 * SECOND,
        accepted=True,
        boot_id=BEFORE if state is S.REBOOTING else None,
        listed=None,
        listed_at=None,
        launch_key=LaunchKey("sp-1"),
        provider_ref=ProviderRef("ref"),
        address="192.0.2.1",
        ssh_port=22,
        host_key="ssh-ed25519 A",
    )
    return replace(made, **other)  # type: ignore[arg-type]  # The fields are those of a change.


def listed(change: PowerChange, state: ListedState, seconds: float = 20) -> PowerChange:
    return replace(change, listed=state, listed_at=START + seconds * SECOND)


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
    for state, word, boot, seconds in itertools.product(
        CHANGING, (None, *ListedState), (None, BEFORE, AFTER), (20, 200, 700)
    ):
        change = a_change(state) if word is None else listed(a_change(state), word, seconds)
        for accepted, now in itertools.product((True, False), (START + seconds * SECOND,)):
            decision = after_asking(replace(change, accepted=accepted), boot, now)
            if isinstance(decision, Settle):
                assert isinstance(step(state, decision.event), Moved), (state, word, boot)
                assert (decision.why is None) is (decision.event is E.DONE)
        for settled in (refused(change, "no"), before_asking(change, START + CHANGE_MAX)):
            assert isinstance(settled, Settle)
            assert isinstance(step(state, settled.event), Moved)


def test_a_reboot_is_done_when_the_machine_answers_from_another_boot() -> None:
    change, now = a_change(S.REBOOTING), START + 30 * SECOND
    assert after_asking(change, AFTER, now) == Settle(E.DONE)
    assert after_asking(change, BEFORE, now) == Look()
    assert after_asking(change, None, now) == Look()
    assert after_asking(replace(change, boot_id=None), AFTER, now) == Settle(E.DONE)


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
    assert after_asking(listed(change, done), AFTER, late) == Settle(E.DONE)
    assert after_asking(listed(change, same), None, late) == Ask()
    assert after_asking(listed(change, ListedState.UNKNOWN), None, late) == Look()
    assert after_asking(replace(listed(change, same), accepted=True), None, late) == Look()


def test_a_started_machine_has_to_answer() -> None:
    change = listed(a_change(S.STARTING), ListedState.RUNNING)
    assert after_asking(change, None, START + 30 * SECOND) == Look()


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
