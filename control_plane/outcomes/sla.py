"""What the clocks of promises mean: breaches are stored once, and assessed anew when the figures change."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import journal, sla, sla_facts, sla_terms
from control_plane.db.connection import Connection
from control_plane.db.sla import KnownBreach, NewBreach
from control_plane.db.sla_facts import PromisedLease
from control_plane.domain.actor import Actor
from control_plane.domain.breach_evidence import BreachEvidence, evidence_of
from control_plane.domain.ids import LeaseId, MachineId, SlaBreachId
from control_plane.domain.journal import Note
from control_plane.domain.money import NOTHING, Nano, usd
from control_plane.domain.period import month_after
from control_plane.domain.sla_clock import (
    Breach,
    Clocks,
    Facts,
    Month,
    Promise,
    clocks,
)
from control_plane.domain.sla_credit import next_judgement
from control_plane.domain.sla_evidence import from_outside, is_inside
from control_plane.domain.sla_month import months_of


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judgement of leases came to."""

    found: int
    """Breaches that were not known."""
    assessed: int
    """Breaches of which the credit changed."""


async def judge(
    connection: Connection,
    lease_ids: Sequence[LeaseId],
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> Judged:
    """Judge the promises of leases that are taken: store what is broken, and what is to be given back for it."""
    evidence = await sla_facts.evidence(connection, lease_ids)
    terms = await sla_terms.of_versions(connection, list({lease.sla_version for lease in evidence.leases}))
    charged_until = await sla.charged_until(connection, lease_ids, now)
    work = await sla.maintenance(connection, evidence.machines())
    known: dict[LeaseId, dict[tuple[Promise, datetime], KnownBreach]] = {}
    for breach in await sla.known(connection, lease_ids):
        known.setdefault(breach.lease_id, {})[breach.promise, breach.month] = breach
    found = assessed = 0
    for lease in evidence.leases:
        facts = evidence.facts(lease, work)
        promised = terms[lease.sla_version, lease.sla]
        if lease.is_node:
            promised = promised.of_node
        judged = clocks(facts, promised, now)
        outside = from_outside(facts, await _confirmed(connection, lease, facts))
        certain = {
            (breach.promise, breach.month): breach.credit_nano
            for breach in clocks(outside, promised, now).breaches
        }
        of_lease = _OfLease(connection, lease, facts, judged, certain, charged_until[lease.id], actor, now)
        found += await of_lease.store_breaches(known.setdefault(lease.id, {}), new_id)
        assessed += await of_lease.assess(known[lease.id])
        months = months_of(facts, promised, judged)
        await sla.store_months(connection, lease.organization_id, lease.id, lease.sla, months)
        used = {each.machine_id for each in facts.used}
        await sla.judged(
            connection,
            lease.organization_id,
            lease.id,
            ended=lease.ending_at is not None,
            maintenance=[each for each in work if each.machine_id in used],
            due_at=next_judgement(judged.months, lease.ending_at, now),
            now=now,
        )
    return Judged(found, assessed)


async def _confirmed(connection: Connection, lease: PromisedLease, facts: Facts) -> Collection[MachineId]:
    """Machines that were found faulty by what they showed, and whose GPUs failed elsewhere as well."""
    doubted = {change.machine_id for change in facts.health if is_inside(change)}
    return await sla_facts.confirmed(connection, lease.organization_id, doubted) if doubted else ()


@dataclass(frozen=True, slots=True)
class _OfLease:
    """A lease that is judged."""

    connection: Connection
    lease: PromisedLease
    facts: Facts
    judged: Clocks
    certain: Mapping[tuple[Promise, datetime], Nano]
    """What breaches would give back by evidence from outside of its machines alone."""
    charged_until: datetime
    actor: Actor
    now: datetime

    async def store_breaches(
        self, known: dict[tuple[Promise, datetime], KnownBreach], new_id: Callable[[], UUID]
    ) -> int:
        """Store those that are not known, and add them there. Returns how many."""
        lease, count = self.lease, 0
        for breach in self.judged.breaches:
            key = breach.promise, breach.month
            if key in known:
                continue
            new = NewBreach(
                id=SlaBreachId(new_id()),
                organization_id=lease.organization_id,
                project_id=lease.project_id,
                lease_id=lease.id,
                promise=breach.promise,
                month=breach.month,
                sla=lease.sla,
                sla_version=lease.sla_version,
                since=breach.since,
                why=breach.why,
            )
            if await sla.insert(self.connection, new, self._evidence(breach.month, breach), now=self.now):
                count += 1
                why = f"{_named(breach.promise)} in {breach.month:%B %Y}: {breach.why}"
                await journal.note_lease(
                    self.connection,
                    lease.id,
                    event=Note.SLA_BREACHED,
                    why=why,
                    actor=self.actor,
                    now=self.now,
                )
            known[key] = KnownBreach(new.id, lease.id, *key, 0, NOTHING, NOTHING, NOTHING, waits=False)
        return count

    async def assess(self, known: Mapping[tuple[Promise, datetime], KnownBreach]) -> int:
        """Assess the breaches of settled months whose figures changed. Returns how many."""
        broken = {(breach.promise, breach.month): breach for breach in self.judged.breaches}
        months = {month.month: month for month in self.judged.months}
        count = 0
        for key, stored in known.items():
            month = months.get(stored.month)
            if month is None or not self._is_final(month):
                continue
            breach = broken.get(key)
            credit = NOTHING if breach is None else breach.credit_nano
            outside = min(credit, self.certain.get(key, NOTHING))
            if stored.assessment and (credit, outside) == (stored.credit_nano, stored.outside_nano):
                continue
            count += 1
            await sla.assess(
                self.connection,
                self.lease.organization_id,
                stored.id,
                stored.assessment + 1,
                charged_nano=month.charged_nano,
                credit_nano=credit,
                outside_nano=outside,
                queued=credit != stored.credited_nano or stored.waits,
                why="by late evidence, the promise was kept" if breach is None else breach.why,
                evidence=self._evidence(stored.month, breach),
                now=self.now,
            )
        return count

    def _is_final(self, month: Month) -> bool:
        """Whether only late evidence can change the figures of a month: it is over, and all of it is charged."""
        over = month_after(month.month)
        ending_at = self.lease.ending_at
        return month.settled and self.charged_until >= min(over, self.now if ending_at else over)

    def _evidence(self, month: datetime, breach: Breach | None) -> BreachEvidence:
        return evidence_of(
            self.facts,
            self.judged,
            month,
            tier=self.lease.sla,
            terms=self.lease.sla_version,
            credit_bp=0 if breach is None else breach.credit_bp,
        )


_NAMES = {
    Promise.AVAILABILITY: "availability",
    Promise.REPLACEMENT: "time to repair or replace its machine",
    Promise.READY: "time until it is ready",
    Promise.NOTICE: "notice of maintenance",
}


def _named(promise: Promise) -> str:
    return _NAMES[promise]


def credit_reason(lease_name: str, promise: Promise, month: datetime, amount: Nano, why: str) -> str:
    """Why the balance gets a credit or, with a negative amount, a correction."""
    what = "SLA credit" if amount > 0 else "SLA credit, corrected"
    return f"{what} for {lease_name}, {month:%B %Y}, {_named(promise)}: {why}"


def waits_why(amount: Nano, promise: Promise, month: datetime) -> str:
    return (
        f"{usd(amount)} USD for {_named(promise)} in {month:%B %Y}: only what we read on the machine shows it, and the"
        " credits of another lease were posted for that month on such evidence"
    )


def refused_why(promise: Promise, month: datetime, reason: str) -> str:
    return f"what waited for {_named(promise)} in {month:%B %Y} is not given back: {reason}"


def credited_why(amount: Nano, promise: Promise, month: datetime) -> str:
    return f"{usd(amount)} USD for {_named(promise)} in {month:%B %Y}"
