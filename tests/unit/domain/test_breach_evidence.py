"""The facts of a broken promise, each with its time and its source."""

from datetime import timedelta
from uuid import UUID

from control_plane.domain.breach_evidence import BreachEvidence, evidence_of, facts_of
from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.ids import MachineId
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import Facts, HealthChange, Maintenance, Promise, Used, clocks
from control_plane.domain.sla_evidence import FactSource
from tests.unit.domain.test_sla_clock import GOLD, MACHINE, MONTH, NOVEMBER_SETTLED, at, facts, health

OTHER = MachineId(UUID(int=2))


def evidence(known: Facts) -> BreachEvidence:
    judged = clocks(known, GOLD, NOVEMBER_SETTLED)
    return evidence_of(known, judged, MONTH, tier=SlaTier.GOLD, terms=2, credit_bp=1_000)


def test_a_failure_is_told_by_the_seconds_that_were_not_billed_and_by_who_says_so() -> None:
    lost = HealthChange(MACHINE, 1, at(10, 4), Verdict.LOST, FaultCode.PROVIDER_DOWN)
    good = HealthChange(MACHINE, 2, at(10, 6), Verdict.HEALTHY, None)
    found = evidence(facts(failures=[(at(10, 4), at(10, 6))], health=[good, lost]))
    for promise in (Promise.AVAILABILITY, Promise.REPLACEMENT):
        told = [(fact.at, fact.until, fact.source) for fact in facts_of(promise, found)]
        assert sorted(told, key=str) == sorted(
            [
                (at(10, 4), at(10, 6), FactSource.BILL),
                (at(10, 4), None, FactSource.PROVIDER),
                (at(10, 6), None, FactSource.JOURNAL),
            ],
            key=str,
        ), promise
    down = next(fact for fact in facts_of(Promise.REPLACEMENT, found) if fact.source is FactSource.BILL)
    assert down.what.startswith("not available for 7,200 s: its machine had failed")


def test_a_broken_part_is_told_with_the_verdict_that_shows_it() -> None:
    found = evidence(
        facts(
            health=[
                health(Verdict.QUARANTINED, at(5, 1), FaultCode.GPU_LOST),
                health(Verdict.HEALTHY, at(5, 2), number=2),
            ]
        )
    )
    told = list(facts_of(Promise.AVAILABILITY, found))
    assert [fact.source for fact in told] == [FactSource.MACHINE, FactSource.MACHINE, FactSource.JOURNAL]
    assert told[0].what.endswith("was quarantined: a GPU does not answer")
    assert (told[1].at, told[1].until) == (at(5, 1, 10), at(5, 2)), "after the grace of gold, ten minutes"
    assert list(facts_of(Promise.NOTICE, found)) == []


def test_a_lease_that_is_ready_late_is_told_by_our_journal_and_its_own_envelope() -> None:
    known = facts(ready_at=at(1, 1), held=[(at(1, 0, 10), at(1, 0, 20))], used=())
    told = [(fact.at, fact.source) for fact in facts_of(Promise.READY, evidence(known))]
    assert told == [
        (MONTH, FactSource.JOURNAL),
        (at(1, 0, 10), FactSource.CUSTOMER),
        (at(1, 1), FactSource.JOURNAL),
    ]


def test_maintenance_is_told_with_its_announcement() -> None:
    work = Maintenance(MACHINE, at(3), at(3, 1), at(3, 2))
    told = [
        (fact.at, fact.until, fact.source)
        for fact in facts_of(Promise.NOTICE, evidence(facts(maintenance=[work])))
    ]
    assert told == [(at(3), None, FactSource.OPERATOR), (at(3, 1), at(3, 2), FactSource.OPERATOR)]


def test_work_that_its_provider_called_off_is_told_as_that() -> None:
    """A lease of which another promise was broken meanwhile."""
    work = Maintenance(MACHINE, at(3), at(9), at(4), by_provider=True)
    announced, called_off = facts_of(Promise.NOTICE, BreachEvidence(maintenance=(work,)))
    assert (announced.at, announced.until, announced.source) == (at(3), None, FactSource.PROVIDER)
    assert (called_off.at, called_off.until, called_off.source) == (at(4), None, FactSource.PROVIDER)
    assert called_off.what.endswith("was called off")


def test_verdicts_from_when_the_lease_did_not_have_the_machine_are_not_told() -> None:
    """Before, and afterwards, somebody else may have it."""
    changes = [
        HealthChange(OTHER, 1, at(2), Verdict.DEGRADED, FaultCode.NVLINK_DOWN),
        HealthChange(OTHER, 2, at(4), Verdict.HEALTHY, None),
        HealthChange(OTHER, 3, at(6), Verdict.QUARANTINED, FaultCode.GPU_LOST),
        HealthChange(OTHER, 4, at(9), Verdict.LOST, FaultCode.PROVIDER_DOWN),
    ]
    known = facts(used=(Used(OTHER, at(5), at(7)),), health=changes)
    assert [change.number for change in evidence(known).health] == [2, 3]


def test_a_month_that_the_lease_did_not_have_has_no_evidence_and_nothing_is_told_of_it() -> None:
    known = facts()
    judged = clocks(known, GOLD, NOVEMBER_SETTLED)
    early = MONTH - timedelta(days=31)
    found = evidence_of(known, judged, early, tier=SlaTier.GOLD, terms=2, credit_bp=0)
    assert found == BreachEvidence()
    assert [list(facts_of(promise, found)) for promise in Promise] == [[], [], [], []]
