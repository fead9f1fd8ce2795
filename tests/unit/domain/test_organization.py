"""The state machine of organizations, held to its laws over every pair of state and event, and what states mean."""

import itertools

from control_plane.domain.organization import (
    EFFECTS,
    NEVER_OF_THE_PLATFORM,
    NEXT,
    OPEN,
    REPEATED,
    TERMINAL,
    Access,
    OrganizationEvent,
    OrganizationState,
    Unsettled,
    allows,
    step,
)
from control_plane.domain.permission import Permission
from control_plane.domain.role_permissions import OWNER
from tests.support.state_tables import check_all_is_used, check_ends, check_stepping, reached

S, E = OrganizationState, OrganizationEvent


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.ACTIVE)


def test_nothing_leaves_deleted_and_from_every_other_state_it_can_be_reached() -> None:
    check_ends(NEXT, S, TERMINAL)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


def test_only_another_suspension_leads_back_to_where_it_began() -> None:
    assert {pair for pair, after in NEXT.items() if pair[0] is after} == {(S.SUSPENDED, E.SUSPENDED)}


def test_a_closure_cannot_be_taken_back() -> None:
    for state in set(S) - OPEN:
        assert not reached(NEXT, state) & OPEN, state


def test_an_organization_is_only_closed_on_evidence_and_only_deleted_once_closed() -> None:
    assert {pair for pair, after in NEXT.items() if after is S.CLOSED} == {(S.CLOSING, E.SETTLED)}
    assert {pair for pair, after in NEXT.items() if after is S.DELETED} == {(S.CLOSED, E.DELETED)}
    assert E.CLOSURE_REQUESTED not in {event for state, event in NEXT if state not in OPEN}


def test_only_what_was_done_may_be_asked_for_again() -> None:
    for event, states in REPEATED.items():
        for state in states:
            assert not any(pair == (state, event) for pair in NEXT)
            assert all(state in reached(NEXT, after) for pair, after in NEXT.items() if pair[1] is event)


def test_evidence_is_complete_when_nothing_at_all_is_left() -> None:
    for counts in itertools.product((0, 1), repeat=4):
        unsettled = Unsettled(*counts)
        assert unsettled.is_complete is (sum(counts) == 0), counts
        assert (str(unsettled) == "nothing is left") is unsettled.is_complete


def test_the_platform_can_never_leave_the_states_in_which_its_keys_open_everything() -> None:
    spared = {pair: after for pair, after in NEXT.items() if pair[1] not in NEVER_OF_THE_PLATFORM}
    assert reached(spared, S.ACTIVE) == {S.ACTIVE}


def test_every_state_says_what_it_means_and_only_an_active_one_spends() -> None:
    assert set(EFFECTS) == set(S)
    assert {state for state in S if EFFECTS[state].spends} == {S.ACTIVE}
    assert {state for state in S if EFFECTS[state].access is not Access.NONE} == OPEN


def test_an_active_organization_may_all_that_its_keys_may_and_a_closing_one_nothing() -> None:
    for state, permission in itertools.product(S, Permission):
        if state is not S.SUSPENDED:
            assert allows(state, permission) is (state is S.ACTIVE), (state, permission)


WHILE_SUSPENDED = {
    Permission.ORGANIZATIONS_READ,
    Permission.API_KEYS_READ,
    Permission.API_KEYS_REVOKE,
    Permission.SSH_KEYS_READ,
    Permission.SSH_KEYS_DELETE,
    Permission.PROJECTS_READ,
    Permission.SKUS_READ,
    Permission.OFFERS_READ,
    Permission.QUOTES_CREATE,
    Permission.LEASES_READ,
    Permission.LEASES_RELEASE,
    Permission.PROOFS_READ,
    Permission.BILLING_READ,
}


def test_a_suspended_organization_reads_quotes_releases_and_revokes() -> None:
    allowed = {permission for permission in Permission if allows(S.SUSPENDED, permission)}
    assert allowed >= WHILE_SUSPENDED
    refused = OWNER - allowed
    assert refused >= {Permission.LEASES_CREATE, Permission.API_KEYS_CREATE, Permission.SSH_KEYS_CREATE}
