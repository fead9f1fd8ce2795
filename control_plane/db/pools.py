"""Queries on warm pools and on the machines that wait in them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.machines import SELECT, SIGHTED_AT
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.failure import FailReason
from control_plane.domain.health import UNFIT
from control_plane.domain.ids import LeaseId, MachineId, PoolId
from control_plane.domain.lease import LIVE, LeaseState
from control_plane.domain.machine import WANTED, Machine, MachineState, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.pool import Pool, PoolState
from control_plane.domain.pool_claim import PooledMachine
from control_plane.domain.pool_figures import IdleMachine, PoolHour, Requests
from control_plane.domain.pool_idle import IdleCosts
from control_plane.domain.provider_cost import BillingTerms, MachineLife
from control_plane.domain.purchase import KEPT
from control_plane.domain.sku import Shape

_COLUMNS = ", ".join(field.name for field in fields(Pool))
_MADE = Recordset(Pool, "made")
_INSERT = text(
    f"INSERT INTO pools ({_COLUMNS}, due_at) SELECT {_COLUMNS}, created_at FROM {_MADE} ON CONFLICT DO NOTHING"
)


async def insert(connection: Connection, pool: Pool) -> bool:
    """Store a new pool. False when its name, or its SKU and region, have a pool already."""
    return bool(await write(connection, _INSERT, made=_MADE.document([pool])))


_NAMED = text(f"""
SELECT {_COLUMNS} FROM pools WHERE name = ANY(:names) AND state <> '{PoolState.DELETED}' ORDER BY name
""")


async def named(connection: Connection, names: Collection[str]) -> list[Pool]:
    """The pools of these names that are not deleted."""
    return await read(connection, _NAMED, Pool, names=sorted(names))


# Taking pools, and recording what was decided

_DUE = text(f"""
SELECT id FROM pools WHERE state <> '{PoolState.DELETED}' AND due_at <= :now ORDER BY due_at, id LIMIT :limit
""")
_TAKE = text(f"""
SELECT {_COLUMNS} FROM pools WHERE id = :id AND state <> '{PoolState.DELETED}' AND due_at <= :now
FOR NO KEY UPDATE SKIP LOCKED
""")
_LOCK = text(f"""
SELECT {_COLUMNS} FROM pools WHERE name = :name AND state <> '{PoolState.DELETED}' FOR NO KEY UPDATE
""")
_RECORD = text("""
UPDATE pools SET wanted = :wanted, wanted_why = :wanted_why, target = :target, fewer_since = :fewer_since, why = :why,
  verified = :verified, starting = :starting, decided_at = :now, measured_at = :measured_at, due_at = :due_at,
  idle_costs = CAST(:idle_costs AS jsonb)
WHERE id = :id
""")
_DECIDED = text("""
INSERT INTO pool_decisions (id, pool_id, at, wanted, target, verified, starting, ordered, ended, dry_run, why)
VALUES (:id, :pool_id, :at, :wanted, :target, :verified, :starting, :ordered, :ended, :dry_run, :why)
""")
_DECISIONS = text("""
SELECT id, pool_id, at, wanted, target, verified, starting, ordered, ended, dry_run, why FROM pool_decisions
WHERE pool_id = :pool_id ORDER BY at DESC, id DESC LIMIT :limit
""")
_CHANGE = text("""
UPDATE pools SET state = :state, policy = :policy, machines_min = :machines_min, machines_max = :machines_max,
  step_max = :step_max, idle_nano_per_day = :idle_nano_per_day, waiting_nano_per_hour = :waiting_nano_per_hour,
  generation = generation + 1, changed_at = :now, due_at = :now, deleted_at = :deleted_at
