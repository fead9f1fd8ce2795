"""What keeps a liability open, in words."""

from control_plane.domain.liability import LiabilityKind, liability_id, why_open
from control_plane.domain.machine import MachineState
from tests.support.clock import START


def test_every_liability_says_what_keeps_it_open() -> None:
    ending = MachineState.TERMINATING
    for state, known, asked_at, tries, begins in (
        (MachineState.VERIFIED, True, None, 0, "No lease holds it any more"),
        (ending, False, None, 0, "The answer to its launch was lost"),
        (ending, True, START, 3, "The provider took the request"),
        (ending, True, None, 3, "The provider refused to terminate it"),
        (ending, True, None, 0, "Its termination is requested next"),
    ):
        why = why_open(state, known=known, terminate_asked_at=asked_at, tries=tries)
        assert why.startswith(begins), (state, known, asked_at, tries)


def test_a_liability_has_the_same_id_at_every_look_and_no_two_have_the_same() -> None:
    named: list[tuple[LiabilityKind, *tuple[str, ...]]] = [
        (LiabilityKind.ORPHAN, "verda", "7"),
        (LiabilityKind.ORPHAN, "verda", "8"),
        (LiabilityKind.ORPHAN, "verda/research", "7"),
        (LiabilityKind.CHILD, "verda", "volume", "7"),
        (LiabilityKind.CHILD, "verda", "address", "7"),
        (LiabilityKind.CHILD, "verda", "vol", "ume7"),
    ]
    assert [liability_id(*names) for names in named] == [liability_id(*names) for names in named]
    assert len({liability_id(*names) for names in named}) == len(named)
