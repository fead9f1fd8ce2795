"""Time in which a customer's own envelope holds a lease back: what begins and ends it, and what is ours instead."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.deadline import LOOKED_AT_WITHIN
from control_plane.domain.decision import Action, Decision, NotAdmitted, Rule, Spoken, Verdict
from control_plane.domain.envelope import Level
from control_plane.domain.held_time import holds, is_held, looked_at
from control_plane.domain.refusal import RefusalCode
from tests.support.cases import case
from tests.support.clock import START

LOOK = timedelta(seconds=15)


def _refused(*levels: Level | None) -> NotAdmitted:
    rules = tuple(
        Spoken(
            rule=Rule.GPUS,
            verdict=Verdict.REFUSED,
            level=level,
            code=RefusalCode.BALANCE_TOO_LOW,
            why="a test",
        )
        for level in levels
    )
    return NotAdmitted(RefusalCode.BALANCE_TOO_LOW, "a test", decision=Decision(Action.LEASE_PLACE, rules))


def test_only_an_envelope_that_the_customer_states_holds_a_lease() -> None:
    for levels, held in (
        ((Level.CEILING,), False),
        ((None,), False),
        ((Level.ORGANIZATION,), True),
        ((Level.PROJECT,), True),
        ((Level.ENVIRONMENT,), True),
        ((Level.CEILING, Level.PROJECT), True),
    ):
        with case(*levels):
            assert holds(_refused(*levels)) is held


def test_held_time_begins_and_ends_with_the_looks_that_see_it() -> None:
    assert looked_at((), held=False, due_at=START, now=START) == ()
    began = looked_at((), held=True, due_at=START, now=START)
    assert began == (START,)
    later = START + LOOK
    assert looked_at(began, held=True, due_at=later, now=later) == ()
    assert looked_at(began, held=False, due_at=later, now=later) == (later,)


def test_time_in_which_nobody_looked_is_not_held() -> None:
    due, now = START + LOOK, START + timedelta(hours=2)
    assert looked_at((START,), held=False, due_at=due, now=now) == (due,)
    assert looked_at((START,), held=True, due_at=due, now=now) == (due, now)
    assert looked_at((), held=True, due_at=due, now=now) == (now,), (
        "what began meanwhile begins when it is seen"
    )


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=20))
def test_the_moments_are_in_order_and_no_more_is_held_than_looks_confirm(
    looks: list[tuple[int, bool]],
) -> None:
    moments: tuple[datetime, ...] = ()
    now = due = START
    confirmed = timedelta()
    for after, held in looks:
        before, now = now, now + timedelta(seconds=after)
        confirmed += min(now - before, LOOKED_AT_WITHIN + LOOK) if is_held(moments) else timedelta()
        moments += looked_at(moments, held=held, due_at=due, now=now)
        assert is_held(moments) is held
        due = now + LOOK
    assert list(moments) == sorted(moments)
    spans = list(zip(moments[::2], [*moments[1::2], now], strict=False))
    assert sum((until - since for since, until in spans), timedelta()) <= confirmed
