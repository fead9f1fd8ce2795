"""What a month came to: promises kept and broken."""

from dataclasses import replace

from control_plane.domain.sla import Terms
from control_plane.domain.sla_clock import Facts, available_bp, clocks
from control_plane.domain.sla_month import LeaseMonth, months_of
from tests.unit.domain.test_sla_clock import GOLD, MONTH, NOVEMBER, NOVEMBER_SETTLED, at, facts


def months(known: Facts, terms: Terms = GOLD) -> list[LeaseMonth]:
    return list(months_of(known, terms, clocks(known, terms, NOVEMBER_SETTLED)))


def test_a_month_without_a_breach_keeps_every_promise_and_ready_is_one_of_the_first_month_alone() -> None:
    october, november = months(facts())
    assert october == LeaseMonth(MONTH, 31 * 86_400, 0, kept=4, broken=0)
    assert (november.month, november.kept, november.broken) == (NOVEMBER, 3, 0)


def test_a_broken_promise_is_not_kept_and_the_others_are() -> None:
    october, november = months(facts(failures=[(at(10, 4), at(10, 6))]))
    assert october == LeaseMonth(MONTH, 31 * 86_400, 7_200, kept=2, broken=2)
    assert (november.kept, november.broken) == (3, 0)
    assert available_bp(october.promised_seconds, october.down_seconds) == 9_973


def test_what_the_terms_do_not_promise_is_neither_kept_nor_broken() -> None:
    bronze = replace(GOLD, ready_seconds=None, replacement_seconds=None, notice_seconds=None)
    assert [month.kept for month in months(facts(), bronze)] == [1, 1]


def test_a_lease_that_is_not_ready_has_kept_nothing_yet() -> None:
    (october, november) = months(facts(ready_at=None, used=()))
    assert (october.promised_seconds, october.kept, october.broken) == (0, 0, 1)
    assert (november.kept, november.broken) == (0, 0)