WHERE id = :id AND generation = :generation
""")
_EVERY = text(f"SELECT {_COLUMNS} FROM pools WHERE state <> '{PoolState.DELETED}' ORDER BY name")


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """What was decided about a pool, and done unless it was a dry run."""

    id: UUID
    pool_id: PoolId
    at: datetime
    wanted: int
    target: int
    verified: int
    starting: int
    ordered: int
    ended: int
    dry_run: bool
    why: str


async def every(connection: Connection) -> list[Pool]:
    """The pools that are not deleted, in order of name."""
    return await read(connection, _EVERY, Pool)


async def due(connection: Connection, *, now: datetime, limit: int) -> list[PoolId]:
    return await read(connection, _DUE, PoolId, now=now, limit=limit)


async def take(connection: Connection, pool_id: PoolId, *, now: datetime) -> Pool | None:
    """Lock a pool that is due. None when another worker has it, or had it just now."""
    return await read_one(connection, _TAKE, Pool, id=pool_id, now=now)


async def lock(connection: Connection, name: str) -> Pool | None:
    """Lock a pool that is not deleted, by its name."""
    return await read_one(connection, _LOCK, Pool, name=name)


async def change(connection: Connection, pool: Pool, *, now: datetime) -> bool:
    """Store the state of a pool and what operators may change of it, and let it be looked at.

    False when it changed meanwhile.
    """
    return bool(
        await write(
            connection,
            _CHANGE,
            id=pool.id,
            generation=pool.generation,
            state=pool.state.value,
            policy=pool.policy.value,
            machines_min=pool.machines_min,
            machines_max=pool.machines_max,
            step_max=pool.step_max,
            idle_nano_per_day=pool.idle_nano_per_day,
            waiting_nano_per_hour=pool.waiting_nano_per_hour,
            deleted_at=pool.deleted_at,
            now=now,
        )
    )


async def record(
    connection: Connection,
    decision: PoolDecision,
    *,
    wanted_why: str,
    fewer_since: datetime | None,
    measured_at: datetime | None,
    idle_costs: IdleCosts | None,
    due_at: datetime,
    news: bool,
) -> None:
    """Store what was decided about a pool, and as a fact of its own if it is news."""
    values = {field.name: getattr(decision, field.name) for field in fields(PoolDecision)}
    if news:
        await write(connection, _DECIDED, **values)
    await write(
        connection,
        _RECORD,
        id=decision.pool_id,
        wanted=decision.wanted,
        wanted_why=wanted_why,
        target=decision.target,
        fewer_since=fewer_since,
        why=decision.why,
        verified=decision.verified,
        starting=decision.starting,
        now=decision.at,
        measured_at=measured_at,
        idle_costs=None if idle_costs is None else document(idle_costs),
        due_at=due_at,
    )


async def decisions(connection: Connection, pool_id: PoolId, *, limit: int) -> list[PoolDecision]:
    """The latest decisions, newest first."""
    return await read(connection, _DECISIONS, PoolDecision, pool_id=pool_id, limit=limit)


# The machines of a pool, and those that are reserved

_UNCLAIMED = "NOT EXISTS (SELECT FROM claims c WHERE c.machine_id = m.id)"
_MACHINES = text(f"""
{SELECT} WHERE m.pool_id = :pool_id AND m.purpose = '{Purpose.POOL}' AND {among("m.state", WANTED)} AND {_UNCLAIMED}
ORDER BY m.created_at, m.id
""")
_COST = text(f"""
SELECT CAST(avg(m.cost_nano_per_hour) AS bigint) FROM machines m
WHERE m.pool_id = :pool_id AND m.purpose = '{Purpose.POOL}' AND {among("m.state", WANTED)} AND {_UNCLAIMED}
HAVING count(*) > 0
""")
_LEFT = text(f"""
SELECT count(*) FROM machines m
WHERE m.pool_id = :pool_id AND m.purpose = '{Purpose.POOL}' AND m.state <> '{MachineState.GONE}' AND {_UNCLAIMED}
""")
_RESERVED_IN_VAIN = text(f"""
{SELECT} LEFT JOIN leases l ON l.id = m.reserved_for
WHERE m.purpose = '{Purpose.POOL}' AND m.state <> '{MachineState.GONE}' AND m.reserved_for IS NOT NULL
  AND {among("m.state", WANTED)} AND {_UNCLAIMED} AND (({among("l.state", LIVE)}) IS NOT TRUE
    OR l.state = '{LeaseState.READY}' AND NOT EXISTS (
      SELECT FROM claims c JOIN repairs r ON r.machine_id = c.machine_id
      WHERE c.lease_id = l.id AND c.ended_at IS NULL AND r.spare_wanted_at IS NOT NULL AND r.closed_at IS NULL))
