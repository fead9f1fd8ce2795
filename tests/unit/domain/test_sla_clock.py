"""The clocks of promises: worked examples, and laws over any facts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.ids import MachineId
from control_plane.domain.money import Nano, accrued, usd
from control_plane.domain.sla import AvailabilityCredit, SlaTier, Terms, share
from control_plane.domain.sla_clock import (
    SETTLES_AFTER,
    Breach,
    End,
    Facts,
    HealthChange,
    Maintenance,
    Promise,
    Used,
    clocks,
)
from control_plane.domain.sla_evidence import from_outside
from control_plane.domain.tariff import Tariff
from control_plane.services.sla_terms import parse_terms

MONTH = datetime(2026, 10, 1, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
FAR = datetime(2027, 3, 1, tzinfo=UTC)
MACHINE = MachineId(UUID(int=1))
CHARGED = {MONTH: Nano(1_000_000_000_000), NOVEMBER: Nano(500_000_000_000)}
GOLD = Terms(
    tier=SlaTier.GOLD,
    ready_seconds=900,
    ready_credit_bp=1_000,
    replacement_seconds=900,
    replacement_credit_bp=2_500,
    degraded_seconds=600,
    notice_seconds=86_400,
    notice_credit_bp=500,
    availability=(AvailabilityCredit(9_990, 1_000), AvailabilityCredit(9_900, 5_000)),
    replace_before_end=True,
    priority=80,
)


def at(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """A moment of October 2026."""
    return MONTH + timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)


def facts(**other: Any) -> Facts:
    """A lease that was created with October and ready at once, with one machine."""
    values: dict[str, Any] = {
        "created_at": MONTH,
        "ready_at": MONTH,
        "end": None,
        "release_at": None,
        "used": (Used(MACHINE, MONTH, None),),
        "charged": CHARGED,
    }
    return Facts(**(values | other))


NOVEMBER_SETTLED = NOVEMBER + 2 * SETTLES_AFTER


def breaches(known: Facts, now: datetime = NOVEMBER_SETTLED, terms: Terms = GOLD) -> dict[Promise, Breach]:
    return {breach.promise: breach for breach in clocks(known, terms, now).breaches if breach.month == MONTH}


def health(
    verdict: Verdict, since: datetime, fault: FaultCode | None = None, number: int = 1
) -> HealthChange:
    return HealthChange(MACHINE, number, since, verdict, fault)


def test_a_month_without_a_failure_keeps_every_promise() -> None:
    found = clocks(facts(), GOLD, at(31, 24 + 2))
    assert found.breaches == ()
    october = found.months[0]
    assert (october.promised_seconds, october.down_seconds, october.available_bp) == (31 * 86_400, 0, 10_000)


def test_a_failure_of_two_hours_is_credited_once_for_each_promise_that_it_breaks() -> None:
    found = breaches(facts(failures=((at(10, 4), at(10, 6)),)))
    # 7,200 of 2,678,400 s are 0.2688 %: below 99.90 %, and not below 99.00 %.
    assert {promise: breach.credit_nano for promise, breach in found.items()} == {
        Promise.AVAILABILITY: 100_000_000_000,
        Promise.REPLACEMENT: 250_000_000_000,
    }
    assert found[Promise.AVAILABILITY].why == (
        "it was available for 2,671,200 of 2,678,400 s (99.73 %); 99.90 % are promised"
    )
    assert found[Promise.REPLACEMENT].since == at(10, 4, 15)
    assert "within 900 s: 6,300 s more" in found[Promise.REPLACEMENT].why


def test_the_example_of_the_page_is_what_the_shipped_terms_give() -> None:
    """docs/sla.md: 3.60 USD per hour, and two hours of October in which nothing was billed."""
    shipped = Path("control_plane/sla_terms.toml").read_text(encoding="utf-8")
    *_, gold = parse_terms(shipped)
    charged = accrued(Nano(3_600_000_000), 31 * 86_400 - 7_200)
    known = facts(failures=((at(10, 4), at(10, 6)),), charged={MONTH: charged})
    credits_usd = [usd(breach.credit_nano) for breach in breaches(known, terms=gold).values()]
    assert (usd(charged), credits_usd) == ("2671.200000000", ["267.120000000", "667.800000000"])
    page = Path("docs/sla.md").read_text(encoding="utf-8")
    assert all(figure in page for figure in ("2,671.20 USD", "267.12 USD", "667.80 USD", "934.92 USD"))
    assert breaches(facts(failures=((at(10, 4), at(10, 4, 15)),)), terms=gold) == {}


def test_a_promise_is_kept_to_the_second_and_broken_one_second_later() -> None:
    for seconds, broken in ((900, False), (901, True)):
        failed = ((at(10), at(10) + timedelta(seconds=seconds)),)
        assert (Promise.REPLACEMENT in breaches(facts(failures=failed))) is broken, seconds
        late = facts(ready_at=MONTH + timedelta(seconds=seconds))
        assert (Promise.READY in breaches(late)) is broken, seconds


def test_a_node_that_ended_with_its_machine_breaks_no_promise_of_a_replacement() -> None:
    """Its pool gets another lease for it."""
    lost = facts(end=End(at(10), by_us=True))
    assert Promise.REPLACEMENT in breaches(lost)
    assert breaches(lost, terms=GOLD.of_node) == {}
    late = facts(ready_at=MONTH + timedelta(seconds=901))
    assert breaches(late, terms=GOLD.of_node) == breaches(late), "every other promise stands"


def test_availability_is_judged_when_the_month_is_over_and_everything_is_metered() -> None:
    known = facts(failures=((at(10, 4), at(10, 6)),))
    assert Promise.AVAILABILITY not in breaches(known, NOVEMBER)
    assert Promise.AVAILABILITY in breaches(known, NOVEMBER + SETTLES_AFTER)
    released = replace(known, end=End(at(12), by_us=False))
    assert Promise.AVAILABILITY not in breaches(released, at(12))
    assert Promise.AVAILABILITY in breaches(released, at(12) + SETTLES_AFTER)


def test_time_in_which_its_customer_had_it_stopped_is_neither_promised_nor_missed() -> None:
    stopped = (at(10), at(20))
    found = clocks(facts(stops=(stopped,), failures=((at(12), at(13)),)), GOLD, FAR).months[0]
    assert (found.promised_seconds, found.down_seconds) == (21 * 86_400, 0)


def test_a_stop_within_a_failure_pauses_the_time_to_repair_it() -> None:
    failed = ((at(10, 4), at(10, 4, 10)), (at(10, 5), at(10, 5, 5)))
    stop = (at(10, 4, 10), at(10, 5))
    assert Promise.REPLACEMENT not in breaches(facts(failures=failed, stops=(stop,)))
    longer = (failed[0], (at(10, 5), at(10, 5, 5, 1)))
    assert Promise.REPLACEMENT in breaches(facts(failures=longer, stops=(stop,)))


def test_after_its_customer_released_it_nothing_counts() -> None:
    failing = facts(failures=((at(10), None),), end=End(at(10, 0, 15), by_us=False))
    assert Promise.REPLACEMENT not in breaches(failing, FAR)
    assert Promise.READY not in breaches(facts(ready_at=None, end=End(at(1, 0, 15), by_us=False)), FAR)
    assert Promise.READY in breaches(facts(ready_at=None, end=End(at(1, 0, 15, 1), by_us=False)), FAR)


def test_a_lease_that_ends_with_its_machine_was_not_replaced() -> None:
    lost = facts(failures=((at(10), None),), end=End(at(10, 0, 2), by_us=True))
    assert Promise.REPLACEMENT not in breaches(lost, at(10, 0, 15))
    assert breaches(lost, at(10, 0, 16))[Promise.REPLACEMENT].since == at(10)
    ending_anyway = replace(lost, release_at=at(10, 0, 15))
    assert Promise.REPLACEMENT not in breaches(ending_anyway, FAR)


def test_degraded_gpus_count_after_the_grace_and_only_when_we_saw_it_ourselves() -> None:
    broken = [
        health(Verdict.QUARANTINED, at(10, 4), FaultCode.GPU_LOST),
        health(Verdict.HEALTHY, at(10, 6), number=2),
    ]
    assert clocks(facts(health=broken), GOLD, FAR).months[0].down_seconds == 2 * 3_600 - 600
    claimed = [replace(broken[0], verdict=Verdict.DEGRADED), broken[1]]
    assert clocks(facts(health=claimed), GOLD, FAR).months[0].down_seconds == 0
    works = [
        replace(broken[0], verdict=Verdict.MAINTENANCE_REQUIRED, fault=FaultCode.EVICTION_ANNOUNCED),
        broken[1],
    ]
    assert clocks(facts(health=works), GOLD, FAR).months[0].down_seconds == 0
    assert clocks(facts(health=broken), replace(GOLD, degraded_seconds=None), FAR).months[0].down_seconds == 0


def test_a_machine_counts_while_the_lease_has_it() -> None:
    known = facts(
        used=(Used(MACHINE, MONTH, at(10, 5)), Used(MachineId(UUID(int=2)), at(10, 5), None)),
        health=[health(Verdict.QUARANTINED, at(10, 4), FaultCode.GPU_LOST)],
    )
    assert clocks(known, GOLD, FAR).months[0].down_seconds == 3_600 - 600


def test_maintenance_counts_unless_it_was_announced_in_time() -> None:
    work = Maintenance(MACHINE, at(9, 4), at(10, 4), at(10, 6))
    failed = ((at(10, 4), at(10, 6)),)
    in_time = facts(maintenance=(work,), failures=failed)
    assert clocks(in_time, GOLD, FAR).months[0].down_seconds == 0
    assert Promise.NOTICE not in breaches(in_time)
    late = replace(work, announced_at=at(9, 4, 0, 1))
    assert clocks(facts(maintenance=(late,)), GOLD, FAR).months[0].down_seconds == 7_200
    assert breaches(facts(maintenance=(late,)))[Promise.NOTICE].credit_bp == 500


def test_all_credits_of_a_month_together_are_never_more_than_what_was_charged() -> None:
    dear = replace(
        GOLD,
        availability=(AvailabilityCredit(9_990, 8_000),),
        replacement_credit_bp=5_000,
        ready_credit_bp=9_000,
    )
    known = facts(ready_at=at(1, 1), failures=((at(10), at(11)),))
    found = breaches(known, terms=dear)
    assert [breach.credit_nano for breach in found.values()] == [800_000_000_000, 200_000_000_000, 0]


def test_a_failure_over_the_end_of_a_month_counts_in_both() -> None:
    known = facts(failures=((NOVEMBER - timedelta(hours=1), NOVEMBER + timedelta(hours=2)),))
    found = clocks(known, GOLD, FAR)
    assert [month.down_seconds for month in found.months[:2]] == [3_600, 7_200]
    assert [breach.month for breach in found.breaches if breach.promise is Promise.REPLACEMENT] == [
        MONTH,
        NOVEMBER,
    ]


def test_a_share_is_rounded_half_to_even() -> None:
    assert [share(Nano(amount), 5_000) for amount in (1, 2, 3, 5, 7)] == [0, 1, 2, 2, 4]


@given(st.integers(0, 999_999), st.integers(0, 999_999), st.integers(1, 100))
def test_the_time_that_counts_as_failed_is_the_time_that_is_not_billed(
    begins: int, resumes: int, seconds: int
) -> None:
    paused = (
        at(10) + timedelta(microseconds=begins),
        at(10) + timedelta(seconds=seconds, microseconds=resumes),
    )
    bill = Tariff(
        ready_at=MONTH,
        units=1,
        nano_per_unit_hour=Nano(1),
        stopped_nano_per_unit_hour=Nano(1),
        paused_at=paused,
    )
    (october, *_) = clocks(facts(failures=(paused,)), GOLD, NOVEMBER_SETTLED).months
    billed = bill.unit_seconds_until(NOVEMBER, stopped=False)
    assert october.down_seconds == (NOVEMBER - MONTH) // timedelta(seconds=1) - billed


def test_a_failure_in_two_parts_is_one_for_the_lease_that_ends_with_it() -> None:
    whole = facts(failures=((at(10), None),), end=End(at(10, 0, 2), by_us=True))
    parts = replace(whole, failures=((at(10), at(10, 0, 1)), (at(10, 0, 1), None)))
    assert clocks(parts, GOLD, FAR) == clocks(whole, GOLD, FAR)


def test_an_envelope_that_holds_a_lease_back_stops_the_clock_until_it_is_ready() -> None:
    held = ((at(1, 0, 5), at(1, 2, 5)),)
    in_time = facts(ready_at=at(1, 2, 15), held=held)
    assert Promise.READY in breaches(replace(in_time, held=())), "2 h 15 min are too late without it"
    assert Promise.READY not in breaches(in_time)
    assert (clocks(in_time, GOLD, NOVEMBER).ready_seconds, clocks(in_time, GOLD, NOVEMBER).held_seconds) == (
        900,
        7_200,
    )
    late = breaches(replace(in_time, ready_at=at(1, 2, 15, 1)))[Promise.READY]
    assert late.since == at(1, 2, 15), "15 min after its creation, without the time in which it was held"
    assert late.why == (
        "it was ready after 901 s; 900 s are promised without the 7,200 s in which your own envelope held it back"
    )
    waiting = facts(ready_at=None, held=((at(1, 0, 5), None),))
    assert clocks(waiting, GOLD, at(9)).breaches == (), "it may be held for ever"
    assert clocks(waiting, GOLD, at(9)).ready_seconds == 300


def test_an_envelope_that_lets_a_lease_have_no_other_machine_stops_the_clocks_of_its_failure() -> None:
    failed = facts(failures=((at(10, 4), at(10, 6)),))
    held = replace(failed, held=((at(10, 4, 10), at(10, 5, 56)),))
    assert breaches(failed).keys() == {Promise.AVAILABILITY, Promise.REPLACEMENT}
    assert breaches(held) == {}, "14 of 120 minutes are ours"
    (october, *_) = clocks(held, GOLD, NOVEMBER_SETTLED).months
    assert (october.promised_seconds, october.down_seconds) == (31 * 86_400 - 6_360, 840)
    gave_up = facts(
        failures=((at(10, 4), None),), held=((at(10, 4, 10), None),), end=End(at(10, 5), by_us=True)
    )
    assert Promise.REPLACEMENT not in breaches(gave_up)
    assert Promise.REPLACEMENT in breaches(replace(gave_up, held=()))
    too_late = replace(gave_up, held=((at(10, 4, 16), None),))
    assert Promise.REPLACEMENT in breaches(too_late), "it was late before it was held"


def test_who_hands_back_a_machine_that_was_fit_is_not_paid_for_having_none() -> None:
    other = Used(MachineId(UUID(int=2)), at(10, 6, 0, 1), None)
    used = (Used(MACHINE, MONTH, at(10, 4, 0, 20), handed_back=True), other)
    replaced = facts(failures=((at(10, 4), at(10, 6, 0, 1)),), used=used)
    assert breaches(replaced) == {}
    (october, *_) = clocks(replaced, GOLD, NOVEMBER_SETTLED).months
    assert (october.promised_seconds, october.down_seconds) == (31 * 86_400 - 7_201, 0)
    seen = health(Verdict.QUARANTINED, at(10, 3, 59), FaultCode.GPU_LOST)
    rumour = health(Verdict.DEGRADED, at(10, 3, 59), FaultCode.GPU_LOST)
    both = {Promise.AVAILABILITY, Promise.REPLACEMENT}
    assert breaches(replace(replaced, health=(rumour,))) == {}, "the machine alone says so"
    assert breaches(replace(replaced, health=(seen,))).keys() == both
    assert breaches(replace(replaced, used=(replace(used[0], handed_back=False), other))).keys() == both
    later = replace(replaced, failures=(*replaced.failures, (at(12), at(12, 2))))
    assert breaches(later).keys() == both, "another failure is not excused by it"
    never = replace(replaced, used=used[:1], failures=((at(10, 4), None),), end=End(at(10, 8), by_us=True))
    assert breaches(never) == {}


def test_time_in_which_a_machine_may_have_been_shut_down_from_inside_breaks_no_promise() -> None:
    both = {Promise.AVAILABILITY, Promise.REPLACEMENT}
    paused = facts(failures=((at(10, 4), at(10, 6, 0, 1)),), used=(Used(MACHINE, MONTH, None),))
    assert breaches(paused).keys() == both
    assert breaches(replace(paused, unattributed=paused.failures)) == {}, "it ran again"
    lost = Used(MACHINE, MONTH, at(10, 5))
    other = Used(MachineId(UUID(int=2)), at(10, 6, 0, 1), None)
    replaced = replace(paused, used=(lost, other))
    assert breaches(replaced).keys() == both
    shut_down = replace(replaced, used=(replace(lost, unattributed=True), other))
    assert breaches(shut_down) == {}, "another machine came in its place"
    later = replace(shut_down, failures=(*shut_down.failures, (at(12), at(12, 2))))
    assert breaches(later).keys() == both, "another failure is not excused by it"
    ended = replace(shut_down, used=shut_down.used[:1], failures=((at(10, 4), None),))
    assert breaches(replace(ended, end=End(at(10, 8), by_us=True))) == {}


# Laws

_MOMENTS = st.integers(0, 40 * 86_400).map(lambda second: MONTH + timedelta(seconds=second))
_SPANS = st.lists(
    st.tuples(_MOMENTS, st.integers(0, 3 * 86_400)).map(
        lambda found: (found[0], found[0] + timedelta(seconds=found[1]))
    ),
    max_size=6,
)
_CHANGES = st.lists(
    st.builds(
        HealthChange,
        st.just(MACHINE),
        st.integers(0, 2**30),
        _MOMENTS,
        st.sampled_from(Verdict),
        st.sampled_from([None, FaultCode.GPU_LOST, FaultCode.EVICTION_ANNOUNCED]),
    ),
    max_size=6,
    unique_by=lambda change: change.number,
)
_WORK = st.lists(
    st.tuples(_MOMENTS, st.integers(0, 4 * 86_400), st.integers(0, 86_400)).map(
        lambda found: Maintenance(
            MACHINE,
            found[0],
            found[0] + timedelta(seconds=found[1]),
            found[0] + timedelta(seconds=found[1] + found[2]),
        )
    ),
    max_size=3,
)
_ENDS = st.none() | st.builds(End, _MOMENTS, by_us=st.booleans())
_FACTS = st.builds(
    facts,
    ready_at=_MOMENTS,
    end=_ENDS,
    release_at=st.none() | _MOMENTS,
    failures=_SPANS,
    stops=_SPANS,
    held=_SPANS,
    health=_CHANGES,
    maintenance=_WORK,
    charged=st.fixed_dictionaries({MONTH: st.integers(0, 10**13), NOVEMBER: st.integers(0, 10**13)}),
)
_Spans = Sequence[tuple[datetime, datetime]]


def _credits(known: Facts, now: datetime = FAR) -> dict[datetime, int]:
    found: dict[datetime, int] = {}
    for breach in clocks(known, GOLD, now).breaches:
        found[breach.month] = found.get(breach.month, 0) + breach.credit_nano
    return found


@given(_FACTS, st.randoms(use_true_random=False))
def test_facts_in_any_order_and_replayed_give_the_same_figures(known: Facts, random: Random) -> None:
    def shuffled(found: Sequence[Any]) -> tuple[Any, ...]:
        twice = [*found, *found]
        random.shuffle(twice)
        return tuple(twice)

    replayed = replace(
        known,
        failures=shuffled(known.failures),
        stops=shuffled(known.stops),
        held=shuffled(known.held),
        used=shuffled(known.used),
        health=shuffled(known.health),
        maintenance=shuffled(known.maintenance),
    )
    assert clocks(replayed, GOLD, FAR) == clocks(known, GOLD, FAR)


@given(_FACTS, _MOMENTS)
def test_time_cut_anywhere_gives_the_same_figures(known: Facts, cut: datetime) -> None:
    def halves(
        found: Sequence[tuple[datetime, datetime | None]],
    ) -> tuple[tuple[datetime, datetime | None], ...]:
        return tuple(
            half
            for since, until in found
            for half in (
                [(since, cut), (cut, until)]
                if since < cut and (until is None or cut < until)
                else [(since, until)]
            )
        )

    in_halves = replace(
        known, failures=halves(known.failures), stops=halves(known.stops), held=halves(known.held)
    )
    assert clocks(in_halves, GOLD, FAR) == clocks(known, GOLD, FAR)


@given(_FACTS, st.tuples(_MOMENTS, st.integers(1, 3 * 86_400)))
def test_more_downtime_never_lowers_a_credit(known: Facts, more: tuple[datetime, int]) -> None:
    longer = (more[0], more[0] + timedelta(seconds=more[1]))
    before, after = _credits(known), _credits(replace(known, failures=(*known.failures, longer)))
    assert all(after.get(month, 0) >= credit for month, credit in before.items())


@given(_FACTS, _MOMENTS)
def test_credits_of_a_month_never_exceed_what_was_charged_for_it(known: Facts, now: datetime) -> None:
    for month, credit in _credits(known, now).items():
        assert 0 <= credit <= known.charged.get(month, 0)


@given(_FACTS, st.integers(0, 10**7))
def test_once_a_month_is_settled_only_other_facts_change_it(known: Facts, later: int) -> None:
    ended = replace(known, end=known.end or End(NOVEMBER + timedelta(days=9), by_us=False))
    now = NOVEMBER + timedelta(days=41)
    assert clocks(ended, GOLD, now + timedelta(seconds=later)) == clocks(ended, GOLD, now)


@given(_FACTS)
def test_no_more_time_is_missed_than_was_promised(known: Facts) -> None:
    for month in clocks(known, GOLD, FAR).months:
        assert 0 <= month.down_seconds <= month.promised_seconds


OTHER = MachineId(UUID(int=2))
LATE = Used(OTHER, at(10, 6), None)


def from_provider(fault: FaultCode, since: datetime, number: int = 1) -> HealthChange:
    return health(Verdict.LOST, since, fault, number)


def test_what_only_the_machine_shows_is_left_out_of_the_facts_from_outside() -> None:
    """A broken GPU, and the time without a machine that was taken away for it."""
    broken = facts(health=[health(Verdict.QUARANTINED, at(10, 4), FaultCode.GPU_LOST)])
    taken = facts(
        health=[health(Verdict.QUARANTINED, at(10, 4), FaultCode.PROOF_FAILED)],
        failures=[(at(10, 5), at(10, 8))],
        used=[Used(MACHINE, MONTH, at(10, 5)), replace(LATE, since=at(10, 8))],
    )
    lost = facts(
        end=End(at(10, 8), by_us=True, disproven=True),
        failures=[(at(10, 5), None)],
        used=[Used(MACHINE, MONTH, at(10, 8))],
    )
    gave_up = facts(
        end=End(at(10, 8), by_us=True),
        failures=[(at(10, 5), None), (at(10, 5), None)],
        health=[health(Verdict.QUARANTINED, at(10, 4), FaultCode.PROOF_FAILED)],
        used=[Used(MACHINE, MONTH, at(10, 5))],
    )
    for name, known in {"broken": broken, "taken": taken, "lost": lost, "gave_up": gave_up}.items():
        assert breaches(known), name
        assert not breaches(from_outside(known)), name
        assert breaches(from_outside(known, {MACHINE})) == breaches(known), f"{name}: another source shows it"


def test_what_somebody_else_says_stays_in_the_facts_from_outside() -> None:
    used = [Used(MACHINE, MONTH, at(10, 5, 30)), LATE]
    for name, known in {
        "failed": facts(failures=[(at(10, 4), at(10, 6))]),
        "replaced": facts(
            failures=[(at(10, 4), at(10, 6))],
            health=[
                health(Verdict.QUARANTINED, at(10, 3), FaultCode.GPU_LOST),
                from_provider(FaultCode.PROVIDER_MISSING, at(10, 5), 2),
            ],
            used=used,
        ),
        "ended": facts(
            end=End(at(10, 8), by_us=True),
            failures=[(at(10, 4), None)],
            used=[Used(MACHINE, MONTH, at(10, 8))],
        ),
        "late": facts(ready_at=at(2)),
        "work": facts(maintenance=[Maintenance(MACHINE, at(9, 23), at(10), at(11))]),
    }.items():
        found = breaches(known)
        assert found, name
        assert {
            promise for promise, breach in breaches(from_outside(known)).items() if breach.credit_nano
        } == {promise for promise, breach in found.items() if breach.credit_nano}, name


def test_a_fit_machine_that_was_handed_back_earns_nothing_from_outside_either() -> None:
    """A fault that only the machine shows must not turn into one that its provider confirms."""
    known = facts(
        failures=[(at(10, 5), at(10, 9))],
        health=[health(Verdict.QUARANTINED, at(10, 4), FaultCode.GPU_LOST)],
        used=[Used(MACHINE, MONTH, at(10, 5), handed_back=True), replace(LATE, since=at(10, 9))],
    )
    assert Promise.REPLACEMENT in breaches(known)
    assert not breaches(from_outside(known))


@given(_FACTS)
def test_evidence_from_outside_never_gives_more_than_all_of_it(known: Facts) -> None:
    every, certain = _credits(known), _credits(from_outside(known))
    assert all(credit <= every.get(month, 0) for month, credit in certain.items())
