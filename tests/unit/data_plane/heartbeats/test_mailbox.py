"""What the collector accepts, from whom, how often, and what the reconciler gets of it."""

import hashlib
import json

from data_plane.documents.heartbeat import Answer, Delivery, Heartbeat, Task, encode
from data_plane.heartbeats.collector.exchange import (
    Holder,
    Known,
    Request,
    read_reports,
    read_request,
)
from data_plane.heartbeats.collector.exchange import (
    encode as encode_exchange,
)
from data_plane.heartbeats.collector.mailbox import (
    ASKED_AGAIN_SECONDS,
    DELIVERIES_BURST,
    WAITING_MAX,
    Mailbox,
)

ALICE, BOB = "a" * 64, "b" * 64


def _digest(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()


def _known(credential: str, *, ended: bool = False, through: int = 0, task: Task | None = None) -> Known:
    return Known(_digest(credential), ended, through, task)


def _line(credential: str, *sequences: int) -> bytes:
    return encode(Delivery(credential, tuple(Heartbeat(each, 0, 0, "", 0, 0) for each in sequences)))


def _sequences(box: Mailbox, *known: Known, now: float = 0) -> list[int]:
    return [each.heartbeat.sequence for each in box.exchange(known, now).reported]


def test_heartbeats_are_returned_until_they_are_stored() -> None:
    box = Mailbox()
    box.exchange([_known(ALICE)], 0)
    assert box.deliver(_line(ALICE, 1, 2), 1) == Answer("accepted", 2)
    assert _sequences(box, _known(ALICE)) == [1, 2]
    assert _sequences(box, _known(ALICE)) == [1, 2], "the answer may have been lost"
    assert _sequences(box, _known(ALICE, through=1)) == [2]
    assert _sequences(box, _known(ALICE, through=2)) == []


def test_what_was_accepted_before_is_answered_and_not_accepted_again() -> None:
    box = Mailbox()
    box.exchange([_known(ALICE, through=5)], 0)
    assert box.deliver(_line(ALICE, 4, 5), 1) == Answer("accepted", 5)
    assert box.deliver(_line(ALICE, 5, 6), 2) == Answer("accepted", 6)
    assert box.deliver(_line(ALICE, 6), 3) == Answer("accepted", 6)
    assert _sequences(box, _known(ALICE, through=5)) == [6]


def test_nobody_is_accepted_but_those_that_the_reconciler_named_last() -> None:
    box = Mailbox()
    assert box.deliver(_line(ALICE, 1), 0).verdict == "not_known"
    box.exchange([_known(ALICE)], 0)
    assert box.deliver(_line(BOB, 1), 0).verdict == "not_known"
    assert box.deliver(_line(_digest(ALICE), 1), 0).verdict == "not_known", "a digest is no credential"
    box.exchange([_known(BOB)], 0)
    assert box.deliver(_line(ALICE, 1), 0).verdict == "not_known"
    assert box.deliver(b"x", 0).verdict == "malformed"
    assert box.exchange([], 0).refused == 5


def test_an_agent_that_is_newer_than_the_collector_is_told_so() -> None:
    """It then keeps its heartbeats: one that is told that they are malformed drops them."""
    box = Mailbox()
    box.exchange([_known(ALICE)], 0)
    newer = json.loads(_line(ALICE, 1)) | {"protocol": 2, "something": "new"}
    assert box.deliver(json.dumps(newer).encode() + b"\n", 1) == Answer("version_not_known")
    assert box.deliver(_line(ALICE, 1), 2) == Answer("accepted", 1)


def test_an_agent_whose_lease_has_ended_is_told_so_and_not_heard() -> None:
    box = Mailbox()
    box.exchange([_known(ALICE)], 0)
    box.deliver(_line(ALICE, 1), 0)
    assert _sequences(box, _known(ALICE, ended=True)) == []
    assert box.deliver(_line(ALICE, 2), 1).verdict == "ended"
    assert _sequences(box, _known(ALICE, ended=True)) == []


def test_one_agent_that_talks_too_much_is_refused_and_no_other() -> None:
    box = Mailbox()
    box.exchange([_known(ALICE), _known(BOB)], 0)
    verdicts = [box.deliver(_line(ALICE, n), 1.0).verdict for n in range(1, DELIVERIES_BURST + 3)]
    assert verdicts == ["accepted"] * DELIVERIES_BURST + ["too_fast"] * 2
    assert box.deliver(_line(BOB, 1), 1.0).verdict == "accepted"
    assert box.deliver(_line(ALICE, 99), 3.0).verdict == "accepted"
    assert box.deliver(_line(ALICE, 100), 3.0).verdict == "too_fast"


def test_one_agent_cannot_fill_the_memory() -> None:
    box = Mailbox()
    box.exchange([_known(ALICE)], 0)
    now = 0.0
    for n in range(WAITING_MAX + 10):
        now += 2
        assert box.deliver(_line(ALICE, n + 1), now).verdict == "accepted"
    assert _sequences(box, _known(ALICE)) == list(range(11, WAITING_MAX + 11))


def test_a_task_is_not_asked_for_again_while_its_result_may_be_on_its_way() -> None:
    box = Mailbox()
    known = _known(ALICE, task="report")
    box.exchange([known], 0)
    assert box.deliver(_line(ALICE, 1), 0).task == "report"
    box.exchange([known], 1)
    assert box.deliver(_line(ALICE, 2), 1).task is None
    box.exchange([_known(ALICE, task="verify")], 2)
    assert box.deliver(_line(ALICE, 3), 2).task == "verify"
    box.exchange([known], 3)
    assert box.deliver(_line(ALICE, 4), ASKED_AGAIN_SECONDS + 3).task == "report"


def test_a_large_fleet_comes_in_parts_and_each_agent_in_its_order() -> None:
    box = Mailbox()
    fleet = [f"{n:064x}" for n in range(200)]
    box.exchange([_known(each) for each in fleet], 0)
    for each in fleet:
        assert box.deliver(_line(each, *range(1, 17)), 5).verdict == "accepted"
    through = dict.fromkeys(fleet, 0)
    rounds = 0
    more = True
    while more:
        reports = box.exchange([_known(each, through=through[each]) for each in fleet], 9)
        assert read_reports(encode_exchange(reports)) == reports
        by_digest = {_digest(each): each for each in fleet}
        for one in reports.reported:
            whose = by_digest[one.digest]
            assert one.heartbeat.sequence == through[whose] + 1
            assert one.waited_seconds == 4
            through[whose] += 1
        more, rounds = reports.more, rounds + 1
    assert set(through.values()) == {16}
    assert rounds == 2


def test_what_the_reconciler_sends_is_what_the_collector_reads() -> None:
    holders = (Holder("network 12", 0), Holder("10.64.16.3", 1))
    request = Request((_known(ALICE, task="clean"), _known(BOB, ended=True, through=3)), holders)
    assert read_request(encode_exchange(request)) == request
