"""Queries on preemptions: which leases are in need, which could yield their machine, and what was decided."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.powers import NOT_ON
from control_plane.db.rows import document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, PreemptionId
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.machine import WANTED, MachineState
from control_plane.domain.organization import OrganizationState
from control_plane.domain.preemption import (
    HISTORY,
    INTERRUPTS,
    OPEN_PER_PLACE_MAX,
    STARTED_WITHIN,
    TAKES_CAPACITY,
    TOLD_MAX,
    TRIED_MAX,
    Evidence,
    Interruptible,
    PreemptionDecision,
    PreemptionState,
)
from control_plane.domain.purchase import KEPT, PurchaseKind
from control_plane.domain.request import PRIORITY_DEFAULT


@dataclass(frozen=True, slots=True)
class Preemption:
    """An interruptible lease that yields its machine, or did."""

    id: PreemptionId
    organization_id: OrganizationId
    lease_id: LeaseId
    claim_id: ClaimId
    machine_id: MachineId
    for_lease_id: LeaseId
    offer_key: str
    state: PreemptionState
    why: str
    harm_gpu_seconds: int
    notified_at: datetime
    interrupt_at: datetime
    interrupted_at: datetime | None
    ordered_machine_id: MachineId | None
    orders: int
    closed_at: datetime | None


_COLUMNS = ", ".join(field.name for field in fields(Preemption))
_HISTORY = f"interval '{int(HISTORY.total_seconds())} seconds'"
_INTERRUPTED = among("p.state", INTERRUPTS)
# A machine whose agent or proof is in doubt is left to those who repair it. One that its customer stopped may hold no
# place at its provider, and its disk is its customer's.
_LISTED = f"""m.missed_since IS NULL AND m.down_since IS NULL AND m.suspect_since IS NULL
  AND NOT {NOT_ON.format(machine="m.id")}"""

_FOR_NOTHING = frozenset({PreemptionState.WITHDRAWN, PreemptionState.IN_VAIN})

# Leases in need


@dataclass(frozen=True, slots=True)
class Waiting:
    """A lease that is promised a machine by some time, and waits because nothing can serve it."""

    lease_id: LeaseId
    waiting_since: datetime
    waiting_why: str
    tried: int
    """How many machines were taken back for it."""
    told: int
    """How many notices were given for it."""
    let_go: int
    """How many leases its customer released within 24 hours while a machine was taken back for them."""


# A machine that is reserved for the lease is being made ready already.
_WAITING = f"""
SELECT l.id AS lease_id, l.waiting_since, l.waiting_why,
  (SELECT count(*) FROM preemptions p WHERE p.for_lease_id = l.id AND {_INTERRUPTED}) AS tried,
  (SELECT count(*) FROM preemptions p WHERE p.for_lease_id = l.id) AS told,
  (SELECT count(*) FROM preemptions p JOIN leases released ON released.id = p.for_lease_id
    WHERE released.organization_id = l.organization_id AND released.end_reason = '{EndReason.RELEASED}'
      AND {among("p.state", _FOR_NOTHING)} AND p.notified_at > CAST(:now AS timestamptz) - interval '1 day') AS let_go,
  l.organization_id, t.priority, l.created_at
FROM leases l JOIN organizations o ON o.id = l.organization_id
JOIN sla_terms t ON t.version = l.sla_version AND t.tier = l.sla
WHERE l.state = '{LeaseState.PLACING}' AND l.waiting_since IS NOT NULL AND l.sla_version IS NOT NULL
  AND {among("l.purchase", KEPT)} AND l.node_pool_id IS NULL
  AND o.state = '{OrganizationState.ACTIVE}'
  AND NOT EXISTS (SELECT FROM preemptions p WHERE p.for_lease_id = l.id AND p.closed_at IS NULL)
  AND NOT EXISTS (SELECT FROM machines m WHERE m.reserved_for = l.id AND {among("m.state", WANTED)})
