"""Which open nodes of a cluster are given up, and when none is."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import NodeId
from control_plane.domain.node_health import Unready
from control_plane.domain.node_watch import (
    HOSTILE_PER_RUN_MAX,
    LIARS_MAX,
    LOST_PER_RUN_MAX,
    REACHED_PER_RUN_MAX,
    UNREADY_GRACE,
    UNREADY_MAX,
    OpenNode,
    Reach,
    decide,
    to_reach,
)
from tests.support.clock import START

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def node(
    number: int,
    *,
    unready_since: datetime | None = None,
    missed_since: datetime | None = None,
    lie: str | None = None,
    only_gpus: bool = False,
    gives_gpus: bool = False,
    reach: Reach | None = None,
    account: str = "lambda-1",
) -> OpenNode:
    state = None
    if unready_since is not None:
        state = Unready(unready_since, "its kubelet is silent", only_gpus=only_gpus)
    node_id, name = NodeId(UUID(int=number)), f"node-{number}"
    return OpenNode(node_id, name, account, lie, state, missed_since, gives_gpus=gives_gpus, reach=reach)


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


def test_while_all_nodes_are_unready_none_is_lost_that_its_provider_lists_unless_we_looked() -> None:
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


def test_what_we_see_ourselves_decides_while_all_nodes_are_unready() -> None:
    """By how many nodes the cluster has, and whether its server hears a node and its machine answers us."""
    lost = {
        (1, heard, answers): heard or not answers
        for heard, answers in itertools.product((True, False), repeat=2)
    }
    lost |= {(2, heard, answers): not heard and not answers for _, heard, answers in lost}
    for (count, heard, answers), expected in lost.items():
        reach = Reach(heard=heard, answers=answers)
        nodes = [node(number, unready_since=START, reach=reach) for number in range(1, count + 1)]
        assert not given_up(nodes, START + UNREADY_MAX - SECOND), (count, reach)
        assert bool(given_up(nodes, START + UNREADY_MAX)) is expected, (count, reach)
        assert bool(decide(nodes, START + UNREADY_MAX).frozen) is not expected, (count, reach)


def test_we_look_only_when_it_decides_something_and_at_few_machines_at_once() -> None:
    silent = [node(number, unready_since=START - number * SECOND) for number in range(1, 20)]
    assert to_reach([FINE, *silent], START + UNREADY_MAX) == ()
    assert to_reach(silent, START + UNREADY_MAX - MINUTE) == ()
    found = to_reach(
        [*silent, node(99, unready_since=START - MINUTE, missed_since=START)], START + UNREADY_MAX
    )
    assert [each.int for each in found] == list(range(19, 19 - REACHED_PER_RUN_MAX, -1))


def test_a_node_without_gpus_is_lost_only_while_another_one_gives_pods_its_own() -> None:
    lacks = node(1, unready_since=START, only_gpus=True)
    late = START + UNREADY_MAX
    gives = node(2, gives_gpus=True)
    assert given_up([FINE, lacks], late) == {}, "a node that was sold without GPUs says nothing about ours"
    assert "device plugin" in decide([FINE, lacks], late).frozen[0]
    assert given_up([gives, lacks], late - SECOND) == {}
    assert given_up([gives, lacks], late) == {1: FailReason.NODE_LOST}
    assert given_up([replace(lacks, missed_since=START)], START + UNREADY_GRACE) == {1: FailReason.NODE_LOST}


def test_a_lost_node_is_not_billed_from_when_it_was_not_ready() -> None:
    ((_, failure),) = decide([FINE, node(1, unready_since=START)], START + UNREADY_MAX).given_up
    assert failure.failed_since == START


def test_a_few_liars_of_an_account_are_hostile_and_many_at_once_are_kept_without_new_pods() -> None:
    few = [node(number, lie="claims 8 GPUs") for number in range(1, LIARS_MAX + 1)]
    hostile = dict.fromkeys(range(1, LIARS_MAX + 1), FailReason.NODE_HOSTILE)
    assert given_up([FINE, *few], START) == hostile
    assert not decide([FINE, *few], START).quarantined
    many = [node(number, lie="claims 64 GPUs", account="vast-1") for number in range(7, 7 + LIARS_MAX + 1)]
    found = decide([FINE, *few, *many], START)
    assert given_up([FINE, *few, *many], START) == hostile, (
        "those of another account are judged by themselves"
    )
    assert found.quarantined == {each.id for each in many}
    assert "3 nodes at vast-1 seem to lie" in found.frozen[0]
    assert "claims 64 GPUs" in found.frozen[0]
    away = [replace(each, unready=Unready(START, "silent")) for each in many]
    assert not decide([FINE, *away], START + UNREADY_MAX).given_up, "nor are they lost meanwhile"


def test_a_run_ends_few_liars_of_all_accounts_together_and_the_others_have_to_wait() -> None:
    liars = [
        node(number, lie="claims 8 GPUs", account=f"cloud-{number}", unready_since=START)
        for number in range(1, HOSTILE_PER_RUN_MAX + 4)
    ]
    found = decide([FINE, *liars], START + UNREADY_MAX)
    first, later = liars[:HOSTILE_PER_RUN_MAX], liars[HOSTILE_PER_RUN_MAX:]
    assert [node_id for node_id, _ in found.given_up] == [each.id for each in first]
    assert found.quarantined == {each.id for each in later}, "nor are they lost meanwhile"
    assert not found.frozen


def test_a_liar_that_is_also_lost_is_hostile_once() -> None:
    both = node(1, lie="claims 8 GPUs", unready_since=START)
    assert [failure.reason for _, failure in decide([FINE, both], START + UNREADY_MAX).given_up] == [
        FailReason.NODE_HOSTILE
    ]
