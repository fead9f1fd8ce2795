"""Queries for the business metrics. Each reads what is open at the moment, by an index, and never the history.

The ledger is the exception: its sum needs every posting, which `postings_after` therefore reads in parts.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one
from control_plane.db.tables.marks import among
from control_plane.db.usage import RATE
from control_plane.domain.deadline import LOOKED_AT_WITHIN
from control_plane.domain.ids import AccountName
from control_plane.domain.lease import LIVE, LeaseState
from control_plane.domain.machine import MAY_EXIST, MachineState, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState
from control_plane.domain.orphan import HeldCode


@dataclass(frozen=True, slots=True)
class LeaseCount:
    state: LeaseState
    leases: int
    waiting: int
    """How many of them wait for stock."""
    unattended: int = 0
    """How many have no machine yet, and were not looked at within a minute of the time when they were due. What keeps
    them is not known then."""


@dataclass(frozen=True, slots=True)
class OrganizationCount:
    state: OrganizationState
    organizations: int
    oldest_at: datetime | None
    """When the first of them came into this state; only for those that are closing, or wait for their erasure."""


@dataclass(frozen=True, slots=True)
class MachineCount:
    """Machines that may exist at one place, in one state."""

    account: AccountName
    provider: str
    region: str
    gpu_model: str | None
    state: MachineState
    machines: int
    gpus: int
    missed: int
    """How many of them the last listing did not show."""


@dataclass(frozen=True, slots=True)
class Liability:
    """Machines that cost us money and serve nobody."""

    machines: int
    nano_per_hour: Nano
    nano: Nano
    """What they have cost since they serve nobody."""


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """A provider account. Times are None when what they tell never happened or does not last."""

    name: AccountName
    frozen_since: datetime | None
    failing_since: datetime | None
    offers_failing_since: datetime | None
    offers_at: datetime | None
    listing_asked_at: datetime | None
    orphans: int
    orphans_unpriced: int
    """Orphans for which no record tells a price: they are missing in the two amounts."""
    oldest_orphan_at: datetime | None
    """When the oldest was first seen that no operator decided to leave."""
    orphans_nano_per_hour: Nano
    orphans_nano: Nano
    """What the orphans have cost since they were first seen."""


@dataclass(frozen=True, slots=True)
class UnratedMoney:
    """Metered use that has no charge yet."""

    intervals: int
    oldest_at: datetime | None
    nano: Nano


@dataclass(frozen=True, slots=True)
class Postings:
    """A part of the ledger, in the order of its keys."""

    count: int
    nano: Nano
    last_transaction: UUID
    last_line: int


_MAY_EXIST = f"m.state <> '{MachineState.GONE}' AND {among('m.state', MAY_EXIST)}"
_UNERASED = f"(o.state = '{OrganizationState.DELETED}' AND o.erased_at IS NULL)"
# A machine that is being started is looked at itself, and a verified one by whoever admits its customer. A node is
# looked at by its cluster's loops, so its pool says what it waits for.
_MACHINE_DUE = f"""
(SELECT min(CASE WHEN m.state = '{MachineState.VERIFIED}' THEN c.due_at ELSE m.due_at END)
 FROM claims c JOIN machines m ON m.id = c.machine_id WHERE c.lease_id = l.id AND c.ended_at IS NULL)
"""
_LEASES = text(f"""
SELECT l.state, count(*) AS leases, count(l.waiting_since) AS waiting,
       count(*) FILTER (WHERE l.state = '{LeaseState.PLACING}' AND l.due_at < :before
                        OR l.state = '{LeaseState.STARTING}' AND l.node_pool_id IS NULL
                           AND {_MACHINE_DUE} < :before) AS unattended
FROM leases l WHERE {among("l.state", LIVE)} GROUP BY l.state
UNION ALL
SELECT state, count(*), count(waiting_since), 0 FROM leases WHERE state = '{LeaseState.ENDING}' GROUP BY state
""")
# What may last is told with the time since when: a closure until it is settled, a deletion until all is erased.
_ORGANIZATIONS = text(f"""
SELECT o.state, count(*) AS organizations,
       min((SELECT max(at) FROM organization_events e WHERE e.organization_id = o.id))
         FILTER (WHERE o.state = '{OrganizationState.CLOSING}' OR {_UNERASED}) AS oldest_at
FROM organizations o GROUP BY o.state
""")
_MACHINES = text(f"""
SELECT m.account, m.provider, m.region, m.gpu_model, m.state, count(*) AS machines,
       CAST(sum(m.gpu_count) AS bigint) AS gpus, count(m.missed_since) AS missed
