"""Queries on holds: money that is set aside for the next hour of a live lease.

A hold is placed together with its lease, used by posted charges, and renewed ahead of time. When a lease ends, its
hold keeps what is still to be posted, and is released with the last charge; a lease that was never ready has none
(`db/leases.py`). Locks are taken in the order lease, standing, hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.usage import USE, USED
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import LeaseState
from control_plane.domain.metering import Use
from control_plane.domain.money import Nano
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Funded(Use):
    """A ready lease with the facts that its funding is decided on."""

    lease_id: LeaseId
    organization_id: OrganizationId
    held_nano: Nano
    posted_nano: Nano
    """What was posted for the lease so far."""
    warned: bool
    can_stop: bool
    """Whether its machine is on, and its provider can stop it at a lower price."""
    kept_until: datetime | None
    """Until when the data of a machine is kept that was stopped for lack of money; None when there was no such stop."""


_READY = text("UPDATE holds SET due_at = :due_at WHERE lease_id = :lease_id AND due_at IS NULL")
_LOOK_AGAIN = text("""
UPDATE holds SET due_at = :due_at WHERE lease_id = :lease_id AND released_at IS NULL
""")
_DUE = text(f"""
SELECT h.lease_id FROM holds h JOIN leases l ON l.id = h.lease_id
WHERE h.released_at IS NULL AND h.due_at <= :now AND l.state = '{LeaseState.READY}'
ORDER BY h.due_at, h.lease_id LIMIT :limit
""")
_CAN_STOP = f"""(l.node_pool_id IS NULL AND l.stopped_nano_per_unit_hour < l.nano_per_unit_hour AND c.ended_at IS NULL
  AND m.power @> '["{PowerAction.STOP}"]' AND NOT EXISTS (
    SELECT FROM powers w WHERE w.claim_id = c.id AND w.organization_id = c.organization_id
      AND w.state <> '{PowerState.ON}'))"""
_READY_LEASE = f"""
SELECT l.id AS lease_id, l.organization_id, h.amount_nano AS held_nano, h.posted_nano,
       l.funding_warned_at IS NOT NULL AS warned, h.kept_until, {_CAN_STOP} AS can_stop, {USE}
FROM leases l {USED}
WHERE l.id = :lease_id AND l.state = '{LeaseState.READY}' AND h.released_at IS NULL
"""
_FUNDED = text(_READY_LEASE)
_FUNDED_DUE = text(f"{_READY_LEASE} AND h.due_at <= :now")
_SET_ASIDE = text("SELECT posted_nano + amount_nano FROM holds WHERE lease_id = :lease_id")
_LOOK_NOW = text(f"""
UPDATE holds h SET due_at = :now FROM leases l
WHERE l.organization_id = :organization_id AND l.funding_warned_at IS NOT NULL AND l.state = '{LeaseState.READY}'
  AND h.lease_id = l.id AND h.organization_id = l.organization_id AND h.released_at IS NULL AND h.due_at > :now
""")
_AMOUNT = text(
    "SELECT CAST(coalesce(sum(amount_nano), 0) AS bigint) FROM holds WHERE lease_id = ANY(:lease_ids)"
)
_EXTEND = text("""
WITH changed AS (
  UPDATE holds SET amount_nano = amount_nano + :more WHERE lease_id = :lease_id AND released_at IS NULL
  RETURNING organization_id
)
UPDATE standings SET held_nano = held_nano + :more FROM changed
WHERE standings.organization_id = changed.organization_id
""")
_LOOK_AT_TERMS = text(f"""
UPDATE holds h SET due_at = :now FROM leases l
WHERE l.organization_id = :organization_id AND l.committed_days IS NOT NULL AND l.state = '{LeaseState.READY}'
  AND h.lease_id = l.id AND h.organization_id = l.organization_id AND h.released_at IS NULL AND h.due_at > :now
""")
_WARN = text("UPDATE leases SET funding_warned_at = :now WHERE id = :lease_id AND funding_warned_at IS NULL")
_UNWARN = text("""
UPDATE leases SET funding_warned_at = NULL WHERE id = :lease_id AND funding_warned_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM holds WHERE lease_id = :lease_id AND kept_until IS NOT NULL)
""")
_KEEP = text("UPDATE holds SET kept_until = :until WHERE lease_id = :lease_id AND released_at IS NULL")


async def ready(connection: Connection, lease_id: LeaseId, *, due_at: datetime) -> None:
    """Check the hold of a lease that became ready from `due_at` on."""
    await write(connection, _READY, lease_id=lease_id, due_at=due_at)


async def look_again(connection: Connection, lease_id: LeaseId, *, due_at: datetime) -> None:
    """Check an open hold next at `due_at`."""
    await write(connection, _LOOK_AGAIN, lease_id=lease_id, due_at=due_at)


async def look_now(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> None:
    """Check the holds now of leases that lack money. The caller holds the standing's lock."""
    await write(connection, _LOOK_NOW, organization_id=organization_id, now=now)