ORDER BY m.id LIMIT :limit
""")


async def machines_of(connection: Connection, pool_id: PoolId) -> list[Machine]:
    """The machines of a pool that wait for a lease or are being set up, oldest first. None is locked."""
    return await read(connection, _MACHINES, Machine, pool_id=pool_id)


async def cost_per_hour(connection: Connection, pool_id: PoolId) -> Nano | None:
    """What a waiting machine of a pool costs on average; None while it has none."""
    return await read_one(connection, _COST, Nano, pool_id=pool_id)


async def left(connection: Connection, pool_id: PoolId) -> int:
    """How many machines of a pool may exist that no lease ever claimed."""
    return (await read(connection, _LEFT, int, pool_id=pool_id))[0]


async def reserved_in_vain(connection: Connection, *, limit: int) -> list[Machine]:
    """Machines that are reserved for leases that have ended, or need none any more. None is locked."""
    return await read(connection, _RESERVED_IN_VAIN, Machine, limit=limit)


# Measuring

_SERVED = f"""
l.sku = :sku AND l.node_pool_id IS NULL AND {among("l.purchase", KEPT)} AND (CAST(:sla AS text) IS NULL OR l.sla = :sla)
AND (l.regions = '{{}}' OR EXISTS (SELECT FROM unnest(l.regions) r WHERE r = :region
  OR r LIKE CAST(:region AS text) || '-%' OR :region LIKE r || '-%'))
"""
"""SQL: a pool could have served lease `l`, by the words of its request alone."""
_ARRIVALS = text(f"""
SELECT l.created_at FROM leases l WHERE {_SERVED} AND l.created_at >= :since
ORDER BY l.created_at DESC LIMIT :limit
""")
_LEAD_SECONDS = text("""
SELECT CAST(extract(epoch FROM m.verified_at - m.created_at) AS double precision) FROM machines m
WHERE m.gpu_model = :gpu_model AND m.gpu_count = :gpu_count AND m.verified_at IS NOT NULL
  AND (m.region = :region OR m.region LIKE CAST(:region AS text) || '-%')
ORDER BY m.verified_at DESC LIMIT :limit
""")
_FAILURES = text("""
SELECT offer_key, fail_reason AS reason, max(created_at) AS at, count(*) AS times FROM machines
WHERE pool_id = :pool_id AND (gone_at IS NULL OR gone_at >= :since) AND created_at >= :since AND fail_reason IS NOT NULL
  AND NOT EXISTS (SELECT FROM claims c WHERE c.machine_id = machines.id)
GROUP BY offer_key, fail_reason ORDER BY at
""")
_SINCE_ALWAYS = text("SELECT min(effective_from) FROM prices WHERE sku = :sku")
ARRIVALS_MAX = 50_000
LEADS_MAX = 200


@dataclass(frozen=True, slots=True)
class PoolFailure:
    """How often machines of a pool from one offer failed lately for one reason."""

    offer_key: str
    reason: FailReason
    at: datetime
    times: int


def _asked(pool: Pool) -> dict[str, object]:
    return {"sku": pool.sku, "region": pool.region, "sla": pool.sla}


async def arrivals(connection: Connection, pool: Pool, *, since: datetime) -> list[datetime]:
    """When leases were requested that the pool could have served, oldest first; the latest ARRIVALS_MAX of them."""
    found = await read(connection, _ARRIVALS, datetime, **_asked(pool), since=since, limit=ARRIVALS_MAX)
    return found[::-1]


async def lead_seconds(connection: Connection, pool: Pool, shape: Shape) -> list[float]:
    """How long the latest machines of a shape in a pool's region took from their order until they were verified."""
    values = {"gpu_model": shape.gpu_model, "gpu_count": shape.gpu_count, "region": pool.region}
    return await read(connection, _LEAD_SECONDS, float, **values, limit=LEADS_MAX)


