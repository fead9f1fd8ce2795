"""Queries on leases: storing, locking and moving them. A state changes only through `move`.

What customers read of them is in `db/lease_overviews.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db import ssh_certificates
from control_plane.db.admission_decisions import INSERT_FOR_LEASE, SELECT_FOR_LEASE
from control_plane.db.admission_decisions import values as decision_values
from control_plane.db.connection import Connection
from control_plane.db.journal import ACTOR, INSERT, actor_values
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.actor import Actor
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.decision import Decision
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AdmissionDecisionId, EnvironmentId, LeaseId, OrganizationId, ProjectId
from control_plane.domain.journal import Note
from control_plane.domain.lease import (
    BILLED,
    END_REASONS,
    LIVE,
    TERMINAL,
    EndReason,
    Lease,
    LeaseEvent,
    LeaseMove,
    LeaseState,
)
from control_plane.domain.money import Nano
from control_plane.domain.tariff import Tariff

_NAMED_BY = frozenset({"project", "environment", "network", "node_pool", "cluster"})
_COLUMNS = tuple(field.name for field in fields(Lease) if field.name not in _NAMED_BY)
_NAMES = """
(SELECT name FROM projects WHERE id = l.project_id) AS project,
(SELECT name FROM environments WHERE id = l.environment_id) AS environment,
(SELECT name FROM networks WHERE id = l.network_id) AS network,
(SELECT name FROM node_pools WHERE id = l.node_pool_id) AS node_pool,
(SELECT c.name FROM node_pools p JOIN clusters c ON c.id = p.cluster_id WHERE p.id = l.node_pool_id) AS cluster"""
"""SQL: the names of what a lease belongs to. Without joins, so that `FOR UPDATE` locks the lease alone."""
COLUMNS = f"{', '.join(f'l.{column}' for column in _COLUMNS)}, {_NAMES}"
"""SQL: the columns of `Lease`, of the row `l`."""
_SELECT = f"SELECT {COLUMNS} FROM leases l"

_LATER = frozenset(
    {
        *("generation", "attempts", "end_reason", "end_why", "waiting_since", "waiting_why"),
        *("ready_at", "release_at", "switched_at", "paused_at"),
        *("billed_until", "unused_unit_seconds", "ended_at"),
    }
)
"""Columns that a new lease gets from the table's defaults."""


def _value(column: str) -> str:
    """SQL: the parameter of a column; one that holds JSON is sent as text."""
    return f"CAST(:{column} AS jsonb)" if column in _JSON else f":{column}"


_GIVEN = tuple(column for column in _COLUMNS if column != "state" and column not in _LATER)
_JSON = frozenset({"ssh_keys", "labels"})
_LIVE = among("state", LIVE)
# Stores the lease, its first journal line, its hold and the organization's standing in one round trip; nothing of it
# when a live lease of the project has the name.
_INSERT = text(f"""
WITH lease AS (
  INSERT INTO leases ({", ".join(_GIVEN)}, state, due_at)
  VALUES ({", ".join(_value(column) for column in _GIVEN)}, '{LeaseState.PLACING}', :created_at)
  ON CONFLICT (organization_id, project_id, name) WHERE {_LIVE} DO NOTHING
  RETURNING id, organization_id, project_id, environment_id, state
), noted AS (
  {INSERT}
  SELECT organization_id, project_id, id, NULL, :created_at, {ACTOR}, '{Note.ADMITTED}', NULL, state, :why FROM lease
), held AS (
  INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at)
  SELECT id, organization_id, :hold_nano, :created_at FROM lease
), promised AS (
  INSERT INTO sla_clocks (lease_id, organization_id, due_at)
  SELECT id, organization_id, :created_at FROM lease WHERE CAST(:sla_version AS integer) IS NOT NULL
), counted AS (
  INSERT INTO capacity_held (organization_id, project_id, environment_id, gpu_model, gpus, nano_per_hour)
  SELECT organization_id, project_id, environment_id, :gpu_model, :gpu_count, :nano_per_hour FROM lease
  ON CONFLICT (organization_id, environment_id, gpu_model) DO UPDATE SET
    gpus = capacity_held.gpus + EXCLUDED.gpus, nano_per_hour = capacity_held.nano_per_hour + EXCLUDED.nano_per_hour
), decided AS (
  {INSERT_FOR_LEASE} SELECT {SELECT_FOR_LEASE} FROM lease
)
UPDATE standings s SET gpus_held = s.gpus_held + :gpu_count, held_nano = s.held_nano + :hold_nano,
  balance_due_at = coalesce(s.balance_due_at, :created_at) FROM lease WHERE s.organization_id = lease.organization_id
""")
_NAMED = text(f"SELECT id FROM leases WHERE project_id = :project_id AND name = :name AND {_LIVE}")
_LABEL = text("UPDATE leases SET labels = CAST(:labels AS jsonb) WHERE id = :id")