"""
# Leases that nothing can ever serve wait for hours and cost nothing. So customers take turns for a place on a page, and
# those leases come last for which enough was tried: nobody's keep those of others from being looked at.
_WAITING_PAGE = text(f"""
WITH promised AS (
  {_WAITING} AND (l.ready_at IS NULL AND t.ready_seconds IS NOT NULL OR t.replacement_seconds IS NOT NULL)
), page AS (
  SELECT *, tried >= {TRIED_MAX} OR told >= {TOLD_MAX} AS is_over FROM promised
  ORDER BY is_over, row_number() OVER (
    PARTITION BY organization_id, tried >= {TRIED_MAX} OR told >= {TOLD_MAX}
    ORDER BY priority DESC, created_at, lease_id), priority DESC, created_at, lease_id
  LIMIT :limit
)
SELECT lease_id, waiting_since, waiting_why, tried, told, let_go FROM page ORDER BY priority DESC, created_at, lease_id
""")
_WAITING_ONE = text(f"{_WAITING} AND l.id = :id")


async def waiting(connection: Connection, *, now: datetime, limit: int) -> list[Waiting]:
    """Leases with a promise that nothing can serve, those with the highest priority first. None is locked."""
    return await read(connection, _WAITING_PAGE, Waiting, now=now, limit=limit)


async def still_waiting(connection: Connection, lease_id: LeaseId, *, now: datetime) -> Waiting | None:
    """The same about one lease, which the caller has locked; None when it is not in need any more."""
    return await read_one(connection, _WAITING_ONE, Waiting, id=lease_id, now=now)


# Interruptible leases
_USES = f"""
FROM leases l JOIN claims c ON c.lease_id = l.id AND c.ended_at IS NULL AND c.slot IS NULL
JOIN machines m ON m.id = c.machine_id JOIN provider_accounts a ON a.name = m.account
WHERE l.state = '{LeaseState.READY}' AND l.purchase = '{PurchaseKind.INTERRUPTIBLE}' AND c.admitted_at IS NOT NULL
  AND m.state = '{MachineState.VERIFIED}' AND m.gpu_model IS NOT DISTINCT FROM :gpu_model AND m.gpu_count = :gpu_count
"""
_OFFER_KEYS = text(f"SELECT DISTINCT m.offer_key {_USES} ORDER BY m.offer_key")
# Those that could yield are looked at first, however many others there are, in other regions or at accounts that are
# not armed.
_RUNNING = text(f"""
WITH places AS (
  SELECT m.account, m.region, count(*) AS under_way FROM preemptions p JOIN machines m ON m.id = p.machine_id
  WHERE p.closed_at IS NULL GROUP BY m.account, m.region)
SELECT * FROM (
SELECT l.id AS lease_id, l.organization_id, c.id AS claim_id, m.id AS machine_id, m.account, m.region, m.offer_key,
  l.gpu_count, l.priority, c.admitted_at AS running_since,
  (SELECT count(*) FROM preemptions p WHERE p.lease_id = l.id AND {_INTERRUPTED}
    AND p.interrupted_at > CAST(:now AS timestamptz) - {_HISTORY}) AS interruptions,
  (SELECT count(*) FROM preemptions p WHERE p.lease_id = l.id AND {_INTERRUPTED}
    AND p.interrupted_at > CAST(:now AS timestamptz) - interval '1 day') AS interruptions_today,
  (SELECT count(*) FROM preemptions p WHERE p.organization_id = l.organization_id AND p.lease_id <> l.id
    AND {_INTERRUPTED} AND p.interrupted_at > CAST(:now AS timestamptz) - {_HISTORY}) AS others_interrupted,
  EXISTS (SELECT FROM preemptions p WHERE p.lease_id = l.id AND p.closed_at IS NULL) AS yields_already,
  {_LISTED} AS listed,
  a.armed_at IS NOT NULL AS armed,
  coalesce((SELECT x.under_way FROM places x WHERE x.account = m.account AND x.region = m.region), 0) AS under_way
{_USES}
) r
ORDER BY (r.offer_key = ANY(:fitting) AND r.listed AND r.armed AND NOT r.yields_already
    AND r.under_way < {OPEN_PER_PLACE_MAX}) DESC,
  least(r.priority, {PRIORITY_DEFAULT}), r.running_since DESC, r.lease_id
