"""The clocks of a lease's promises: what was kept, what was broken, and what is given back for it.

Everything is computed from facts, so a restart changes nothing, and evidence that arrives late gives the figures that
it would have given in time. All times are whole seconds, and all spans are half open: `since` belongs to them, `until`
does not. A promise is judged for each calendar month (UTC), and what is given back for a month is a share of what the
lease was charged for it, so it never exceeds that.

What counts as time in which a lease was not available, while it was ready:

- time in which its bill was paused, because its machine failed or was being replaced, and the time from the failure of
  a machine with which the lease ended. These are the seconds that nobody paid for: bill and promise never disagree;
- time in which a part of what was sold did not work, after the grace of its tier. Only what we saw ourselves counts.
  What a machine says about itself moves no money (law 11);
- maintenance, by us or by the provider of its machine, that was announced later than promised.

Time in which the customer had the machine stopped does not count, neither as promised time nor as lack of it. Nor does
time in which the customer's own envelope kept the lease from being placed, before it was ready or after its machine
failed, nor time without a machine because the customer handed one back that was fit by all that we knew, nor time in
which it did not run without its provider calling that a failure (`outage.py`): otherwise whoever hands machines back,
or shuts them down, would be paid for it. After the customer released the lease, nothing counts. Time in which
we could not look counts as available: losing contact is no failure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from control_plane.domain.health import STILL_WORKS, UNFIT, FaultCode, Verdict
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import EndReason
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.period import month_after, month_of
from control_plane.domain.sla import WHOLE_BP, Terms, share
from control_plane.domain.span import Run, Span, common, floor, joined, runs_of, spans_of, total, without
from control_plane.domain.tariff import billing_start

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTLES_AFTER = timedelta(minutes=1)
"""How long after the end of a month, or of a lease, what is given back for it is computed."""
BROKEN = frozenset({Verdict.MAINTENANCE_REQUIRED, Verdict.QUARANTINED})
"""Verdicts that no machine reaches by its own word alone."""
LOST_BY_US = frozenset({EndReason.MACHINE_LOST, EndReason.EVICTED, EndReason.PROOF_FAILED})
"""Ends of a lease that nobody wanted."""


class Promise(StrEnum):
    """What is promised, in the order in which credits of a month are added up."""

    AVAILABILITY = "availability"
    REPLACEMENT = "replacement"
    READY = "ready"
    NOTICE = "notice"


class Cause(StrEnum):
    """Why a lease was not available."""

    FAILED = "failed"
    """Its machine failed, or was being replaced. Nothing was billed."""
    BROKEN = "broken"
    """A part of what was sold did not work."""
    MAINTENANCE = "maintenance"
    """We worked on its machine without the promised notice."""


@dataclass(frozen=True, slots=True)
class Used:
    """A machine that the lease had."""

    machine_id: MachineId
    since: datetime
    until: datetime | None
    """None while it has it."""
    handed_back: bool = False
    """Whether its customer asked for another one in its place."""
    unattributed: bool = False
    """Whether it did not run when the lease lost it, and its provider did not call that a failure (`outage.py`)."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """The verdict about a machine from a moment on."""

    machine_id: MachineId
    number: int
    """Orders changes of the same moment."""
    at: datetime
    verdict: Verdict
    fault: FaultCode | None


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Work on a machine, ours or its provider's."""

    machine_id: MachineId
    announced_at: datetime
    begins_at: datetime
    until: datetime | None
    """None while it is not over."""
    by_provider: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """How a lease ended."""

    at: datetime
    by_us: bool
    """Its machine failed; nobody wanted the end."""
    disproven: bool = False
    """Its machine failed its GPU proof."""


def end_of(at: datetime | None, reason: EndReason | None, *, was_ready: bool) -> End | None:
    """How a lease ended at a moment. One that gave up waiting for another machine had lost its own."""
    if at is None or reason is None:
        return None
    by_us = reason in LOST_BY_US or (reason is EndReason.NO_CAPACITY and was_ready)
    return End(at, by_us, reason is EndReason.PROOF_FAILED)


def in_turn(moments: Sequence[datetime]) -> list[tuple[datetime, datetime | None]]:
    """Moments at which something began and ended in turn, as pairs. The last one may not have ended."""
    ends: list[datetime | None] = [*moments[1::2]]
    return list(zip(moments[::2], [*ends, None], strict=False))


