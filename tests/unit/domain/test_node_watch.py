"""Which open nodes of a cluster are given up, and when none is."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import NodeId
from control_plane.domain.node_health import Unready
from control_plane.domain.node_watch import (
    LIARS_MAX,
    LOST_PER_RUN_MAX,
    UNREADY_GRACE,
    UNREADY_MAX,
    OpenNode,
    decide,
)
from tests.support.clock import START

SECOND = timedelta(seconds=1)


def node(
    number: int,
    *,
    unready_since: datetime | None = None,
    silent_since: datetime | None = None,
    missed_since: datetime | None = None,
    lie: str | None = None,
) -> OpenNode:
    state = None if unready_since is None else Unready(unready_since, silent_since, "its kubelet is silent")
    return OpenNode(NodeId(UUID(int=number)), f"node-{number}", lie, state, missed_since)


FINE = node(0)


def given_up(nodes: Sequence[OpenNode], now: datetime) -> dict[int, FailReason]:
    return {node_id.int: failure.reason for node_id, failure in decide(nodes, now).given_up}


def test_losing_contact_alone_ends_no_node_before_an_hour() -> None:
    one = node(1, unready_since=START)
    assert given_up([FINE, one], START + UNREADY_MAX - SECOND) == {}
    assert given_up([FINE, one], START + UNREADY_MAX) == {1: FailReason.NODE_LOST}


def test_a_node_that_its_provider_does_not_list_is_lost_after_the_grace_also_where_it_is_alone() -> None:
    one = node(1, unready_since=START, missed_since=START)
    for nodes in ([one], [FINE, one]):
        assert given_up(nodes, START + UNREADY_GRACE - SECOND) == {}
        assert given_up(nodes, START + UNREADY_GRACE) == {1: FailReason.NODE_LOST}
    assert given_up([node(1, missed_since=START)], START + UNREADY_MAX) == {}, "its kubelet reports"


def test_while_all_nodes_are_unready_none_is_lost_that_its_provider_lists_also_where_there_is_one() -> None:
    for count in (1, 2, 5):
        all_of_them = [node(number, unready_since=START) for number in range(count)]
        late = START + 10 * UNREADY_MAX
        assert given_up(all_of_them, late) == {}, count
        assert "every node is unready" in decide(all_of_them, late).frozen[0], count
        assert not decide(all_of_them, START + SECOND).frozen, "a moment is no reason to call anybody"
    missed = [node(1, unready_since=START), node(2, unready_since=START, missed_since=START)]
    assert given_up(missed, START + UNREADY_MAX) == {2: FailReason.NODE_LOST}


def test_a_lost_node_has_its_turn_however_many_others_are_still_in_grace() -> None:
    others = [node(number, unready_since=START + UNREADY_MAX) for number in range(1, 50)]
    lost = node(99, unready_since=START)
    assert given_up([FINE, *others, lost], START + UNREADY_MAX) == {99: FailReason.NODE_LOST}


def test_a_run_gives_up_few_nodes_of_a_cluster_and_the_longest_unready_first() -> None:
    lost = [node(number, unready_since=START + number * SECOND) for number in range(9, 0, -1)]
    found = given_up([FINE, *lost], START + 2 * UNREADY_MAX)
    assert list(found) == list(range(1, LOST_PER_RUN_MAX + 1))


def test_a_lost_node_is_not_billed_for_its_silence_and_is_for_what_it_said_itself() -> None:
    for silent_since in (START + SECOND, None):
        one = node(1, unready_since=START, silent_since=silent_since)
        ((_, failure),) = decide([FINE, one], START + UNREADY_MAX).given_up
        assert failure.failed_since == silent_since


def test_a_few_liars_are_hostile_and_many_at_once_are_shown_to_operators_instead() -> None:
    few = [node(number, lie="claims 8 GPUs") for number in range(1, LIARS_MAX + 1)]
    assert given_up([FINE, *few], START) == dict.fromkeys(range(1, LIARS_MAX + 1), FailReason.NODE_HOSTILE)
    many = decide([FINE, *few, node(9, lie="claims 8 GPUs")], START)
    assert not many.given_up
    assert "claims 8 GPUs" in many.frozen[0]


def test_a_liar_that_is_also_lost_is_hostile_once() -> None:
    both = node(1, lie="claims 8 GPUs", unready_since=START)
    assert [failure.reason for _, failure in decide([FINE, both], START + UNREADY_MAX).given_up] == [
        FailReason.NODE_HOSTILE
    ]