LIMIT :limit OFFSET :passed
""")


def _of_shape(gpu_model: GpuModel | None, gpu_count: int) -> dict[str, object]:
    return {"gpu_model": None if gpu_model is None else gpu_model.value, "gpu_count": gpu_count}


async def offer_keys(connection: Connection, gpu_model: GpuModel | None, gpu_count: int) -> list[str]:
    """The offers of the machines of this shape that interruptible leases have."""
    return await read(connection, _OFFER_KEYS, str, **_of_shape(gpu_model, gpu_count))


async def running(
    connection: Connection,
    gpu_model: GpuModel | None,
    gpu_count: int,
    *,
    fitting: Collection[str],
    now: datetime,
    limit: int,
    passed: int,
) -> list[Interruptible]:
    """Interruptible leases with a machine of this shape: first those at the offers `fitting` that may yield it, then
    those with the lowest priority, then those that run for the shortest time. The first `passed` ones are left out.
    """
    values = {**_of_shape(gpu_model, gpu_count), "fitting": list(fitting), "passed": passed}
    return await read(connection, _RUNNING, Interruptible, **values, now=now, limit=limit)


_LISTED_NOW = text(f"SELECT m.id FROM machines m WHERE m.id = :id AND {_LISTED}")


async def listed(connection: Connection, machine_id: MachineId) -> bool:
    """Whether the provider of a machine lists it as running, and nothing about it is in doubt."""
    return await read_one(connection, _LISTED_NOW, MachineId, id=machine_id) is not None


# Preemptions

_INSERT = text(f"""
INSERT INTO preemptions (id, organization_id, project_id, lease_id, claim_id, machine_id, for_lease_id, offer_key,
  state, why, harm_gpu_seconds, notified_at, interrupt_at)
SELECT :id, l.organization_id, l.project_id, l.id, :claim_id, :machine_id, :for_lease_id, :offer_key,
  '{PreemptionState.NOTIFIED}', :why, :harm, :now, :interrupt_at
FROM leases l WHERE l.id = :lease_id
ON CONFLICT DO NOTHING
""")
# Regions take turns, so that no one with slow ends keeps the others from being looked at.
_OPEN = text("""
SELECT id FROM (
  SELECT p.id, p.notified_at, row_number() OVER (PARTITION BY m.account, m.region ORDER BY p.notified_at, p.id) AS turn
  FROM preemptions p JOIN machines m ON m.id = p.machine_id WHERE p.closed_at IS NULL) o
ORDER BY turn, notified_at, id LIMIT :limit
""")
_COUNT_STARTED = text("SELECT count(*) FROM preemptions WHERE notified_at > :after")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('preemptions'))")
_GET = text(f"SELECT {_COLUMNS} FROM preemptions WHERE id = :id")
_LOCK = text(f"SELECT {_COLUMNS} FROM preemptions WHERE id = :id FOR UPDATE")
_MOVE = text("""
UPDATE preemptions SET state = :state, why = :why, interrupted_at = coalesce(interrupted_at, :interrupted_at),
  ordered_machine_id = coalesce(:ordered_machine_id, ordered_machine_id),
  orders = orders + CASE WHEN CAST(:ordered_machine_id AS uuid) IS NULL THEN 0 ELSE 1 END,
  closed_at = :closed_at