FROM machines m WHERE {_MAY_EXIST}
GROUP BY m.account, m.provider, m.region, m.gpu_model, m.state
""")
# A machine that is ready in a pool, or a node, is meant to be without a claim at times; one that terminates is not.
_UNCLAIMED = text(f"""
SELECT count(*) AS machines, CAST(coalesce(sum(m.cost_nano_per_hour), 0) AS bigint) AS nano_per_hour,
       CAST(coalesce(sum(m.cost_nano_per_hour * greatest(0, extract(epoch FROM
         CAST(:now AS timestamptz) - coalesce(c.ended_at, m.created_at))) / 3600), 0) AS bigint) AS nano
FROM machines m
LEFT JOIN LATERAL (
  SELECT bool_or(ended_at IS NULL) AS is_open, max(ended_at) AS ended_at FROM claims WHERE machine_id = m.id
) c ON true
WHERE {_MAY_EXIST} AND c.is_open IS NOT TRUE
  AND (m.purpose = '{Purpose.LEASE}' OR m.state = '{MachineState.TERMINATING}')
""")
_ACCOUNTS = text(f"""
SELECT a.name, a.frozen_since, a.failing_since, a.offers_failing_since, a.offers_at, a.listing_asked_at,
       count(o.launch_key) AS orphans,
       count(o.launch_key) FILTER (WHERE o.cost_nano_per_hour IS NULL) AS orphans_unpriced,
       min(o.first_seen_at) FILTER (WHERE o.held_code IS DISTINCT FROM '{HeldCode.LEFT}') AS oldest_orphan_at,
       CAST(coalesce(sum(o.cost_nano_per_hour), 0) AS bigint) AS orphans_nano_per_hour,
       CAST(coalesce(sum(o.cost_nano_per_hour * greatest(0, extract(epoch FROM
         CAST(:now AS timestamptz) - o.first_seen_at)) / 3600), 0) AS bigint) AS orphans_nano
FROM provider_accounts a
LEFT JOIN orphans o ON o.account = a.name AND o.gone_at IS NULL
WHERE a.removed_at IS NULL GROUP BY a.name ORDER BY a.name
""")
_UNRATED = text(f"""
SELECT count(*) AS intervals, min(i.recorded_at) AS oldest_at,
       CAST(coalesce(sum(CAST(i.unit_seconds AS numeric) * {RATE} / 3600), 0) AS bigint) AS nano
FROM unrated u JOIN intervals i USING (lease_id, number) JOIN leases l ON l.id = u.lease_id
""")
_POSTINGS = text("""
WITH part AS (
  SELECT transaction_id, line, amount_nano FROM postings
  WHERE (transaction_id, line) > (CAST(:transaction AS uuid), CAST(:line AS smallint))
  ORDER BY transaction_id, line LIMIT :limit
)
SELECT count(*) OVER () AS count, CAST(sum(amount_nano) OVER () AS bigint) AS nano,
       transaction_id AS last_transaction, line AS last_line
FROM part ORDER BY transaction_id DESC, line DESC LIMIT 1
""")


async def leases(connection: Connection, *, now: datetime) -> list[LeaseCount]:
    """How many leases are in each state but the last one. A state without leases has no row."""
    return await read(connection, _LEASES, LeaseCount, before=now - LOOKED_AT_WITHIN)


async def organizations(connection: Connection) -> list[OrganizationCount]:
    """How many organizations are in each state. A state without organizations has no row."""
    return await read(connection, _ORGANIZATIONS, OrganizationCount)


async def machines(connection: Connection) -> list[MachineCount]:
    return await read(connection, _MACHINES, MachineCount)


async def unclaimed(connection: Connection, *, now: datetime) -> Liability:
    """Machines that may exist and that no lease claims."""
    return await read_one(connection, _UNCLAIMED, Liability, now=now) or Liability(0, Nano(0), Nano(0))


async def accounts(connection: Connection, *, now: datetime) -> list[AccountFigures]:
    return await read(connection, _ACCOUNTS, AccountFigures, now=now)


async def unrated(connection: Connection) -> UnratedMoney:
    return await read_one(connection, _UNRATED, UnratedMoney) or UnratedMoney(0, None, Nano(0))


async def postings_after(
    connection: Connection, transaction: UUID, line: int, *, limit: int
) -> Postings | None:
    """The next `limit` postings after this key; None at the end.

    A transaction becomes visible with all its lines at once. So a walk over the whole ledger sees each one either
    completely or not at all, and its sum is 0 although others post meanwhile.
    """
    return await read_one(connection, _POSTINGS, Postings, transaction=transaction, line=line, limit=limit)
