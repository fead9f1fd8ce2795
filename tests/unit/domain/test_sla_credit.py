"""What of a credit is posted, what waits for finance, and that no order of events posts more than that."""

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import Nano
from control_plane.domain.sla_credit import Standing


def standing(
    credit: int, *, outside: int = 0, approved: int = 0, considered: int = 0, credited: int = 0
) -> Standing:
    return Standing(*map(Nano, (credit, outside, approved, considered, credited)))


def test_what_evidence_from_outside_shows_is_posted_and_the_rest_waits() -> None:
    found = standing(100, outside=30)
    assert (found.due(trusted=False), found.undecided) == (30, 70)
    assert found.due(trusted=True) == 100


def test_a_decision_settles_the_amount_that_was_decided_and_more_waits_again() -> None:
    approved = standing(100, approved=100, considered=100)
    assert (approved.due(trusted=False), approved.undecided) == (100, 0)
    refused = standing(100, considered=100)
    assert (refused.due(trusted=False), refused.undecided, refused.due(trusted=True)) == (0, 0, 0)
    more = standing(150, approved=100, considered=100, credited=100)
    assert (more.due(trusted=False), more.undecided) == (0, 50)


def test_a_credit_that_falls_is_corrected_and_one_that_only_lost_its_evidence_is_not() -> None:
    assert standing(40, credited=100).due(trusted=False) == -60
    assert standing(100, outside=0, credited=100).due(trusted=False) == 0


_AMOUNTS = st.integers(0, 100)


@given(_AMOUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS, st.booleans())
def test_never_is_more_posted_than_the_latest_assessment_says(
    credit: int, outside: int, approved: int, considered: int, credited: int, trusted: bool
) -> None:
    found = standing(credit, outside=outside, approved=approved, considered=considered, credited=credited)
    total = credited + found.due(trusted=trusted)
    assert 0 <= total <= credit
    assert total + found.undecided <= credit or trusted
    if not trusted:
        assert total <= max(outside, approved, credited)
