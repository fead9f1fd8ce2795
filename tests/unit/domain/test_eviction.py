"""What follows from an eviction that is announced, withdrawn or done."""

from dataclasses import replace
from datetime import timedelta

from control_plane.domain.eviction import (
    WITHDRAWN_AFTER,
    Eviction,
    EvictionState,
    notices,
    taken,
)
from control_plane.domain.machine import SHOULD_BE_SIGHTED, Machine, MachineState
from tests.support.clock import START
from tests.support.values import a_machine

ANNOUNCED = Eviction(EvictionState.ANNOUNCED, START, "marked")
TAKEN = Eviction(EvictionState.TAKEN, START, "no-capacity")
NOTED = a_machine(eviction_announced_at=START)
LATE = START + WITHDRAWN_AFTER


def told(machine: Machine, eviction: Eviction | None, *, runs: bool = True) -> list[bool]:
    """Of each notice at LATE, whether it is a withdrawal."""
    return [news.withdrawn for news in notices(machine, eviction, runs=runs, asked_at=LATE)]


def test_a_notice_is_told_once_while_the_machine_should_be_listed() -> None:
    for state in MachineState:
        expected = [False] if state in SHOULD_BE_SIGHTED else []
        assert told(a_machine(state=state), ANNOUNCED) == expected, state
    assert told(NOTED, ANNOUNCED) == []
    assert told(a_machine(), None) == told(a_machine(), TAKEN) == []
    (news,) = notices(a_machine(), ANNOUNCED, runs=True, asked_at=START)
    ahead = replace(ANNOUNCED, at=START + timedelta(hours=1))
    assert list(notices(a_machine(), ahead, runs=True, asked_at=START)) == [news], "its clock may be wrong"
    assert news.why == "its provider announced at 2026-11-20T12:00:00+00:00 to take it back"


def test_a_notice_is_withdrawn_when_the_machine_runs_on_and_the_provider_says_no_more() -> None:
    assert told(NOTED, None) == [True]
    early = notices(NOTED, None, runs=True, asked_at=LATE - timedelta(seconds=1))
    assert list(early) == []
    assert told(NOTED, None, runs=False) == []
    assert told(NOTED, TAKEN) == []


def test_a_second_notice_after_a_withdrawn_one_is_told_again() -> None:
    withdrawn = replace(NOTED, eviction_withdrawn_at=LATE)
    assert told(withdrawn, None) == []
    assert told(withdrawn, ANNOUNCED) == [False]


def test_the_sentence_about_an_evicted_machine_says_whether_there_was_notice() -> None:
    without = "its provider took it back, without notice"
    assert taken(a_machine(), TAKEN) == taken(replace(NOTED, eviction_withdrawn_at=LATE), TAKEN) == without
    assert taken(NOTED, TAKEN) == f"its provider took it back, as announced at {START.isoformat()}"
    assert taken(NOTED, ANNOUNCED) is taken(NOTED, None) is None