async def look_at_terms(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> None:
    """Check the holds now of leases that are committed to. The caller holds the standing's lock."""
    await write(connection, _LOOK_AT_TERMS, organization_id=organization_id, now=now)


async def due(connection: Connection, *, now: datetime, limit: int) -> list[LeaseId]:
    """Ready leases whose hold is due for a check, the longest due first."""
    return await read(connection, _DUE, LeaseId, now=now, limit=limit)


async def funded(connection: Connection, lease_id: LeaseId) -> Funded | None:
    """One lease's funding; None when the lease is not ready any more."""
    return await read_one(connection, _FUNDED, Funded, lease_id=lease_id)


async def funded_due(connection: Connection, lease_id: LeaseId, *, now: datetime) -> Funded | None:
    """The same; None also when its hold was checked meanwhile."""
    return await read_one(connection, _FUNDED_DUE, Funded, lease_id=lease_id, now=now)


async def set_aside(connection: Connection, lease_id: LeaseId) -> Nano:
    """All that was set aside for a lease so far: its posted charges and its hold.

    Posting a charge does not change it, so it does not change while the caller holds the lease's lock.
    """
    return Nano(await read_one(connection, _SET_ASIDE, int, lease_id=lease_id) or 0)


async def amount(connection: Connection, lease_ids: Sequence[LeaseId]) -> Nano:
    """What is held for these leases. It does not change while the caller holds the leases' locks."""
    return Nano(await read_one(connection, _AMOUNT, int, lease_ids=list(lease_ids)) or 0)


async def extend(connection: Connection, lease_id: LeaseId, more: Nano) -> None:
    """Set more aside, and withdraw a warning.

    The caller holds the locks of the lease and the standing, and has checked what is available.
    """
    await write(connection, _EXTEND, lease_id=lease_id, more=more)
    await unwarn(connection, lease_id)


async def reduce(connection: Connection, lease_id: LeaseId, less: Nano) -> None:
    """Set less aside. The caller holds the locks of the lease and the standing."""
    await write(connection, _EXTEND, lease_id=lease_id, more=-less)


async def unwarn(connection: Connection, lease_id: LeaseId) -> None:
    """Withdraw a warning, unless the machine is stopped for lack of money."""
    await write(connection, _UNWARN, lease_id=lease_id)


async def keep(connection: Connection, lease_id: LeaseId, *, until: datetime | None) -> None:
    """Store until when the data of a machine is kept that is stopped for lack of money; None: it is so no more."""
    await write(connection, _KEEP, lease_id=lease_id, until=until)


async def warn(connection: Connection, lease_id: LeaseId, *, now: datetime) -> bool:
    """Store that the customer was warned. False when they had been warned before."""
    return bool(await write(connection, _WARN, lease_id=lease_id, now=now))


@dataclass(frozen=True, slots=True)
class Posted:
    """The sum that was posted for a lease at once."""

    lease_id: LeaseId
    amount_nano: Nano
    final: bool
    """Nothing is posted after this, so the rest of the hold is returned."""


# A posted charge is taken out of the hold, and the final one returns the rest, if any. When another replica posts
# the final charge first, charges that are posted later find a released hold and are still counted.
_USE = text(f"""
WITH before AS (
  SELECT h.lease_id, h.organization_id, posted.amount_nano AS posted, posted.final,
         CASE WHEN posted.final THEN h.amount_nano ELSE least(h.amount_nano, posted.amount_nano) END AS used
  FROM {Recordset(Posted, "posted")} JOIN holds h ON h.lease_id = posted.lease_id
  ORDER BY h.lease_id FOR UPDATE OF h
), used AS (
  UPDATE holds SET
    amount_nano = holds.amount_nano - before.used, posted_nano = holds.posted_nano + before.posted,
    released_at = CASE WHEN before.final THEN CAST(:now AS timestamptz) ELSE holds.released_at END
  FROM before WHERE holds.lease_id = before.lease_id
)
UPDATE standings SET held_nano = held_nano - returned.amount_nano
FROM (SELECT organization_id, sum(used)::bigint AS amount_nano FROM before GROUP BY organization_id) returned
WHERE standings.organization_id = returned.organization_id
""")


async def use(connection: Connection, posted: Sequence[Posted], *, now: datetime) -> None:
    """Take posted charges out of the holds, one entry per lease. The caller holds the standings' locks."""
    if posted:
        await write(connection, _USE, posted=Recordset.document(posted), now=now)
