"""Posts what broken promises give back: the difference between the latest assessment and what the ledger has.

A breach leaves the queue in the transaction that posts its credit, and the transaction's key has the number of the
assessment, so each is posted once however often this loop runs and wherever it crashes (law 8). Until
SPLITPLANE_SLA_CREDITS is set, everything is computed and reported, and nothing is posted. A flood of breaches waits for
an operator (`control_plane/domain/sla_credit.py`): most likely we are at fault, or our evidence is.

Where a credit rests on what was read on the machine alone, on which its customer has root, the part that other
evidence shows is posted, and the rest waits for finance (`sla_undecided`). Of one lease of an organization and month,
the rest is posted as well (`sla_trusts`). A decision is a row, and is carried out here in one transaction.
"""

from datetime import timedelta

from control_plane.db import journal, ledger, organizations, sla_credits
from control_plane.db.connection import Connection
from control_plane.db.sla_credits import Uncredited
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.journal import Note
from control_plane.domain.ledger import Approval, sla_credit
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.period import month_after
from control_plane.domain.sla_credit import held_back
from control_plane.outcomes.sla import credit_reason, credited_why, refused_why, waits_why
from reconciler.loop import Loop, Report
from reconciler.worlds.sla import SlaWorld

NAME = "credit_breaches"
CREDITED_PER_ACTIVATION_MAX = 100
_SECOND = timedelta(seconds=1)


async def activate(world: SlaWorld) -> Report:
    async with world.db.reading() as connection:
        waiting = await sla_credits.waiting(connection)
        decided = await sla_credits.decided(connection)
    looked_at = waiting.waiting + decided
    if not looked_at:
        return Report()
    if world.sla_dry_run:
        note = f"{looked_at:,} credits wait: SPLITPLANE_SLA_CREDITS is not set, so nothing is posted"
        return Report(looked_at=looked_at, notes=[note])
    held = held_back(waiting=waiting.unapproved, leases=waiting.leases)
    limit = CREDITED_PER_ACTIVATION_MAX
    async with world.db.transaction() as connection:
        taken = await sla_credits.take_decided(connection, limit=limit)
        known = {breach.id for breach in taken}
        queued = await sla_credits.take_uncredited(connection, approved_only=held is not None, limit=limit)
        taken += [breach for breach in queued if breach.id not in known]
        await organizations.lock_standings(connection, {breach.organization_id for breach in taken})
        for breach in taken:
            await _settle(connection, world, breach)
    return Report(
        looked_at=looked_at,
        acted_on=len(taken),
        notes=[] if held is None else [held],
        more=len(taken) >= limit,
    )


async def _settle(connection: Connection, world: SlaWorld, breach: Uncredited) -> None:
    """Post what is due for a breach, and let the rest wait for finance."""
    now, standing = world.now(), breach.standing
    trusted = standing.is_open and await sla_credits.trust(connection, breach, now=now)
    amount = standing.due(trusted=trusted)
    if amount:
        await _credit(connection, world, breach, amount)
    undecided = NOTHING if trusted else standing.undecided
    await sla_credits.wait(connection, breach, undecided, now=now)
    await sla_credits.dequeue(connection, breach)
    if undecided and not (breach.waits and breach.approved is None):
        event, why = Note.SLA_CREDIT_WAITS, waits_why(undecided, breach.promise, breach.month)
    elif breach.approved is False:
        event, why = Note.SLA_CREDIT_REFUSED, refused_why(breach.promise, breach.month, breach.reason or "")
    else:
        return
    await journal.note_lease(
        connection, breach.lease_id, event=event, why=why, actor=world.actor(NAME), now=now
    )


async def _credit(connection: Connection, world: SlaWorld, breach: Uncredited, amount: Nano) -> None:
    now, actor = world.now(), world.actor(NAME)
    reason = credit_reason(breach.lease_name, breach.promise, breach.month, amount, breach.why)
    approver = actor.name
    if breach.approved and breach.decided_by is not None:
        approver, reason = breach.decided_by, f"{reason}; approved: {breach.reason}"
    transaction_id = world.new_id()
    transaction = sla_credit(
        breach.organization_id,
        breach.project_id,
        amount,
        breach_id=breach.id,
        assessment=breach.assessment,
        approved=breach.approved is True,
        at=min(now, month_after(breach.month) - _SECOND),
        approval=Approval(approver, f"{reason} ({on_wire(Prefix.SLA_BREACH, breach.id)})"),
    )
    await ledger.post(connection, [(transaction_id, transaction)], now=now)
    await sla_credits.credited(connection, breach, transaction_id, amount, now=now)
    why = credited_why(amount, breach.promise, breach.month)
    await journal.note_lease(
        connection, breach.lease_id, event=Note.SLA_CREDITED, why=why, actor=actor, now=now
    )


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("watch_balances",))
