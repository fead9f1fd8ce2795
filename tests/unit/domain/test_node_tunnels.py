"""What follows from a look at the tunnels of a node."""

from control_plane.domain.node_tunnels import AGAIN, EVERY, MTU, Look, Verdict, judge

HERE, ELSEWHERE = "192.0.2.7:51820", "192.0.2.8:51820"


def test_a_node_is_behind_nat_when_two_looks_in_a_row_hear_nothing_and_reachable_when_one_hears() -> None:
    cases = (
        (True, None, 2, Verdict(HERE, 0, None)),
        (True, HERE, 1, Verdict(HERE, 0, None)),
        (True, ELSEWHERE, 0, Verdict(HERE, 0, None)),
        (False, HERE, 0, Verdict(HERE, 1, None)),
        (False, HERE, 1, Verdict(None, 2, None)),
        (False, None, 0, Verdict(None, 1, None)),
        (False, None, 2, Verdict(None, 2, None)),
    )
    for heard, endpoint, misses, expected in cases:
        found = judge(Look(heard, MTU), endpoint=endpoint, candidate=HERE, misses=misses)
        assert found == expected, (heard, endpoint, misses)


def test_a_look_that_found_a_problem_or_may_have_missed_something_is_repeated_soon() -> None:
    cases = (
        (Look(heard=True, largest_packet=MTU), EVERY),
        (Look(heard=False, largest_packet=MTU), AGAIN),
        (Look(heard=True, largest_packet=1_380), AGAIN),
        (Look(heard=True, largest_packet=None), AGAIN),
    )
    for look, expected in cases:
        verdict = judge(look, endpoint=HERE, candidate=HERE, misses=0)
        assert verdict.due_after == expected, look
        assert (verdict.problem is None) == (look.largest_packet == MTU)
    assert (
        judge(Look(heard=False, largest_packet=MTU), endpoint=None, candidate=HERE, misses=2).due_after
        == EVERY
    )
