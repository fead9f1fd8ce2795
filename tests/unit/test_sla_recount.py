"""The second computation of credits, on the example of docs/sla.md and on what its sentences say."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.sla_recount import (
    Charge,
    Line,
    PromisedLease,
    Use,
    Verdict,
    Work,
    owed,
    shipped_terms,
)

TERMS = shipped_terms(Path("control_plane/sla_terms.toml"))
OCTOBER = (2026, 10)
BEGIN, END = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
NANO_PER_SECOND = 1_000_000
"""3.60 USD per hour."""
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def charged(*spans: tuple[datetime, datetime], stopped: bool = False) -> list[Charge]:
    return [
        Charge(since, until, stopped, int((until - since).total_seconds()) * NANO_PER_SECOND)
        for since, until in spans
    ]


def lease(
    tier: str,
    charges: Sequence[Charge],
    *,
    ready_at: datetime = BEGIN,
    ended: tuple[datetime, str] = (END, "released"),
    created_at: datetime = BEGIN - MINUTE,
) -> PromisedLease:
    lines = [Line(ready_at, "verified", "ready"), Line(ended[0], ended[1], "ending")]
    return PromisedLease("le", tier, created_at, lines, charges, uses=[Use("m", ready_at, ended[0])])


def usd(found: int) -> float:
    return found / 10**9


def test_the_example_of_the_page_comes_out_to_the_cent() -> None:
    fails, back = datetime(2026, 10, 10, 4, tzinfo=UTC), datetime(2026, 10, 10, 6, tzinfo=UTC)
    (found,) = owed(lease("gold", charged((BEGIN, fails), (back, END))), TERMS).items()
    month, due = found
    assert (month, due.broken, usd(due.nano)) == (OCTOBER, {"availability", "replacement"}, 934.92)
    in_time = charged((BEGIN, fails), (fails + 15 * MINUTE, END))
    assert owed(lease("gold", in_time), TERMS) == {}


def test_what_the_customer_stopped_is_neither_promised_nor_missed_and_stops_the_clock_of_a_repair() -> None:
    fails = BEGIN + 10 * HOUR
    stopped = (fails + 10 * MINUTE, fails + 5 * HOUR)
    parts = [
        *charged((BEGIN, fails)),
        *charged(stopped, stopped=True),
        *charged((stopped[1] + 5 * MINUTE, END)),
    ]
    assert owed(lease("gold", parts), TERMS) == {}, (
        "ten minutes and five are fifteen, and the stop does not count"
    )
    parts[-1] = charged((stopped[1] + 6 * MINUTE, END))[0]
    (due,) = owed(lease("gold", parts), TERMS).values()
    assert due.broken == {"replacement"}


def test_who_hands_a_fit_machine_back_has_none_meanwhile_because_they_want_it_so() -> None:
    ends, again = BEGIN + 10 * HOUR, BEGIN + 12 * HOUR
    replaced = lease("gold", charged((BEGIN, ends), (again, END)))
    uses = [Use("m", BEGIN, ends + timedelta(seconds=7), handed_back=True), Use("n", again, END)]
    assert owed(replace(replaced, uses=[replace(uses[0], handed_back=False), uses[1]]), TERMS) != {}
    assert owed(replace(replaced, uses=uses), TERMS) == {}
    broken = Verdict("m", 1, ends - MINUTE, "quarantined", "gpu_lost")
    assert owed(replace(replaced, uses=uses, verdicts=[broken]), TERMS)[OCTOBER].broken == {
        "availability",
        "replacement",
    }


def test_a_fault_counts_after_its_grace_and_only_when_we_saw_it() -> None:
    since = BEGIN + HOUR
    whole = lease("gold", charged((BEGIN, END)))

    def judged(verdict: str, fault: str, hours: float) -> set[str]:
        told = [
            Verdict("m", 1, since, verdict, fault),
            Verdict("m", 2, since + timedelta(hours=hours), "healthy", None),
        ]
        return {
            promise for due in owed(replace(whole, verdicts=told), TERMS).values() for promise in due.broken
        }

    minutes_missed = 31 * 24 * 60 / 1_000
    assert judged("quarantined", "gpu_lost", (10 + minutes_missed + 1) / 60) == {"availability"}
    assert judged("quarantined", "gpu_lost", (10 + minutes_missed - 1) / 60) == set(), "99.9 % are promised"
    assert judged("degraded", "gpu_lost", 200) == set(), "what only the machine says moves no money"
    assert judged("maintenance_required", "under_maintenance", 200) == set()


def test_work_counts_when_it_was_announced_too_late_and_excuses_what_happens_meanwhile_otherwise() -> None:
    begins = datetime(2026, 10, 20, tzinfo=UTC)
    whole = lease("silver", charged((BEGIN, begins), (begins + 2 * HOUR, END)))
    for days, broken in ((0.5, {"availability", "notice", "replacement"}), (2, {"replacement"})):
        work = Work("m", begins - timedelta(days=days), begins, begins + 6 * HOUR)
        (due,) = owed(replace(whole, works=[work]), TERMS).values()
        assert due.broken == broken, days


def test_a_lease_that_ended_with_its_machine_was_never_repaired_and_one_that_was_released_promises_nothing() -> (
    None
):
    fails = BEGIN + 20 * HOUR
    ends = fails + 2 * HOUR
    for event, broken in (("machine_lost", True), ("gave_up", True), ("released", False)):
        silver = lease("silver", charged((BEGIN, fails)), ended=(ends if broken else fails, event))
        assert bool(owed(silver, TERMS)) is broken, event


def test_a_late_start_is_given_back_and_all_credits_together_are_no_more_than_was_charged() -> None:
    slow = lease("gold", charged((BEGIN, END)), created_at=BEGIN - 16 * MINUTE)
    (due,) = owed(slow, TERMS).values()
    assert (due.broken, due.nano) == ({"ready"}, sum(charge.nano for charge in slow.charges) // 10)
    fails = BEGIN + HOUR
    worst = lease(
        "gold", charged((BEGIN, fails)), ended=(fails + 9 * HOUR, "machine_lost"), created_at=BEGIN - HOUR
    )
    (due,) = owed(worst, TERMS).values()
    assert due.broken == {"availability", "replacement", "ready"}
    assert due.nano == 3_600 * NANO_PER_SECOND


def test_a_failure_over_the_end_of_a_month_is_broken_in_each_month_in_which_it_is_late() -> None:
    fails = datetime(2026, 10, 31, 23, tzinfo=UTC)
    long = lease(
        "silver",
        charged((BEGIN, fails), (END + 3 * HOUR, END + 30 * HOUR)),
        ended=(END + 30 * HOUR, "released"),
    )
    found = owed(long, TERMS)
    assert set(found) == {(2026, 11)}, "the hour in October is in time, and all that is late is in November"
    assert found[2026, 11].broken == {"availability", "replacement"}


def test_what_no_hold_covered_was_used_at_our_expense_and_is_no_failure() -> None:
    ends = BEGIN + 30 * HOUR
    late = lease("gold", charged((BEGIN, ends - HOUR)), ended=(ends, "released"))
    assert {promise for due in owed(late, TERMS).values() for promise in due.broken} == {
        "availability",
        "replacement",
    }
    note = Line(ends, "use_not_billed", None)
    assert owed(replace(late, journal=[*late.journal, note]), TERMS) == {}
