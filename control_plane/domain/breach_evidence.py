"""What a broken promise was found by: figures and facts as they are stored, and as a list that people read.

The list has what matters to the promise alone, in the order of time, and says for each fact where it is from, because
not every source weighs the same (`sla_evidence.py`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.health import RULES
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.period import month_after
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import (
    Cause,
    Clocks,
    Down,
    Facts,
    HealthChange,
    Maintenance,
    Promise,
    Used,
    last_change,
)
from control_plane.domain.sla_evidence import FactSource, source_of

SPANS_MAX = 100
"""How many facts of a kind an evidence names; the sums are of all of them."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known."""

    at: datetime
    until: datetime | None
    """For what lasted; None for what happened at a moment, or had not ended."""
    what: str
    source: FactSource


@dataclass(frozen=True, slots=True, kw_only=True)
class BreachEvidence:
    """The figures from which anybody can compute a credit again, and the facts that they follow from."""

    tier: SlaTier | None = None
    terms: int | None = None
    """The version of its terms."""
    month: datetime | None = None
    created_at: datetime | None = None
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by_us: bool = False
    ready_seconds: int = 0
    held: tuple[tuple[datetime, datetime | None], ...] = ()
    held_seconds: int = 0
    handed_back: tuple[Used, ...] = ()
    promised_seconds: int = 0
    down_seconds: int = 0
    down: tuple[Down, ...] = ()
    down_spans: int = 0
    """How many there are of `down`, which has the first ones alone."""
    health: tuple[HealthChange, ...] = ()
    """The verdicts about its machines while it had them, up to the end of the month; the last ones."""
    maintenance: tuple[Maintenance, ...] = ()
    charged_nano: Nano = NOTHING
    credit_bp: int = 0


def evidence_of(
    facts: Facts, judged: Clocks, month: datetime, *, tier: SlaTier, terms: int, credit_bp: int
) -> BreachEvidence:
    """The evidence of what was, or was not, broken in a month. Empty for a month that the clocks do not have."""
    seen = next((each for each in judged.months if each.month == month), None)
    if seen is None:
        return BreachEvidence()
    over = month_after(month)
    return BreachEvidence(
        tier=tier,
        terms=terms,
        month=month,
        created_at=facts.created_at,
        ready_at=facts.ready_at,
        ended_at=None if facts.end is None else facts.end.at,
        ended_by_us=facts.end is not None and facts.end.by_us,
        ready_seconds=judged.ready_seconds,
        held=tuple(facts.held[:SPANS_MAX]),
        held_seconds=judged.held_seconds,
        handed_back=tuple(use for use in facts.used if use.handed_back)[:SPANS_MAX],
        promised_seconds=seen.promised_seconds,
        down_seconds=seen.down_seconds,
        down=seen.down[:SPANS_MAX],
        down_spans=len(seen.down),
        health=tuple(_verdicts(facts, over)[-SPANS_MAX:]),
        maintenance=tuple(work for work in facts.maintenance if work.begins_at < over)[-SPANS_MAX:],
        charged_nano=seen.charged_nano,
        credit_bp=credit_bp,
    )


def _verdicts(facts: Facts, over: datetime) -> list[HealthChange]:
    """The verdicts about its machines that were in force while it had them, before `over`."""
    found = set[HealthChange]()
    for used in facts.used:
        before = last_change(facts.health, used.machine_id, used.since)
        found |= set() if before is None else {before}
        found |= {
            change
            for change in facts.health
            if change.machine_id == used.machine_id
            and used.since <= change.at < over
            and (used.until is None or change.at <= used.until)
        }
    return sorted(found, key=lambda change: (change.at, change.number))


def facts_of(promise: Promise, evidence: BreachEvidence) -> Sequence[Fact]:
    """The facts of a breach, the oldest first."""
    return sorted(_facts(promise, evidence), key=lambda fact: fact.at)


def _facts(promise: Promise, evidence: BreachEvidence) -> Iterator[Fact]:
    if promise is Promise.READY:
        yield from _until_ready(evidence)
        return
    if promise is Promise.NOTICE:
        yield from _works(evidence)
        return
    causes = {Cause.FAILED} if promise is Promise.REPLACEMENT else set(Cause)
    yield from (_down(part) for part in evidence.down if part.cause in causes)
    yield from map(_verdict, evidence.health)
    for used in evidence.handed_back:
        if used.until is not None:
            what = f"its customer handed machine {on_wire(Prefix.MACHINE, used.machine_id)} back"
            yield Fact(used.until, None, what, FactSource.CUSTOMER)
    if Cause.MAINTENANCE in causes:
        yield from _works(evidence)
    if evidence.ended_at is not None:
        what = "the lease ended, because its machine failed" if evidence.ended_by_us else "the lease ended"
        yield Fact(evidence.ended_at, None, what, FactSource.JOURNAL)


def _until_ready(evidence: BreachEvidence) -> Iterator[Fact]:
    if evidence.created_at is not None:
        yield Fact(evidence.created_at, None, "the lease was created", FactSource.JOURNAL)
    for since, until in evidence.held:
        what = "its customer's own envelope kept it from being placed"
        yield Fact(since, until, what, FactSource.CUSTOMER)
    if evidence.ready_at is not None:
        what = f"the lease was ready, {evidence.ready_seconds:,} s after it was created"
        what += f" without {evidence.held_seconds:,} s in which it was held back" if evidence.held else ""
        yield Fact(evidence.ready_at, None, what, FactSource.JOURNAL)


_DOWN = {
    Cause.FAILED: ("its machine had failed, or was being replaced; nothing was billed", FactSource.BILL),
    Cause.BROKEN: ("a part of what was sold did not work, after the grace of the tier", FactSource.MACHINE),
    Cause.MAINTENANCE: ("maintenance that was announced later than promised", FactSource.OPERATOR),
}


def _down(part: Down) -> Fact:
    words, source = _DOWN[part.cause]
    return Fact(part.since, part.until, f"not available for {part.seconds:,} s: {words}", source)


def _verdict(change: HealthChange) -> Fact:
    machine = f"machine {on_wire(Prefix.MACHINE, change.machine_id)}"
    words = change.verdict.replace("_", " ")
    if change.fault is None:
        return Fact(change.at, None, f"{machine} was {words} again", FactSource.JOURNAL)
    what = f"{machine} was {words}: {RULES[change.fault].words}"
    return Fact(change.at, None, what, source_of(change.fault))


def _works(evidence: BreachEvidence) -> Iterator[Fact]:
    for work in evidence.maintenance:
        what = f"maintenance of machine {on_wire(Prefix.MACHINE, work.machine_id)}"
        source = FactSource.PROVIDER if work.by_provider else FactSource.OPERATOR
        yield Fact(work.announced_at, None, f"{what} was announced", source)
        if work.until is not None and work.until <= work.begins_at:
            yield Fact(work.until, None, f"{what} was called off", source)
        else:
            yield Fact(work.begins_at, work.until, what, source)