def _values(lease: Lease, columns: Iterable[str]) -> dict[str, object]:
    """What a statement gets for these columns of a lease."""
    values = {column: getattr(lease, column) for column in columns}
    return {
        column: document(value) if column in _JSON else list(value) if isinstance(value, tuple) else value
        for column, value in values.items()
    }


async def insert(
    connection: Connection,
    lease: Lease,
    *,
    hold_nano: Nano,
    decision: Decision,
    decision_id: AdmissionDecisionId,
    actor: Actor,
    why: str,
) -> bool:
    """Store an admitted lease with its hold and the decision. The caller holds the standing's lock.

    False, and nothing is stored, when a live lease of the project has the name.
    """
    return bool(
        await write(
            connection,
            _INSERT,
            **_values(lease, _GIVEN),
            **decision_values(decision, decision_id, now=lease.created_at),
            hold_nano=hold_nano,
            nano_per_hour=lease.nano_per_hour,
            why=why,
            **actor_values(actor),
        )
    )


_REPLACED = (
    *(
        "sku",
        "gpu_model",
        "gpu_count",
        "nano_per_unit_hour",
        "stopped_nano_per_unit_hour",
        "list_nano_per_unit_hour",
        "price_book",
        "price_agreement_id",
        "committed_days",
        "proof",
    ),
    *(
        "regions",
        "providers",
        "price_nano_per_hour_max",
        "network_gbps_min",
        "priority",
        "wait_timeout_seconds",
    ),
)
# Nothing of a lease that waits is metered or bought, so its SKU can change with its price, its hold and its GPUs.
_REPLACE = text(f"""
WITH before AS (
  SELECT l.id, l.organization_id, l.project_id, l.environment_id, l.gpu_model, l.gpu_count,
         l.nano_per_unit_hour * l.units AS nano_per_hour, h.amount_nano
  FROM leases l JOIN holds h ON h.lease_id = l.id AND h.organization_id = l.organization_id WHERE l.id = :id
), changed AS (
  UPDATE leases SET {", ".join(f"{column} = :{column}" for column in _REPLACED)},
    due_at = :now, generation = generation + 1
  WHERE id = :id
), freed AS (
  UPDATE capacity_held c SET gpus = c.gpus - b.gpu_count, nano_per_hour = c.nano_per_hour - b.nano_per_hour
  FROM before b
  WHERE c.organization_id = b.organization_id AND c.environment_id = b.environment_id
    AND c.gpu_model IS NOT DISTINCT FROM b.gpu_model
), held AS (
  UPDATE holds h SET amount_nano = :hold_nano FROM before b
  WHERE h.lease_id = b.id AND h.organization_id = b.organization_id
)
UPDATE standings s SET gpus_held = s.gpus_held + :gpu_count - b.gpu_count,
                       held_nano = s.held_nano + :hold_nano - b.amount_nano
FROM before b WHERE s.organization_id = b.organization_id
""")
# After `_REPLACE`, because one statement cannot change a row twice.
_COUNT = text("""
INSERT INTO capacity_held (organization_id, project_id, environment_id, gpu_model, gpus, nano_per_hour)
VALUES (:organization_id, :project_id, :environment_id, :gpu_model, :gpu_count, :nano_per_hour)
ON CONFLICT (organization_id, environment_id, gpu_model) DO UPDATE SET
  gpus = capacity_held.gpus + EXCLUDED.gpus, nano_per_hour = capacity_held.nano_per_hour + EXCLUDED.nano_per_hour
""")
# On the row of the lease, which the meter locks: it reads all stops before the moment through which it meters.
_SWITCH = text(f"""
WITH switched AS (
  UPDATE leases l SET switched_at = array_append(l.switched_at, greatest(
    CAST(:at AS timestamptz), l.metered_until, l.switched_at[cardinality(l.switched_at)]))
  WHERE l.id = :id AND l.state = '{LeaseState.READY}'
  RETURNING l.id, l.organization_id, l.switched_at[cardinality(l.switched_at)] AS at
), checked AS (
  UPDATE holds h SET due_at = :at FROM switched s
  WHERE h.lease_id = s.id AND h.organization_id = s.organization_id AND h.released_at IS NULL
)
SELECT at FROM switched
""")
_PAUSE = text(f"""
UPDATE leases l SET paused_at = l.paused_at || ARRAY[pause.since, greatest(pause.since, :until)],
  unattributed_at = CASE WHEN CAST(:counts AS boolean) THEN l.unattributed_at
    ELSE l.unattributed_at || ARRAY[pause.since, greatest(pause.since, :until)] END
FROM (SELECT id, greatest(CAST(:since AS timestamptz), metered_until, paused_at[cardinality(paused_at)]) AS since
      FROM leases WHERE id = :id) pause
WHERE l.id = pause.id AND l.state = '{LeaseState.READY}'
RETURNING l.paused_at
""")
_LIMIT = text("""
UPDATE leases SET auto_release_after_seconds = :after_seconds, auto_release_spend_nano = :spend_nano,
  release_at = :release_at, generation = generation + 1 WHERE id = :id
""")