WHERE id = :id AND state = :seen
""")


async def start_alone(connection: Connection) -> None:
    """Wait until no other worker gives notice, so that all of them together keep the bounds."""
    await connection.execute(_ONE_AT_A_TIME, {})


async def insert(
    connection: Connection,
    preemption_id: PreemptionId,
    lease: Interruptible,
    *,
    for_lease_id: LeaseId,
    why: str,
    harm: int,
    now: datetime,
    interrupt_at: datetime,
) -> bool:
    """Store that a lease yields its machine. False when one of the two leases is in another preemption already."""
    values = {
        "id": preemption_id,
        "lease_id": lease.lease_id,
        "claim_id": lease.claim_id,
        "machine_id": lease.machine_id,
        "for_lease_id": for_lease_id,
        "offer_key": lease.offer_key,
        "why": why,
        "harm": harm,
        "now": now,
        "interrupt_at": interrupt_at,
    }
    return bool(await write(connection, _INSERT, **values))


async def under_way(connection: Connection, *, limit: int) -> list[PreemptionId]:
    return await read(connection, _OPEN, PreemptionId, limit=limit)


async def count_started(connection: Connection, *, now: datetime) -> int:
    """How many notices all workers together gave within STARTED_WITHIN."""
    return await read_one(connection, _COUNT_STARTED, int, after=now - STARTED_WITHIN) or 0


async def get(connection: Connection, preemption_id: PreemptionId) -> Preemption | None:
    return await read_one(connection, _GET, Preemption, id=preemption_id)


async def lock(connection: Connection, preemption_id: PreemptionId) -> Preemption | None:
    """Lock a preemption. Its two leases are locked before it."""
    return await read_one(connection, _LOCK, Preemption, id=preemption_id)


async def move(
    connection: Connection,
    preemption: Preemption,
    state: PreemptionState,
    *,
    why: str,
    interrupted_at: datetime | None = None,
    ordered_machine_id: MachineId | None = None,
    closed_at: datetime | None = None,
) -> bool:
    """Move a preemption on. False when it moved meanwhile."""
    values = {
        "state": state,
        "why": why,
        "interrupted_at": interrupted_at,
        "ordered_machine_id": ordered_machine_id,
        "closed_at": closed_at,
    }
    return bool(await write(connection, _MOVE, id=preemption.id, seen=preemption.state, **values))


_SERVED = text("""
SELECT id FROM claims WHERE lease_id = :lease_id AND claimed_at >= :since AND admitted_at IS NOT NULL LIMIT 1
""")


async def was_served(connection: Connection, preemption: Preemption) -> bool:
    """Whether the lease in need had a machine since the notice, also when it has none any more."""
    values = {"lease_id": preemption.for_lease_id, "since": preemption.notified_at}
    return await read_one(connection, _SERVED, ClaimId, **values) is not None


# What placement needs to know


@dataclass(frozen=True, slots=True)
class Kept:
    """Capacity that comes free for a lease in need."""

    for_lease_id: LeaseId
    offer_key: str
    ordered: bool
    """Whether a machine in place of the one that was taken back is made ready."""


_KEPT = text(f"""
SELECT p.for_lease_id, p.offer_key, coalesce({among("m.state", WANTED)}, false) AS ordered
FROM preemptions p LEFT JOIN machines m ON m.id = p.ordered_machine_id
WHERE p.closed_at IS NULL AND {among("p.state", TAKES_CAPACITY)} ORDER BY p.id
""")


async def kept(connection: Connection) -> list[Kept]:
    """The capacity of all machines that were taken back, and for which lease that was."""
    return await read(connection, _KEPT, Kept)


_KEPT_OFFERS = text("SELECT offer_key FROM kept_offers()")


async def kept_offers(connection: Connection) -> list[str]:
    """The keys of the offers of that capacity, whoever's it is, for the API: it sees one tenant's preemptions only."""
    return await read(connection, _KEPT_OFFERS, str)


# Decisions

_LAST = text("""
SELECT decision, lease_id, why FROM preemption_decisions WHERE for_lease_id = :id
ORDER BY at DESC, id DESC LIMIT 1
""")
_DECIDED = text("""
INSERT INTO preemption_decisions (id, at, for_lease_id, lease_id, preemption_id, decision, why, evidence)
VALUES (:id, :now, :for_lease_id, :lease_id, :preemption_id, :decision, :why, CAST(:evidence AS jsonb))
""")


@dataclass(frozen=True, slots=True)
class _Last:
    decision: PreemptionDecision
    lease_id: LeaseId | None
    why: str


async def decided(
    connection: Connection,
    decision_id: UUID,
    decision: PreemptionDecision,
    *,
    for_lease_id: LeaseId,
    lease_id: LeaseId | None,
    preemption_id: PreemptionId | None,
    why: str,
    evidence: Evidence,
    now: datetime,
) -> bool:
    """Store a decision. False when it repeats the last one about the lease in need."""
    last = await read_one(connection, _LAST, _Last, id=for_lease_id)
    if last is not None and (last.decision, last.lease_id, last.why) == (decision, lease_id, why):
        return False
    values = {"lease_id": lease_id, "preemption_id": preemption_id, "decision": decision, "why": why}
    await write(
        connection,
        _DECIDED,
        id=decision_id,
        for_lease_id=for_lease_id,
        evidence=document(evidence),
        now=now,
        **values,
    )
    return True


@dataclass(frozen=True, slots=True)
class StoredDecision:
    id: UUID
    at: datetime
    for_lease_id: LeaseId
    lease_id: LeaseId | None
    preemption_id: PreemptionId | None
    decision: PreemptionDecision
    why: str
    evidence: Evidence


_DECISIONS = text("""
SELECT id, at, for_lease_id, lease_id, preemption_id, decision, why, evidence FROM preemption_decisions
WHERE (CAST(:for_lease_id AS uuid) IS NULL OR for_lease_id = :for_lease_id)
  AND (CAST(:at AS timestamptz) IS NULL OR (at, id) < (:at, CAST(:id AS uuid)))
