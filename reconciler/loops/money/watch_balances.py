"""Warns customers whose balance is low, or whose charges reached a share of their monthly budget, once per crossing.

An organization is looked at every few minutes while it uses something, and as soon as money is paid in or its alerts
are changed (`control_plane/db/balance_alerts.py`). What it is told is recorded in the transaction that stores its new
state, so a second run records nothing (`control_plane/domain/balance_alert.py`). Leases that lack money are checked
again with it (`fund_leases`), so that a top-up reaches them within seconds.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import balance_alerts, holds
from control_plane.db.connection import Connection
from control_plane.domain.balance_alert import (
    LOOK_AGAIN_AFTER,
    BalanceAlerts,
    Funds,
    Notice,
    Noticed,
    notices,
    reached_percent,
)
from control_plane.domain.exhaustion import BalanceState, step
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.period import month_of
from control_plane.domain.transitions import Moved
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "watch_balances"
WATCHED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.reading() as connection:
        due = await balance_alerts.due(connection, now=now, limit=WATCHED_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due))
    for organization_id in due:
        await each([organization_id], partial(_watch, world, report), report)
    report.more = len(due) == WATCHED_PER_ACTIVATION_MAX and not report.errors
    return report


async def _watch(world: World, report: Report, organization_id: OrganizationId) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        if not await balance_alerts.take(connection, organization_id, now=now):
            return  # Another replica has it, or something is spent at this moment.
        if not await balance_alerts.is_open(connection, organization_id):
            await balance_alerts.look_again(connection, organization_id, due_at=None)
            return
        seen = await _look(connection, organization_id, now)
        for notice in await _tell(connection, organization_id, seen, actor=world.actor(NAME).name, now=now):
            report.acted_on += 1
            report.notes.append(f"{on_wire(Prefix.ORGANIZATION, organization_id)}: {notice.why}")
        if seen.funds.lacking.short_leases:
            await holds.look_now(connection, organization_id, now=now)
        due_at = None if seen.funds.is_at_rest else now + LOOK_AGAIN_AFTER
        await balance_alerts.look_again(connection, organization_id, due_at=due_at)


@dataclass(frozen=True, slots=True)
class _Seen:
    """An organization's money, what it wants to be warned of, and what it was told."""

    funds: Funds
    alerts: BalanceAlerts
    noticed: Noticed


async def _look(connection: Connection, organization_id: OrganizationId, now: datetime) -> _Seen:
    stored = await balance_alerts.state(connection, organization_id)
    since = now if stored is None else stored.changed_at
    return _Seen(
        await balance_alerts.funds(connection, organization_id, month=month_of(now), since=since),
        await balance_alerts.alerts(connection, organization_id),
        Noticed() if stored is None else stored.noticed,
    )


async def _tell(
    connection: Connection, organization_id: OrganizationId, seen: _Seen, *, actor: str, now: datetime
) -> tuple[Notice, ...]:
    """Store and record what the customer is told, and the share of its budget that is reached now."""
    state, new = seen.noticed.state, notices(seen.alerts, seen.funds, seen.noticed)
    for notice in new:
        moved = step(state, notice.event)
        if not isinstance(moved, Moved):
            continue
        if moved.after is not state:
            why = None if moved.after is BalanceState.FUNDED else notice.why
            await balance_alerts.move(connection, organization_id, moved, why=why, now=now)
        await balance_alerts.record(
            connection, organization_id, moved, notice, seen.funds, actor=actor, now=now
        )
        state = moved.after
    percent, month = reached_percent(seen.alerts, seen.funds), seen.funds.month
    if percent != seen.noticed.budget_percent_of(month):
        await balance_alerts.note_budget(
            connection, organization_id, state=state, month=month, percent=percent, now=now
        )
    return new


LOOP = Loop(NAME, timedelta(seconds=15), activate, wakes=("fund_leases",))