async def replace_request(connection: Connection, lease: Lease, *, hold_nano: Nano, now: datetime) -> None:
    """Store another request of a lease that waits for a machine, with its price and its hold.

    The caller holds the locks of the lease and the standing.
    """
    await write(connection, _REPLACE, id=lease.id, **_values(lease, _REPLACED), hold_nano=hold_nano, now=now)
    counted = ("organization_id", "project_id", "environment_id", "gpu_model", "gpu_count", "nano_per_hour")
    await write(connection, _COUNT, **_values(lease, counted))


async def set_auto_release(
    connection: Connection, lease_id: LeaseId, limits: AutoRelease, release_at: datetime | None
) -> None:
    """Store other limits of a locked lease, and when it is released by them."""
    await write(
        connection,
        _LIMIT,
        id=lease_id,
        after_seconds=limits.after_seconds,
        spend_nano=limits.spend_nano,
        release_at=release_at,
    )


async def switch(connection: Connection, lease_id: LeaseId, at: datetime) -> datetime | None:
    """Change between the price of a machine that is on and that of a stopped one, and have the hold checked.

    Returns the moment: `at`, or up to when the lease is metered; None when it is not ready. The caller holds its lock.
    """
    return await read_one(connection, _SWITCH, datetime, id=lease_id, at=at)


async def pause(
    connection: Connection, lease_id: LeaseId, since: datetime, until: datetime, *, counts: bool
) -> tuple[datetime, ...] | None:
    """Let the time between two moments cost nothing, except for what is metered of it. Store whether it `counts` as
    time in which what was promised was missing.

    Returns the moments of all its pauses; None when it is not ready. The caller holds its lock.
    """
    values = {"id": lease_id, "since": since, "until": until, "counts": counts}
    return await read_one(connection, _PAUSE, tuple[datetime, ...], **values)


async def live_named(connection: Connection, project_id: ProjectId, name: str) -> LeaseId | None:
    """The live lease of a project that has this name; None when there is none."""
    return await read_one(connection, _NAMED, LeaseId, project_id=project_id, name=name)


async def set_labels(connection: Connection, lease_id: LeaseId, labels: Mapping[str, str]) -> None:
    """Replace the labels of a locked lease."""
    await write(connection, _LABEL, id=lease_id, labels=document(labels))


@dataclass(frozen=True, slots=True)
class _Moving:
    """A move, with the columns that change with the state."""

    id: LeaseId
    seen: int
    event: LeaseEvent
    before: LeaseState
    after: LeaseState
    why: str | None
    end_reason: EndReason | None
    due_at: datetime | None
    ready_at: datetime | None
    release_at: datetime | None
    paused_at: datetime | None
    billed_until: datetime | None
    unused_unit_seconds: int
    ended_at: datetime | None
    attempt: int
    leaves_live: bool


@dataclass(frozen=True, slots=True)
class _Left:
    """A lease that moved."""

    id: LeaseId
    organization_id: OrganizationId
    environment_id: EnvironmentId
    gpu_model: GpuModel | None
    gpu_count: int
    units: int
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano
    switched_at: tuple[datetime, ...]
    paused_at: tuple[datetime, ...]
    ready_at: datetime | None
    billed_until: datetime | None
    committed_days: int | None
    unused_unit_seconds: int
    leaves_live: bool


@dataclass(frozen=True, slots=True)
class _LastHold:
    """What the hold of a lease that has ended keeps."""

    lease_id: LeaseId
    cost_nano: Nano | None
    """What the lease costs in total, with the rest of a term; None when it was never ready: its hold is released."""
    environment_id: EnvironmentId
    gpu_model: GpuModel | None
    gpus: int
    nano_per_hour: Nano


