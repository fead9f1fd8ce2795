"""Queries on balances: what organizations want to be warned of, what was noticed, and the record of it.

`standings.balance_due_at` says when an organization is looked at next. A new lease, a posting and new alerts set it;
the loop `watch_balances` clears it once nothing is used any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.credit_terms import CREDIT_LEFT
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.balance_alert import BalanceAlerts, Funds, Lacking, Notice, Noticed
from control_plane.domain.exhaustion import BalanceEvent, BalanceState
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LIVE, EndReason, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.organization import OPEN
from control_plane.domain.transitions import Moved

_DUE = text(
    "SELECT organization_id FROM standings WHERE balance_due_at <= :now ORDER BY balance_due_at LIMIT :limit"
)
_TAKE = text("""
SELECT organization_id FROM standings WHERE organization_id = :id AND balance_due_at <= :now FOR UPDATE SKIP LOCKED
""")
_LOOK_AGAIN = text("UPDATE standings SET balance_due_at = :due_at WHERE organization_id = :id")
_FUNDS = text(f"""
SELECT s.posted_nano AS balance_nano, s.held_nano,
       (SELECT coalesce(sum(nano_per_hour), 0)::bigint FROM capacity_held c WHERE c.organization_id = :id)
         - (SELECT coalesce(sum(l.nano_per_unit_hour * l.units), 0)::bigint FROM leases l
            WHERE l.organization_id = :id AND {among("l.state", LIVE)} AND l.committed_days IS NOT NULL)
         AS nano_per_hour,
       CAST(:month AS timestamptz) AS month,
       (SELECT coalesce(sum(charged_nano), 0)::bigint FROM month_spends m
        WHERE m.organization_id = :id AND m.month = :month) AS month_nano,
       ({CREDIT_LEFT})::bigint AS credit_nano
FROM standings s WHERE s.organization_id = :id
""")
_LACKING = text(f"""
SELECT short.leases AS short_leases, short.nano AS short_nano, kept.leases AS kept_leases, kept.until AS kept_until,
       kept.deleted AS deleted_leases
FROM (SELECT count(*) AS leases, coalesce(sum(nano_per_unit_hour * units), 0)::bigint AS nano FROM leases
      WHERE organization_id = :id AND funding_warned_at IS NOT NULL AND state = '{LeaseState.READY}') AS short,
     (SELECT count(*) FILTER (WHERE l.state = '{LeaseState.READY}') AS leases,
             min(h.kept_until) FILTER (WHERE l.state = '{LeaseState.READY}') AS until,
             count(*) FILTER (WHERE l.end_reason = '{EndReason.UNFUNDED}' AND l.billed_until >= :since) AS deleted
      FROM holds h JOIN leases l ON l.id = h.lease_id AND l.organization_id = h.organization_id
      WHERE h.organization_id = :id AND h.kept_until IS NOT NULL) AS kept
""")
_IS_OPEN = text(f"SELECT {among('state', OPEN)} FROM organizations WHERE id = :id")
_ALERTS = text("""
SELECT below_nano, month_budget_nano, budget_percents FROM balance_alerts WHERE organization_id = :id
""")
_SET_ALERTS = text("""
WITH due AS (UPDATE standings SET balance_due_at = :now WHERE organization_id = :id)
INSERT INTO balance_alerts (organization_id, below_nano, month_budget_nano, budget_percents, changed_at, changed_by)
VALUES (:id, :below_nano, :month_budget_nano, :budget_percents, :now, :by)
ON CONFLICT (organization_id) DO UPDATE SET
  below_nano = EXCLUDED.below_nano, month_budget_nano = EXCLUDED.month_budget_nano,
  budget_percents = EXCLUDED.budget_percents, changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by
""")
_STATE = text("""
SELECT state, changed_at, why, budget_month, budget_percent FROM balance_states WHERE organization_id = :id
""")
_MOVE = text("""
INSERT INTO balance_states (organization_id, state, changed_at, why) VALUES (:id, :after, :now, :why)
ON CONFLICT (organization_id) DO UPDATE SET state = EXCLUDED.state, changed_at = EXCLUDED.changed_at, why = EXCLUDED.why
""")
_NOTE_BUDGET = text("""
INSERT INTO balance_states (organization_id, state, changed_at, budget_month, budget_percent)
VALUES (:id, :state, :now, :month, :percent)
ON CONFLICT (organization_id) DO UPDATE SET
  budget_month = EXCLUDED.budget_month, budget_percent = EXCLUDED.budget_percent
""")
_RECORD = text("""
INSERT INTO balance_events (organization_id, at, actor, event, state_before, state_after, why, balance_nano, held_nano,
                            limit_nano)
