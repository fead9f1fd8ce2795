"""Until when a joining node is waited for."""

import dataclasses
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.deadline import LOOKED_AT_WITHIN, UNATTENDED_MAX
from control_plane.domain.ids import (
    ClaimId,
    ClusterId,
    LeaseId,
    MachineId,
    NodeId,
    NodePoolId,
    OrganizationId,
    ProjectId,
)
from control_plane.domain.node import JOIN_MAX, OPEN_MAX, Node, NodeState, name_of
from control_plane.domain.node_deadline import UNHEALTHY_MAX, Deadline, deadline, opening_has_failed

BEGAN = datetime(2026, 11, 23, 12, tzinfo=UTC)
OVER = BEGAN + JOIN_MAX
SECOND = timedelta(seconds=1)
NODE = Node(
    id=NodeId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    project_id=ProjectId(UUID(int=3)),
    cluster_id=ClusterId(UUID(int=4)),
    node_pool_id=NodePoolId(UUID(int=5)),
    lease_id=LeaseId(UUID(int=6)),
    claim_id=ClaimId(UUID(int=7)),
    machine_id=MachineId(UUID(int=8)),
    name=name_of(NodeId(UUID(int=1))),
    state=NodeState.JOINING,
    generation=1,
    tries=0,
    number=2,
    public_key=None,
    next_key=None,
    endpoint=None,
    pod_block=None,
    uid=None,
    leave_reason=None,
    leave_why=None,
    failing_why=None,
    due_at=OVER,
    created_at=BEGAN,
    deadline_at=OVER,
    ready_at=None,
    unready_since=None,
    leaving_at=None,
    removed_at=None,
    gone_at=None,
)


def test_a_node_that_is_looked_at_in_time_is_given_up_at_its_deadline() -> None:
    assert deadline(NODE, OVER - SECOND) is Deadline.AHEAD
    assert deadline(NODE, OVER) is Deadline.PASSED
    assert deadline(NODE, OVER + LOOKED_AT_WITHIN) is Deadline.PASSED


def test_a_node_that_nobody_looked_at_has_missed_nothing() -> None:
    for away in (LOOKED_AT_WITHIN + SECOND, timedelta(minutes=25), timedelta(hours=3)):
        assert deadline(NODE, OVER + away) is Deadline.MISSED_BY_US, away
    later = dataclasses.replace(NODE, due_at=OVER + timedelta(minutes=25))
    assert deadline(later, later.due_at + SECOND) is Deadline.PASSED, "it was looked at since then"


def test_after_hours_a_node_is_given_up_however_late_the_look() -> None:
    assert deadline(NODE, BEGAN + UNATTENDED_MAX - SECOND) is Deadline.MISSED_BY_US
    assert deadline(NODE, BEGAN + UNATTENDED_MAX) is Deadline.PASSED


def test_a_node_that_was_healthy_has_some_minutes_to_recover_whenever_it_joined() -> None:
    since = OVER + timedelta(days=1)
    sick = dataclasses.replace(NODE, unready_since=since, due_at=since + UNHEALTHY_MAX)
    assert deadline(sick, since + UNHEALTHY_MAX - SECOND) is Deadline.AHEAD
    assert deadline(sick, since + UNHEALTHY_MAX) is Deadline.PASSED


def test_an_outage_of_ours_extends_the_time_of_a_node_that_became_unhealthy_too() -> None:
    since = BEGAN + JOIN_MAX
    extended = since + UNHEALTHY_MAX + timedelta(minutes=5)
    sick = dataclasses.replace(NODE, unready_since=since, deadline_at=extended, due_at=extended)
    assert deadline(sick, extended - SECOND) is Deadline.AHEAD
    assert deadline(sick, extended) is Deadline.PASSED


def test_a_node_that_cannot_be_opened_is_given_up_after_a_while_unless_nobody_tried() -> None:
    over = OVER + OPEN_MAX
    watched = dataclasses.replace(
        NODE, state=NodeState.READY, ready_at=OVER, due_at=over + timedelta(hours=1)
    )
    assert not opening_has_failed(watched, over - SECOND)
    assert opening_has_failed(watched, over)
    assert opening_has_failed(watched, watched.due_at + LOOKED_AT_WITHIN)
    assert not opening_has_failed(watched, watched.due_at + LOOKED_AT_WITHIN + SECOND)