def failures_of(
    paused_at: Sequence[datetime],
    failed: tuple[datetime | None, datetime | None],
    end: End | None,
    billed_until: datetime | None,
) -> list[tuple[datetime, datetime | None]]:
    """The failures of a lease's machines, by its bill: they are the time that nobody pays for.

    `failed` is when a machine that its provider lists as failed, or did when the lease ended, was last seen running,
    and since when it is again, if its downtime has not ended yet. A lease that ended with its machine was billed until
    that failed.
    """
    found = in_turn(paused_at)
    since, until = failed
    if since is not None:
        found.append((since, until))
    if end is not None and end.by_us and billed_until is not None:
        found.append((billed_until, None))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about a lease. The order of facts does not matter, nor does a fact that is there twice."""

    created_at: datetime
    ready_at: datetime | None
    end: End | None
    release_at: datetime | None
    """When its customer wants it released by itself; None without a limit."""
    failures: Sequence[tuple[datetime, datetime | None]] = ()
    """From when to when its bill was paused, or its machine was down as failed; None while that lasts."""
    stops: Sequence[tuple[datetime, datetime | None]] = ()
    """From when to when its customer had the machine stopped."""
    unattributed: Sequence[tuple[datetime, datetime | None]] = ()
    """Those of the failures that were not its provider's doing, as far as anybody knows (`outage.py`)."""
    held: Sequence[tuple[datetime, datetime | None]] = ()
    """From when to when its customer's own envelope kept it from being placed."""
    used: Sequence[Used] = ()
    health: Sequence[HealthChange] = ()
    maintenance: Sequence[Maintenance] = ()
    charged: Mapping[datetime, Nano] = field(default_factory=dict[datetime, Nano])
    """What it was charged for each month, by the first instant of the month."""


def covers(failure: tuple[datetime, datetime | None], at: datetime) -> bool:
    """Whether a failure had begun and was not over at a moment."""
    since, until = failure
    return since <= at and (until is None or at < until)


def last_change(health: Sequence[HealthChange], machine_id: MachineId, at: datetime) -> HealthChange | None:
    """The verdict about a machine that was in force at a moment."""
    changes = [change for change in health if change.machine_id == machine_id and change.at <= at]
    return max(changes, key=lambda change: (change.at, change.number), default=None)


@dataclass(frozen=True, slots=True)
class Down:
    """Time in which the lease was not available, and why."""

    since: datetime
    until: datetime
    cause: Cause

    @property
    def seconds(self) -> int:
        return Span(self.since, self.until).seconds


def available_bp(promised_seconds: int, down_seconds: int) -> int:
    """An availability in basis points, rounded down."""
    if not promised_seconds:
        return WHOLE_BP
    return (promised_seconds - down_seconds) * WHOLE_BP // promised_seconds


@dataclass(frozen=True, slots=True)
class Month:
    """The availability of a lease in a month, so far."""

    month: datetime
    promised_seconds: int
    """In which it was to be available."""
    down_seconds: int
    down: tuple[Down, ...]
    """The parts of it by their cause. They may overlap, so they may add up to more."""
    charged_nano: Nano
    settled: bool
    """Whether the month is over for the lease: only late evidence can change its figures."""

    @property
    def available_bp(self) -> int:
        """The availability in basis points, rounded down."""
        return available_bp(self.promised_seconds, self.down_seconds)


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was broken in a month."""

    promise: Promise
    month: datetime
    since: datetime
    """When it began to be broken."""
    credit_bp: int
    """The share of what was charged for the month that the terms give back, before the cap of all credits."""
    credit_nano: Nano
    """What is given back for it. It may still change while the month is not settled."""
    settled: bool
    why: str
    """As a sentence, with the figures."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The promises of a lease at a moment."""

    ready_seconds: int
    """How long it took to be ready, or has taken so far, without the time in which it was held."""
    held_seconds: int
    """How long its customer's own envelope kept it from being placed, before it was ready and after."""
    longest_failure_seconds: int
    """The longest time that a failure of its machine took to be repaired, or has taken so far."""
    months: tuple[Month, ...]
    breaches: tuple[Breach, ...]


def clocks(facts: Facts, terms: Terms, now: datetime) -> Clocks:
    """The clocks of a lease at `now`, from what was known by then."""
    seen = _Seen(facts, terms, floor(now))
    months = tuple(seen.month(month) for month in seen.months())
    return Clocks(
        seen.ready_seconds,
        total(seen.held),
        max((run.worked for run in seen.failures), default=0),
        months,
        tuple(breach for month in months for breach in seen.breaches(month)),
    )