ORDER BY at DESC, id DESC LIMIT :limit
""")


async def decisions(
    connection: Connection, *, for_lease_id: LeaseId | None, before: tuple[datetime, UUID] | None, limit: int
) -> list[StoredDecision]:
    """What was decided about one lease in need, or about all, the latest first."""
    at, decision_id = before or (None, None)
    return await read(
        connection, _DECISIONS, StoredDecision, for_lease_id=for_lease_id, at=at, id=decision_id, limit=limit
    )


_PAGE = text(f"""
SELECT {_COLUMNS} FROM preemptions
WHERE (NOT CAST(:open AS boolean) OR closed_at IS NULL)
  AND (CAST(:at AS timestamptz) IS NULL OR (notified_at, id) < (:at, CAST(:id AS uuid)))
ORDER BY notified_at DESC, id DESC LIMIT :limit
""")


async def page(
    connection: Connection, *, only_open: bool, before: tuple[datetime, UUID] | None, limit: int
) -> list[Preemption]:
    """Preemptions of all leases, the latest first."""
    at, preemption_id = before or (None, None)
    return await read(connection, _PAGE, Preemption, open=only_open, at=at, id=preemption_id, limit=limit)


_OF_LEASES = text(f"SELECT {_COLUMNS} FROM preemptions WHERE lease_id = ANY(:ids) AND closed_at IS NULL")


async def of_leases(connection: Connection, lease_ids: Collection[LeaseId]) -> dict[LeaseId, Preemption]:
    """The open preemption of each of these leases that yields its machine."""
    found = await read(connection, _OF_LEASES, Preemption, ids=list(lease_ids))
    return {each.lease_id: each for each in found}


# The switch


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether preemptions happen, as an operator decided last."""

    at: datetime
    armed: bool
    switched_by: str
    reason: str


_SWITCH = text(
    "SELECT at, armed, switched_by, reason FROM preemption_switches ORDER BY at DESC, id DESC LIMIT 1"
)
_PUT_SWITCH = text("""
INSERT INTO preemption_switches (id, at, armed, switched_by, reason)
VALUES (:id, :at, :armed, :switched_by, :reason)
""")


async def switch(connection: Connection) -> Switch | None:
    """None before the first decision: preemptions do not happen."""
    return await read_one(connection, _SWITCH, Switch)


async def put_switch(connection: Connection, switch_id: UUID, wanted: Switch) -> None:
    await write(
        connection,
        _PUT_SWITCH,
        id=switch_id,
        at=wanted.at,
        armed=wanted.armed,
        switched_by=wanted.switched_by,
        reason=wanted.reason,
    )
