"""Which members of an overlay are set up next."""

from datetime import UTC, datetime, timedelta

from control_plane.domain.overlay import SERVER_NUMBER
from control_plane.domain.overlay_turn import MEMBERS_MAX, RETRY_CEILING, RETRY_FIRST, Due, next_to_set_up

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def _dead(number: int, *, tries: int = 1, ago: timedelta = RETRY_CEILING) -> Due:
    return Due(number, True, tries, NOW - ago)


def _answers(number: int, *, differs: bool = True) -> Due:
    return Due(number, differs, 0, None)


def test_members_that_do_not_answer_hold_up_nobody_however_many_they_are() -> None:
    dead = [_dead(number) for number in range(2, 2 + 2 * MEMBERS_MAX)]
    assert next_to_set_up([*dead, _answers(900)], NOW) == [900]
    assert len(next_to_set_up(dead, NOW)) == MEMBERS_MAX


def test_what_failed_is_tried_again_after_a_delay_that_doubles_to_a_ceiling() -> None:
    for tries, after in ((1, RETRY_FIRST), (2, 2 * RETRY_FIRST), (3, 4 * RETRY_FIRST), (20, RETRY_CEILING)):
        early = _dead(2, tries=tries, ago=after - timedelta(seconds=1))
        assert next_to_set_up([early], NOW) == [], tries
        assert next_to_set_up([_dead(2, tries=tries, ago=after)], NOW) == [2], tries


def test_the_server_comes_first_then_new_and_removed_keys_then_what_is_only_read_again() -> None:
    members = [_answers(5, differs=False), _answers(6), _answers(SERVER_NUMBER, differs=False)]
    assert next_to_set_up(members, NOW) == [SERVER_NUMBER, 6, 5]
    reread = [_answers(number, differs=False) for number in range(2, 2 + MEMBERS_MAX)]
    assert 900 in next_to_set_up([*reread, _answers(900)], NOW)


def test_of_those_that_failed_the_one_that_failed_least_often_comes_first() -> None:
    assert next_to_set_up([_dead(2, tries=9), _dead(3)], NOW) == [3, 2]


def test_a_server_that_does_not_answer_holds_up_no_node_either() -> None:
    assert next_to_set_up([_dead(SERVER_NUMBER), _answers(5)], NOW) == [5]