class _Seen:
    """The facts about one lease as spans, up to `now`."""

    def __init__(self, facts: Facts, terms: Terms, now: datetime) -> None:
        self.facts, self.terms, self.now = facts, terms, now
        end = facts.end
        self.stop = now if end is None else min(now, floor(end.at))
        self.ready_at = None if facts.ready_at is None else billing_start(facts.ready_at)
        self.held = joined(spans_of(facts.held, self.stop))
        # A bill is resumed a fraction of a second late, as it starts: exactly these seconds are not billed.
        failures = _whole(facts.failures)
        excused = [*self._excused(failures), *_whole(facts.unattributed)]
        self.own = joined([*self.held, *spans_of(excused, self.stop)])
        self.stops = joined([*spans_of(facts.stops, self.stop), *self.own])
        ready = [] if self.ready_at is None else [Span(self.ready_at, self.stop)]
        self.promised = without(joined(ready), self.stops)
        self.failed = joined(spans_of(failures, self.stop))
        self.failures = runs_of(self.failed, self.stops)
        self.down = _in_causes(
            {
                Cause.FAILED: self.failed,
                Cause.BROKEN: self._broken(),
                Cause.MAINTENANCE: self._unannounced(),
            },
            self.promised,
            self._announced(),
        )

    @property
    def ready_seconds(self) -> int:
        return self._getting_ready.worked

    @property
    def _getting_ready(self) -> Run:
        created = floor(self.facts.created_at)
        whole = Span(created, max(created, min(self.ready_at or self.stop, self.stop)))
        return Run(tuple(without([whole], self.held)))

    def months(self) -> Iterator[datetime]:
        """The months of its life, so far."""
        month = month_of(self.facts.created_at)
        while month <= self.stop:
            yield month
            month = month_after(month)

    def month(self, month: datetime) -> Month:
        within = Span(month, month_after(month))
        down = tuple(
            Down(part.since, part.until, cause)
            for cause, spans in self.down.items()
            for part in common(spans, [within])
        )
        return Month(
            month,
            total(common(self.promised, [within])),
            total(joined(Span(part.since, part.until) for part in down)),
            down,
            self.facts.charged.get(month, NOTHING),
            self.is_settled(month),
        )

    def is_settled(self, month: datetime) -> bool:
        end = self.facts.end
        over = month_after(month) if end is None else min(month_after(month), floor(end.at))
        if end is not None and end.by_us and self.terms.replacement_seconds is not None:
            over = max(over, self._lost_since() + timedelta(seconds=self.terms.replacement_seconds))
        return self.now >= over + SETTLES_AFTER

    def breaches(self, month: Month) -> Iterator[Breach]:
        """Those of a month. What is given back for all of them together is never more than what was charged."""
        reached_bp = 0
        for promise, since, credit_bp, why in self._broken_promises(month):
            before, reached_bp = reached_bp, min(WHOLE_BP, reached_bp + credit_bp)
            credit = share(month.charged_nano, reached_bp) - share(month.charged_nano, before)
            yield Breach(promise, month.month, since, credit_bp, Nano(credit), month.settled, why)

    def _broken_promises(self, month: Month) -> Iterator[tuple[Promise, datetime, int, str]]:
        terms, within = self.terms, [Span(month.month, month_after(month.month))]
        up = month.promised_seconds - month.down_seconds
        steps = [
            step
            for step in terms.availability
            if up * WHOLE_BP < step.below_bp * month.promised_seconds and month.settled
        ]
        if steps:
            why = (
                f"it was available for {up:,} of {month.promised_seconds:,} s ({_percent(month.available_bp)} %);"
                f" {_percent(terms.availability[0].below_bp)} % are promised"
            )
            yield Promise.AVAILABILITY, min(part.since for part in month.down), steps[-1].credit_bp, why
        late = common(self._late_repairs(), within)
        if late:
            why = (
                f"its machine failed and was not back, or replaced, within {terms.replacement_seconds:,} s:"
                f" {total(late):,} s more"
            )
            yield Promise.REPLACEMENT, late[0].since, terms.replacement_credit_bp, why
        if terms.ready_seconds is not None and self.ready_seconds > terms.ready_seconds:
            due = self._getting_ready.after(terms.ready_seconds)[0].since
            if month_of(self.ready_at or due) == month.month:
                done = "it was ready after" if self.ready_at else "it was not ready after"
                why = f"{done} {self.ready_seconds:,} s; {terms.ready_seconds:,} s are promised"
                held = total(common(self.held, [Span(_EPOCH, self.ready_at or self.stop)]))
                why += f" without the {held:,} s in which your own envelope held it back" if held else ""
                yield Promise.READY, due, terms.ready_credit_bp, why
        short = common(self._unannounced(), common(self.promised, within))
        if short:
            why = f"maintenance was announced less than {terms.notice_seconds:,} s before; it took {total(short):,} s"
            yield Promise.NOTICE, short[0].since, terms.notice_credit_bp, why

    def _late_repairs(self) -> list[Span]:
        """The time in which a failure lasted longer than promised."""
        limit = self.terms.replacement_seconds
        if limit is None:
            return []
        late = [part for run in self.failures for part in run.after(limit)]
        end, release_at = self.facts.end, self.facts.release_at
        if end is not None and end.by_us and not self._ends_by_choice:
            since = self._lost_since()
            due = since + timedelta(seconds=limit)
            if self.now > due and (release_at is None or release_at > due):
                late.append(Span(since, max(self.stop, since + _SECOND)))
        return joined(late)

    @property
    def _ends_by_choice(self) -> bool:
        """Whether it had no machine at its end for a reason that breaks no promise: its customer handed one back, shut
        it down, or set the envelope so.
        """
        return bool(self.own) and self.own[-1].until == self.stop

    def _excused(
        self, failures: Sequence[tuple[datetime, datetime | None]]
    ) -> Iterator[tuple[datetime, datetime | None]]:
        """The failures that break no promise: its customer handed a machine back that was fit, by all that we knew, or
        its machine did not run and may have been shut down from inside.
        """
        for used in self.facts.used:
            at = used.until
            if at is None:
                continue
            fit = used.handed_back and self._verdict(used.machine_id, at) not in UNFIT
            if not fit and not used.unattributed:
                continue
            yield from (failure for failure in failures if covers(failure, at))

    def _verdict(self, machine_id: MachineId, at: datetime) -> Verdict:
        """The verdict about a machine at a moment."""
        last = last_change(self.facts.health, machine_id, at)
        return Verdict.HEALTHY if last is None else last.verdict

    def _lost_since(self) -> datetime:
        """Since when a lease that ended with its machine had none that worked."""
        return next((span.since for span in self.failed if span.until == self.stop), self.stop)

    def _broken(self) -> list[Span]:
        """Time in which a part of what was sold did not work, after the grace."""
        if self.terms.degraded_seconds is None:
            return []
        runs = runs_of(joined(self._not_whole()), self.stops)
        return joined(part for run in runs for part in run.after(self.terms.degraded_seconds))

    def _not_whole(self) -> Iterator[Span]:
        for used in self.facts.used:
            had = Span(floor(used.since), min(self.stop, floor(used.until or self.stop)))
            changes = sorted(
                (change for change in self.facts.health if change.machine_id == used.machine_id),
                key=lambda change: (change.at, change.number),
            )
            for change, following in pairwise((*changes, None)):
                until = self.stop if following is None else floor(following.at)
                if change and change.verdict in BROKEN and change.fault not in STILL_WORKS:
                    yield from common([Span(floor(change.at), until)], [had])

    def _unannounced(self) -> list[Span]:
        return self._maintenance(in_time=False)

    def _announced(self) -> list[Span]:
        return self._maintenance(in_time=True)

    def _maintenance(self, *, in_time: bool) -> list[Span]:
        """Our work on its machines that was announced as promised, or was not."""
        notice = self.terms.notice_seconds
        if notice is None:
            return []
        return joined(
            part
            for used in self.facts.used
            for work in self.facts.maintenance
            if work.machine_id == used.machine_id
            if ((work.begins_at - work.announced_at) // _SECOND >= notice) is in_time
            for part in common(
                spans_of([(work.begins_at, work.until)], self.stop),
                spans_of([(used.since, used.until)], self.stop),
            )
        )


def _whole(
    failures: Sequence[tuple[datetime, datetime | None]],
) -> list[tuple[datetime, datetime | None]]:
    return [(since, until and billing_start(until)) for since, until in failures]


def _percent(bp: int) -> str:
    return f"{bp // 100}.{bp % 100:02d}"


def _in_causes(
    down: Mapping[Cause, Sequence[Span]], promised: Sequence[Span], excused: Sequence[Span]
) -> dict[Cause, list[Span]]:
    """The time that counts, by its cause: promised, and not excused."""
    return {cause: without(common(spans, promised), excused) for cause, spans in down.items()}
