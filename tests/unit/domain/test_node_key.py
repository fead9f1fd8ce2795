"""How a node changes its key: who is waited for, and for how long."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.node_key import (
    ASKED_WAITED_FOR,
    WAITED_FOR,
    KeyChange,
    KeyStep,
    next_step,
    still_waited_for,
)
from control_plane.domain.overlay import RELAY_NUMBER, SERVER_NUMBER

AT = datetime(2026, 11, 23, tzinfo=UTC)
LATER = AT + WAITED_FOR


def test_each_step_follows_when_nobody_is_waited_for() -> None:
    cases = (
        (KeyChange(None, None, None, None), AT, KeyStep.ANNOUNCE),
        (KeyChange("next", None, [3], AT), AT, KeyStep.WAIT),
        (KeyChange("next", None, [], AT), AT, KeyStep.SWITCH),
        (KeyChange(None, "old", [3], AT), AT, KeyStep.WAIT),
        (KeyChange(None, "old", [], AT), AT, KeyStep.FINISH),
        (KeyChange("next", None, [3], AT), LATER - timedelta(seconds=1), KeyStep.WAIT),
        (KeyChange("next", None, [3], AT), LATER, KeyStep.SWITCH),
        (KeyChange(None, "old", [3], AT), LATER, KeyStep.FINISH),
        (KeyChange("next", None, [SERVER_NUMBER, 3], AT), LATER, KeyStep.WAIT),
        (KeyChange("next", None, [RELAY_NUMBER, 3], AT), LATER, KeyStep.WAIT),
    )
    for change, now, expected in cases:
        assert next_step(change, now) is expected, change


def test_a_change_that_an_operator_asked_for_waits_minutes_and_its_last_trace_a_day() -> None:
    asked, soon = AT - timedelta(hours=1), AT + ASKED_WAITED_FOR
    cases = (
        (KeyChange("next", None, [3], AT, asked, AT), soon - timedelta(seconds=1), KeyStep.WAIT),
        (KeyChange("next", None, [3], AT, asked, AT), soon, KeyStep.SWITCH),
        (KeyChange("next", None, [SERVER_NUMBER, 3], AT, asked, AT), soon, KeyStep.WAIT),
        (KeyChange(None, "old", [3], AT, asked, AT), LATER - timedelta(seconds=1), KeyStep.WAIT),
        (KeyChange(None, "old", [3], AT, asked, AT), LATER, KeyStep.FINISH),
        # The key was made before it was asked for, so another one follows, and soon.
        (KeyChange("next", None, [3], AT, AT, asked), soon, KeyStep.SWITCH),
        (KeyChange(None, "old", [3], AT, AT, asked), soon, KeyStep.FINISH),
    )
    for change, now, expected in cases:
        assert next_step(change, now) is expected, (change, now)


def test_only_who_lists_what_it_has_to_is_struck_off() -> None:
    announced, switched = KeyChange("next", None, [1, 2], AT), KeyChange(None, "old", [1, 2], AT)
    cases = (
        (announced, (1, frozenset({"next", "current"})), [2]),
        (announced, (1, frozenset({"current"})), [1, 2]),
        (announced, (9, frozenset({"next"})), [1, 2]),
        (announced, None, [1, 2]),
        (switched, (2, frozenset({"current"})), [1]),
        (switched, (2, frozenset({"current", "old"})), [1, 2]),
    )
    for change, reading, left in cases:
        assert still_waited_for(change, reading, {1, 2, 9}) == left, (change, reading)
    assert still_waited_for(announced, None, {2}) == [2], "the map has only 2 list it by now"