PAUSED = "cardinality(l.paused_at) % 2 = 1"
"""SQL: the bill of lease `l` is paused."""
# What a machine costs us that is stopped is known when the lease has it. The price follows `tariff.stopped_price`.
STOPPED_PRICE = """least(l.nano_per_unit_hour, greatest(l.stopped_nano_per_unit_hour, (
  SELECT (coalesce(m.stopped_cost_nano_per_hour, m.cost_nano_per_hour) + l.units - 1) / l.units
  FROM claims c JOIN machines m ON m.id = c.machine_id WHERE c.lease_id = l.id AND c.ended_at IS NULL)))"""
"""SQL: the price of a stopped unit of lease `l`, which has a machine."""
# One statement moves any number of leases and writes their journal lines.
_MOVING = Recordset(_Moving, "moving")
_MOVE = text(f"""
WITH wanted AS (SELECT * FROM {_MOVING}),
moved AS (
  UPDATE leases l SET
    state = w.after, generation = l.generation + 1, due_at = coalesce(w.due_at, l.due_at),
    ready_at = coalesce(l.ready_at, w.ready_at),
    release_at = CASE WHEN w.ready_at IS NULL AND w.paused_at IS NULL THEN l.release_at ELSE w.release_at END,
    stopped_nano_per_unit_hour = CASE WHEN w.ready_at IS NULL OR l.ready_at IS NOT NULL
                                      THEN l.stopped_nano_per_unit_hour ELSE {STOPPED_PRICE} END,
    paused_at = CASE
      WHEN w.paused_at IS NOT NULL THEN array_append(l.paused_at,
        greatest(w.paused_at, l.metered_until, l.paused_at[cardinality(l.paused_at)]))
      WHEN w.ready_at IS NOT NULL AND {PAUSED} THEN array_append(l.paused_at, w.ready_at)
      ELSE l.paused_at END,
    billed_until = coalesce(w.billed_until, l.billed_until),
    unused_unit_seconds = l.unused_unit_seconds + w.unused_unit_seconds, waiting_since = NULL, waiting_why = NULL,
    end_reason = coalesce(w.end_reason, l.end_reason),
    end_why = CASE WHEN w.end_reason IS NULL THEN l.end_why ELSE w.why END,
    ended_at = coalesce(w.ended_at, l.ended_at), attempts = l.attempts + w.attempt
  FROM wanted w
  WHERE l.id = w.id AND l.state = w.before AND l.generation = w.seen
  RETURNING l.id, l.organization_id, l.project_id, l.environment_id, l.gpu_model, l.gpu_count,
            l.units, l.nano_per_unit_hour, l.stopped_nano_per_unit_hour, l.switched_at, l.paused_at, l.ready_at,
            l.billed_until, l.committed_days, l.unused_unit_seconds, w.event, w.before, w.after, w.why, w.leaves_live
), noted AS (
  {INSERT}
  SELECT organization_id, project_id, id, NULL, :now, {ACTOR}, event, before, after, why FROM moved
)
SELECT id, organization_id, environment_id, gpu_model, gpu_count, units, nano_per_unit_hour,
       stopped_nano_per_unit_hour, switched_at, paused_at, ready_at, billed_until, committed_days, unused_unit_seconds,
       leaves_live
FROM moved ORDER BY id
""")
# Holds are locked after their standing. `rate_usage` posts charges in the same order.
_LEAVE_LIVE = text(f"""
WITH standing AS MATERIALIZED (
  SELECT organization_id FROM standings WHERE organization_id = :organization_id FOR UPDATE
), kept AS MATERIALIZED (
  SELECT h.lease_id, h.amount_nano AS held_nano, last.cost_nano IS NULL AS unused,
         least(h.amount_nano, greatest(0, coalesce(last.cost_nano - h.posted_nano, 0))) AS kept_nano
  FROM standing JOIN holds h USING (organization_id) JOIN {Recordset(_LastHold, "last")} ON last.lease_id = h.lease_id
  WHERE h.released_at IS NULL ORDER BY h.lease_id FOR UPDATE OF h
), changed AS (
  UPDATE holds SET amount_nano = kept.kept_nano,
                   released_at = CASE WHEN kept.unused THEN CAST(:now AS timestamptz) END
  FROM kept WHERE holds.lease_id = kept.lease_id
), freed AS (
  UPDATE capacity_held c SET gpus = c.gpus - l.gpus, nano_per_hour = c.nano_per_hour - l.nano_per_hour
  FROM standing, (SELECT environment_id, gpu_model, sum(gpus)::integer AS gpus,
                         sum(nano_per_hour)::bigint AS nano_per_hour
                  FROM {Recordset(_LastHold, "last")} GROUP BY environment_id, gpu_model) l
  WHERE c.organization_id = :organization_id AND c.environment_id = l.environment_id
    AND c.gpu_model IS NOT DISTINCT FROM l.gpu_model
)
UPDATE standings SET gpus_held = gpus_held - :gpu_count,
                     held_nano = held_nano - (SELECT coalesce(sum(held_nano - kept_nano), 0) FROM kept)
WHERE organization_id = :organization_id
""")