async def sold_since(connection: Connection, pool: Pool) -> datetime:
    """Since when its SKU has a price."""
    return await read_one(connection, _SINCE_ALWAYS, datetime, sku=pool.sku) or pool.created_at


async def failures(connection: Connection, pool: Pool, *, since: datetime) -> list[PoolFailure]:
    """Which of its machines that were ordered since then failed before a lease claimed them."""
    return await read(connection, _FAILURES, PoolFailure, pool_id=pool.id, since=since)


# Figures by the hour

_REQUESTS = text(f"""
SELECT date_trunc('hour', l.created_at, 'UTC') AS hour, first.pool_id IS NOT NULL AS hit,
  count(*) AS requests, count(l.ready_at) AS ready,
  CAST(coalesce(sum(extract(epoch FROM l.ready_at - l.created_at) * 1000), 0) AS bigint) AS waited_ms
FROM leases l LEFT JOIN LATERAL (
  SELECT m.pool_id FROM claims c JOIN machines m ON m.id = c.machine_id
  WHERE c.lease_id = l.id AND m.pool_id = :pool_id ORDER BY c.attempt LIMIT 1
) first ON true
WHERE {_SERVED} AND l.created_at >= :since
GROUP BY 1, 2
""")
_IDLE_COLUMNS = """
SELECT m.cost_nano_per_hour AS nano_per_hour, m.stopped_cost_nano_per_hour AS stopped_nano_per_hour,
  m.increment_seconds, m.minimum_seconds, m.billed_while_booting, m.provider_ref, m.asked_at AS ordered_at,
  m.running_at, least(m.terminate_asked_at, m.missed_since) AS ending_at, m.gone_at AS ended_at, c.claimed_at
FROM machines m LEFT JOIN claims c ON c.machine_id = m.id
"""
_IDLE = text(f"""
{_IDLE_COLUMNS} WHERE m.pool_id = :pool_id AND (m.gone_at IS NULL OR m.gone_at >= :since)
  AND (c.claimed_at IS NULL OR c.claimed_at >= :since)
""")
# Those whose wait was over last.
_WAITED = text(f"""
{_IDLE_COLUMNS} WHERE m.pool_id = :pool_id AND coalesce(c.claimed_at, m.terminate_asked_at, m.missed_since) >= :since
ORDER BY coalesce(c.claimed_at, m.terminate_asked_at, m.missed_since) DESC, m.id LIMIT :limit
""")
_HOURS = Recordset(PoolHour, "hours")
_HOUR_COLUMNS = [field.name for field in fields(PoolHour)]
_PUT_HOURS = text(f"""
INSERT INTO pool_hours (pool_id, {", ".join(_HOUR_COLUMNS)})
SELECT :pool_id, {", ".join(_HOUR_COLUMNS)} FROM {_HOURS}
ON CONFLICT (pool_id, hour) DO UPDATE SET
  {", ".join(f"{name} = excluded.{name}" for name in _HOUR_COLUMNS if name != "hour")}
""")
_HOURS_SINCE = text(f"""
SELECT {", ".join(_HOUR_COLUMNS)} FROM pool_hours WHERE pool_id = :pool_id AND hour >= :since ORDER BY hour
""")


@dataclass(frozen=True, slots=True)
class _Idle:
    nano_per_hour: Nano
    stopped_nano_per_hour: Nano | None
    increment_seconds: int
    minimum_seconds: int
    billed_while_booting: bool
    provider_ref: str | None
    ordered_at: datetime | None
    running_at: datetime | None
    ending_at: datetime | None
    ended_at: datetime | None
    claimed_at: datetime | None

    def machine(self) -> IdleMachine:
        return IdleMachine(
            BillingTerms(
                nano_per_hour=self.nano_per_hour,
                stopped_nano_per_hour=self.stopped_nano_per_hour,
                increment_seconds=self.increment_seconds,
                minimum_seconds=self.minimum_seconds,
                billed_while_booting=self.billed_while_booting,
            ),
            MachineLife(
                ordered_at=self.ordered_at,
                running_at=self.running_at,
                ending_at=self.ending_at,
                ended_at=self.ended_at,
                referenced=self.provider_ref is not None,
            ),
            self.claimed_at,
        )