VALUES (:id, :now, :actor, :event, :before, :after, :why, :balance_nano, :held_nano, :limit_nano)
""")
_PAGE = text("""
SELECT number, at, event, state_before, state_after, why, balance_nano, held_nano, limit_nano FROM balance_events
WHERE organization_id = :id AND (CAST(:before AS bigint) IS NULL OR number < :before)
ORDER BY number DESC LIMIT :limit
""")


async def due(connection: Connection, *, now: datetime, limit: int) -> list[OrganizationId]:
    """Organizations whose balance is to be looked at, the longest due first."""
    return await read(connection, _DUE, OrganizationId, now=now, limit=limit)


async def take(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> bool:
    """Lock the standing of an organization that is due. False when another transaction has it, or it is due no more."""
    return bool(await read(connection, _TAKE, OrganizationId, id=organization_id, now=now))


async def make_due(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> None:
    """Have the balance looked at. It takes the lock of the standing, which is one of the last locks."""
    await write(connection, _LOOK_AGAIN, id=organization_id, due_at=now)


async def look_again(
    connection: Connection, organization_id: OrganizationId, *, due_at: datetime | None
) -> None:
    """Look at an organization again at `due_at`; None: when something changes. The caller holds the standing's lock."""
    await write(connection, _LOOK_AGAIN, id=organization_id, due_at=due_at)


async def is_open(connection: Connection, organization_id: OrganizationId) -> bool:
    """Whether anybody can still act for the organization."""
    return bool(await read_one(connection, _IS_OPEN, bool, id=organization_id))


async def funds(
    connection: Connection, organization_id: OrganizationId, *, month: datetime, since: datetime
) -> Funds:
    """An organization's money, and what it lacks; `since` is the last change of the state of its balance.

    Raises LookupError when there is no such organization.
    """
    found = await read_one(connection, _FUNDS, Funds, id=organization_id, month=month)
    lacking = await read_one(connection, _LACKING, Lacking, id=organization_id, since=since)
    if found is None or lacking is None:
        raise LookupError(f"organization {organization_id} has no standing")
    return replace(found, lacking=lacking)


async def alerts(connection: Connection, organization_id: OrganizationId) -> BalanceAlerts:
    """What an organization wants to be warned of; the defaults until it says so."""
    return await read_one(connection, _ALERTS, BalanceAlerts, id=organization_id) or BalanceAlerts()


async def set_alerts(
    connection: Connection, organization_id: OrganizationId, wanted: BalanceAlerts, *, now: datetime, by: str
) -> None:
    """Replace what an organization wants to be warned of, and have its balance looked at."""
    await write(
        connection,
        _SET_ALERTS,
        id=organization_id,
        below_nano=wanted.below_nano,
        month_budget_nano=wanted.month_budget_nano,
        budget_percents=list(wanted.budget_percents),
        now=now,
        by=by,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What was noticed of an organization's balance."""

    state: BalanceState
    changed_at: datetime
    why: str | None
    """The sentence of the warning; None while there is none."""
    budget_month: datetime | None
    budget_percent: int

    @property
    def noticed(self) -> Noticed:
        return Noticed(self.state, self.budget_month, self.budget_percent)


async def state(connection: Connection, organization_id: OrganizationId) -> StoredState | None:
    """What was noticed of an organization; None while nothing ever was."""
    return await read_one(connection, _STATE, StoredState, id=organization_id)


async def move(
    connection: Connection,
    organization_id: OrganizationId,
    moved: Moved[BalanceState, BalanceEvent],
    *,
    why: str | None,
    now: datetime,
) -> None:
    """Change the state of a balance; `why` is the warning that applies now. The caller holds the standing's lock."""
    await write(connection, _MOVE, id=organization_id, after=moved.after.value, why=why, now=now)


async def note_budget(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    state: BalanceState,
    month: datetime,
    percent: int,
    now: datetime,
) -> None:
    """Store the share of the budget that is reached in a month. The caller holds the standing's lock."""
    values = {"state": state.value, "month": month, "percent": percent, "now": now}
    await write(connection, _NOTE_BUDGET, id=organization_id, **values)


async def record(
    connection: Connection,
    organization_id: OrganizationId,
    moved: Moved[BalanceState, BalanceEvent],
    notice: Notice,
    found: Funds,
    *,
    actor: str,
    now: datetime,
) -> None:
    """Record what the customer is told, with the money that caused it. It becomes a line of the audit log as well."""
    await write(
        connection,
        _RECORD,
        id=organization_id,
        now=now,
        actor=actor,
        event=moved.event.value,
        before=moved.before.value,
        after=moved.after.value,
        why=notice.why,
        balance_nano=found.balance_nano,
        held_nano=found.held_nano,
        limit_nano=notice.limit_nano,
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A line of the record."""

    number: int
    at: datetime
    event: BalanceEvent
    state_before: BalanceState
    state_after: BalanceState
    why: str
    balance_nano: Nano
    held_nano: Nano
    limit_nano: Nano


async def page(
    connection: Connection, organization_id: OrganizationId, *, before: int | None, limit: int
) -> Sequence[Recorded]:
    """The record of an organization, newest first, before the number `before`."""
    return await read(connection, _PAGE, Recorded, id=organization_id, before=before, limit=limit)