async def move(
    connection: Connection, moves: Sequence[LeaseMove], *, actor: Actor, now: datetime
) -> frozenset[LeaseId]:
    """Apply the moves whose leases have not moved meanwhile; returns the leases that moved.

    The first move to READY sets `ready_at`, and a later one resumes the bill. Leaving the live states from READY sets
    `billed_until`. Leaving them frees the quota and the hold, except for the part that pays for use that is not posted
    yet: it stays held until the last charge is posted. It revokes the SSH certificates of a lease that was ready.
    """
    if not moves:
        return frozenset()
    document = _MOVING.document([_moving(each, now) for each in moves])
    moved = await read(connection, _MOVE, _Left, moving=document, now=now, **actor_values(actor))
    left = [lease for lease in moved if lease.leaves_live]
    # Always in one order, so that two batches cannot wait for each other's standings.
    for organization_id in sorted({lease.organization_id for lease in left}):
        of_tenant = [lease for lease in left if lease.organization_id == organization_id]
        await write(
            connection,
            _LEAVE_LIVE,
            organization_id=organization_id,
            last=Recordset.document([_last_hold(lease) for lease in of_tenant]),
            gpu_count=sum(lease.gpu_count for lease in of_tenant),
            now=now,
        )
    ended = [lease.id for lease in left if lease.ready_at is not None]
    if ended:
        await ssh_certificates.revoke_of_leases(connection, ended, now=now)
    return frozenset(lease.id for lease in moved)


def _last_hold(lease: _Left) -> _LastHold:
    cost = None
    if lease.ready_at is not None and lease.billed_until is not None:
        tariff = Tariff(**{field.name: getattr(lease, field.name) for field in fields(Tariff)})
        rest = tariff.unused_cost(lease.billed_until, lease.unused_unit_seconds)
        cost = Nano(tariff.cost_until(lease.billed_until) + rest)
    return _LastHold(
        lease.id,
        cost,
        lease.environment_id,
        lease.gpu_model,
        lease.gpu_count,
        Nano(lease.nano_per_unit_hour * lease.units),
    )


def _moving(move: LeaseMove, now: datetime) -> _Moving:
    before, after = move.moved.before, move.moved.after
    ends_bill = before in BILLED and after not in LIVE
    return _Moving(
        id=move.id,
        seen=move.seen,
        event=move.moved.event,
        before=before,
        after=after,
        why=move.why,
        end_reason=END_REASONS.get(move.moved.event) if after is LeaseState.ENDING else None,
        due_at=now if after is LeaseState.PLACING else None,
        ready_at=now if after in BILLED else None,
        release_at=move.release_at,
        paused_at=move.paused_at,
        billed_until=move.billed_until or (now if ends_bill else None),
        unused_unit_seconds=move.unused_unit_seconds,
        ended_at=now if after in TERMINAL else None,
        attempt=1 if after is LeaseState.STARTING else 0,
        leaves_live=before in LIVE and after not in LIVE,
    )


# Not FOR UPDATE, for which a line of the journal would wait, because it refers to its lease.
_LOCK = text(f"{_SELECT} WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE")


_LOCK_LIVE = text(f"""
{_SELECT} WHERE organization_id = :organization_id AND {among("state", LIVE)} ORDER BY id FOR NO KEY UPDATE
""")
_COUNT_ENDING = text(f"""
SELECT count(*) FROM leases WHERE organization_id = :organization_id AND state = '{LeaseState.ENDING}'
""")


async def lock_live(connection: Connection, organization_id: OrganizationId) -> list[Lease]:
    """Lock every live lease of an organization, in id order."""
    return await read(connection, _LOCK_LIVE, Lease, organization_id=organization_id)


async def count_ending(connection: Connection, organization_id: OrganizationId) -> int:
    """How many leases of an organization are ending."""
    return await read_one(connection, _COUNT_ENDING, int, organization_id=organization_id) or 0


async def lock(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Lease]:
    """Lock leases, in id order. Locks are always taken in the order organization, lease, claim, machine,
    standing, hold.
    """
    found = await read(connection, _LOCK, Lease, ids=sorted(set(lease_ids)))
    return {lease.id: lease for lease in found}
