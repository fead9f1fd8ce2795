"""Posts what broken promises give back: the difference between the latest assessment and what the ledger has.

A breach leaves the queue in the transaction that posts its credit, and the transaction's key has the number of the
assessment, so each is posted once however often this loop runs and wherever it crashes (law 8). Until
SPLITPLANE_SLA_CREDITS is set, everything is computed and reported, and nothing is posted. A flood of breaches waits for
an operator (`control_plane/domain/sla_credit.py`): most likely we are at fault, or our evidence is.
"""

from datetime import timedelta

from control_plane.db import journal, ledger, organizations, sla
from control_plane.db.connection import Connection
from control_plane.db.sla import Uncredited
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.journal import Note
from control_plane.domain.ledger import Approval, sla_credit
from control_plane.domain.money import Nano
from control_plane.domain.period import month_after
from control_plane.domain.sla_credit import held_back
from control_plane.outcomes.sla import credit_reason, credited_why
from reconciler.loop import Loop, Report
from reconciler.worlds.sla import SlaWorld

NAME = "credit_breaches"
CREDITED_PER_ACTIVATION_MAX = 100
_SECOND = timedelta(seconds=1)


async def activate(world: SlaWorld) -> Report:
    async with world.db.reading() as connection:
        waiting = await sla.waiting(connection)
    if not waiting.waiting:
        return Report()
    if world.sla_dry_run:
        note = f"{waiting.waiting:,} credits wait: SPLITPLANE_SLA_CREDITS is not set, so nothing is posted"
        return Report(looked_at=waiting.waiting, notes=[note])
    held = held_back(waiting=waiting.unapproved, leases=waiting.leases)
    async with world.db.transaction() as connection:
        taken = await sla.take_uncredited(
            connection, approved_only=held is not None, limit=CREDITED_PER_ACTIVATION_MAX
        )
        await organizations.lock_standings(connection, {breach.organization_id for breach in taken})
        for breach in taken:
            await _credit(connection, world, breach)
    return Report(
        looked_at=waiting.waiting,
        acted_on=len(taken),
        notes=[] if held is None else [held],
        more=len(taken) == CREDITED_PER_ACTIVATION_MAX,
    )


async def _credit(connection: Connection, world: SlaWorld, breach: Uncredited) -> None:
    now, actor = world.now(), world.actor(NAME)
    amount = Nano(breach.credit_nano - breach.credited_nano)
    if not amount:
        await sla.credited(connection, breach, None, now=now)
        return
    reason = credit_reason(breach.lease_name, breach.promise, breach.month, amount, breach.why)
    transaction_id = world.new_id()
    transaction = sla_credit(
        breach.organization_id,
        breach.project_id,
        amount,
        breach_id=breach.id,
        assessment=breach.assessment,
        at=min(now, month_after(breach.month) - _SECOND),
        approval=Approval(actor.name, f"{reason} ({on_wire(Prefix.SLA_BREACH, breach.id)})"),
    )
    await ledger.post(connection, [(transaction_id, transaction)], now=now)
    await sla.credited(connection, breach, transaction_id, now=now)
    why = credited_why(amount, breach.promise, breach.month)
    await journal.note_lease(
        connection, breach.lease_id, event=Note.SLA_CREDITED, why=why, actor=actor, now=now
    )


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("watch_balances",))