async def requests(connection: Connection, pool: Pool, *, since: datetime) -> list[Requests]:
    """The leases that the pool could have served since then, by the hour of their request and whether it did."""
    return await read(connection, _REQUESTS, Requests, **_asked(pool), pool_id=pool.id, since=since)


async def idle(connection: Connection, pool: Pool, *, since: datetime) -> list[IdleMachine]:
    """The machines of a pool that waited at any time since then."""
    return [row.machine() for row in await read(connection, _IDLE, _Idle, pool_id=pool.id, since=since)]


async def waited(connection: Connection, pool: Pool, *, since: datetime, limit: int) -> list[IdleMachine]:
    """The machines of a pool whose wait was over since then, the latest ones."""
    found = await read(connection, _WAITED, _Idle, pool_id=pool.id, since=since, limit=limit)
    return [row.machine() for row in found]


async def put_hours(connection: Connection, pool_id: PoolId, hours: Sequence[PoolHour]) -> None:
    """Store the figures of some hours in place of earlier ones."""
    if hours:
        await write(connection, _PUT_HOURS, pool_id=pool_id, hours=_HOURS.document(hours))


async def hours(connection: Connection, pool_id: PoolId, *, since: datetime) -> list[PoolHour]:
    return await read(connection, _HOURS_SINCE, PoolHour, pool_id=pool_id, since=since)


# Machines for leases that are placed

WAITING_MAX = 300
"""So many machines are considered for the leases that are placed together."""

_OF_POOL = {
    "sku": "p.sku",
    "pool": "p.name AS pool",
    "pool_state": "p.state AS pool_state",
    "pool_sla": "p.sla AS pool_sla",
}
_POOLED = ", ".join(
    f"{SIGHTED_AT} AS sighted_at"
    if field.name == "sighted_at"
    else _OF_POOL.get(field.name, f"m.{field.name}")
    for field in fields(PooledMachine)
)
_UNFIT = f"""(
  EXISTS (SELECT FROM machine_health h WHERE h.machine_id = m.id AND {among("h.verdict", UNFIT)})
  OR EXISTS (SELECT FROM maintenances t WHERE t.machine_id = m.id AND t.ended_at IS NULL))"""
# A machine that was claimed once is never claimed again.
_WAITING = text(f"""
SELECT {_POOLED} FROM machines m JOIN provider_accounts a ON a.name = m.account LEFT JOIN pools p ON p.id = m.pool_id
WHERE m.purpose = '{Purpose.POOL}' AND m.state <> '{MachineState.GONE}' AND {among("m.state", WANTED)}
  AND (p.sku = ANY(:skus) OR m.reserved_for = ANY(:leases))
  AND NOT EXISTS (SELECT FROM claims c WHERE c.machine_id = m.id)
  AND NOT {_UNFIT}
ORDER BY m.state <> '{MachineState.VERIFIED}', m.created_at, m.id LIMIT :limit
""")


_UNFIT_ONES = text(f"SELECT m.id FROM machines m WHERE m.id = ANY(:ids) AND {_UNFIT}")


async def unfit(connection: Connection, machine_ids: Sequence[MachineId]) -> list[MachineId]:
    """Those of these machines that no lease is given: by their health, or because an operator took them out."""
    return await read(connection, _UNFIT_ONES, MachineId, ids=list(machine_ids)) if machine_ids else []


async def waiting(
    connection: Connection, skus: Collection[str], lease_ids: Sequence[LeaseId]
) -> list[PooledMachine]:
    """Machines that wait for leases of these SKUs, or for one of these leases, verified ones first. None is locked."""
    values = {"skus": sorted(skus), "leases": list(lease_ids)}
    return await read(connection, _WAITING, PooledMachine, **values, limit=WAITING_MAX)
