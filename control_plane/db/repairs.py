"""Queries on repairs: what is done about machines that are not healthy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.health import PLANNED_WORK, FaultCode, Verdict
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId, ProviderRef
from control_plane.domain.machine import WANTED, MachineState
from control_plane.domain.notice import NoticeKind
from control_plane.domain.repair import RepairOutcome, RepairStep
from control_plane.domain.repair_ticket import Done


@dataclass(frozen=True, slots=True)
class Repair:
    id: UUID
    machine_id: MachineId
    opened_at: datetime
    fault: FaultCode
    step: RepairStep
    step_at: datetime
    why: str
    notified_at: datetime | None
    closed_at: datetime | None
    outcome: RepairOutcome | None
    spare_wanted_at: datetime | None
    """Since when another machine, or another node of the pool, is made ready; None when none is."""


_COLUMNS = (
    "id, machine_id, opened_at, fault, step, step_at, why, notified_at, closed_at, outcome, spare_wanted_at"
)
_OPEN = text("""
INSERT INTO repairs (id, machine_id, opened_at, fault, step, step_at, why, due_at)
VALUES (:id, :machine_id, :now, :fault, :step, :now, :why, :now) ON CONFLICT DO NOTHING
""")
# What its customer hands back is due at once: nothing else may be new about it.
_HANDED_BACK = """
EXISTS (SELECT FROM hand_backs b JOIN claims c ON c.id = b.claim_id
        WHERE b.machine_id = repairs.machine_id AND c.ended_at IS NULL)
"""
_TAKE = work.take("repairs", f"closed_at IS NULL AND (due_at <= :now OR {_HANDED_BACK})", order="due_at, id")
_TAKEN = text(f"SELECT {_COLUMNS} FROM repairs WHERE work_token = :token ORDER BY due_at, id")
_STILL_HELD = work.still_held("repairs")
_HURRY = text("UPDATE repairs SET due_at = :now WHERE machine_id = :machine_id AND closed_at IS NULL")
_CLIMB = text(f"""
UPDATE repairs SET step = :step, step_at = :now, why = :why, notified_at = NULL, due_at = :now, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_WAIT = text(f"""
UPDATE repairs SET why = :why, due_at = :due_at, notified_at = coalesce(notified_at, :notified_at), {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_CLOSE = text(f"""
UPDATE repairs SET closed_at = :now, outcome = :outcome, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}
""")


async def open_for(
    connection: Connection,
    repair_id: UUID,
    machine_id: MachineId,
    *,
    fault: FaultCode,
    why: str,
    now: datetime,
) -> bool:
    """Open a repair of a machine. False when one is open already."""
    values = {"id": repair_id, "machine_id": machine_id, "fault": fault, "step": RepairStep.WATCH, "why": why}
    return bool(await write(connection, _OPEN, now=now, **values))


async def hurry(connection: Connection, machine_id: MachineId, *, now: datetime) -> None:
    """Have the open repair of a machine looked at now, because what is known about the machine has changed."""
    await write(connection, _HURRY, machine_id=machine_id, now=now)


_BEGIN_AGAIN = text(f"""
UPDATE repairs SET step = '{RepairStep.WATCH}', step_at = :now, why = :why, notified_at = NULL
WHERE machine_id = :machine_id AND closed_at IS NULL
""")


async def begin_again(connection: Connection, machine_id: MachineId, *, why: str, now: datetime) -> None:
    """Have the open repair of a machine begin again: it was for something that is not the worst any more."""
    await write(connection, _BEGIN_AGAIN, machine_id=machine_id, why=why, now=now)


# A repair that is about a fault, or that told no time, has nothing to tell again.
_TELL_AGAIN = text(f"""
UPDATE repairs r SET notified_at = NULL, due_at = least(r.due_at, :now) FROM machine_health h
WHERE r.machine_id = :machine_id AND r.closed_at IS NULL AND h.machine_id = r.machine_id
  AND {among("h.fault", PLANNED_WORK)}
  AND EXISTS (SELECT FROM notices n WHERE n.machine_id = r.machine_id AND n.at >= r.step_at
                AND n.kind = '{NoticeKind.REPLACEMENT_PLANNED}')
""")


async def tell_again(connection: Connection, machine_id: MachineId, *, now: datetime) -> None:
    """Have the open repair of a machine tell its customer again when it is replaced, because the time of the work that
    is planned on it has changed.
    """
    await write(connection, _TELL_AGAIN, machine_id=machine_id, now=now)


async def take_due(
    connection: Connection, *, token: UUID, until: datetime, now: datetime, limit: int
) -> list[Repair]:
    """Hold open repairs that are due, until `until`."""
    taken = await read(connection, _TAKE, UUID, token=token, until=until, now=now, limit=limit)
    return await read(connection, _TAKEN, Repair, token=token) if taken else []


async def still_held(connection: Connection, repair_id: UUID, *, token: UUID) -> bool:
    return await read_one(connection, _STILL_HELD, UUID, id=repair_id, token=token) is not None


async def climb(
    connection: Connection, repair_id: UUID, step: RepairStep, *, token: UUID, why: str, now: datetime
) -> None:
    """Go on to another step of the ladder, which is due at once."""
    await write(connection, _CLIMB, id=repair_id, token=token, step=step, why=why, now=now)


async def wait(
    connection: Connection,
    repair_id: UUID,
    *,
    token: UUID,
    why: str,
    due_at: datetime,
    notified_at: datetime | None = None,
) -> None:
    """Look at the repair again at `due_at`."""
    await write(connection, _WAIT, id=repair_id, token=token, why=why, due_at=due_at, notified_at=notified_at)


_WANT_SPARE = text("UPDATE repairs SET spare_wanted_at = coalesce(spare_wanted_at, :now) WHERE id = :id")
_DROP_SPARE = text("""
UPDATE repairs SET spare_wanted_at = NULL, spare_tries = 0, spare_due_at = NULL WHERE id = :id
""")
# The first lease of the machine: a machine that several use has no spare. A node has none either: its pool gets another
# node (`node_pools.py`).
_LACKS_SPARE = f"""
FROM repairs r JOIN claims c ON c.machine_id = r.machine_id JOIN leases l ON l.id = c.lease_id
WHERE r.closed_at IS NULL AND r.spare_wanted_at IS NOT NULL AND c.ended_at IS NULL AND c.slot IS NULL
  AND l.node_pool_id IS NULL
  AND NOT EXISTS (SELECT FROM machines m WHERE m.reserved_for = c.lease_id AND {among("m.state", WANTED)})
"""
_SPARES_DUE = text(f"""
SELECT c.lease_id, r.spare_tries AS tries {_LACKS_SPARE}
  AND coalesce(r.spare_due_at, r.spare_wanted_at) <= :now
ORDER BY coalesce(r.spare_due_at, r.spare_wanted_at), r.id LIMIT :limit
""")
_LACKS_ONE = text(f"SELECT EXISTS (SELECT {_LACKS_SPARE} AND c.lease_id = :lease_id)")
_SPARE_TRIED = text("""
UPDATE repairs SET spare_tries = spare_tries + 1, spare_due_at = :due_at
WHERE closed_at IS NULL AND spare_wanted_at IS NOT NULL
  AND machine_id IN (SELECT machine_id FROM claims WHERE lease_id = :lease_id AND ended_at IS NULL)
""")


async def want_spare(connection: Connection, repair_id: UUID, *, now: datetime) -> None:
    """Have another machine made ready for the lease of the machine that is repaired, or another node for its pool."""
    await write(connection, _WANT_SPARE, id=repair_id, now=now)


async def drop_spare(connection: Connection, repair_id: UUID) -> None:
    """Have no other machine made ready any more: `keep_pools` ends one that is."""
    await write(connection, _DROP_SPARE, id=repair_id)


@dataclass(frozen=True, slots=True)
class SpareDue:
    """A lease for which another machine is looked for now."""

    lease_id: LeaseId
    tries: int
    """How often one was looked for before."""


async def spares_due(connection: Connection, *, now: datetime, limit: int) -> list[SpareDue]:
    """Leases for which another machine is wanted, none is reserved yet, and it is time to look for one."""
    return await read(connection, _SPARES_DUE, SpareDue, now=now, limit=limit)


async def lacks_spare(connection: Connection, lease_id: LeaseId) -> bool:
    """Whether another machine is wanted for a lease, and none is reserved yet."""
    return bool(await read_one(connection, _LACKS_ONE, bool, lease_id=lease_id))


async def spare_tried(connection: Connection, lease_id: LeaseId, *, due_at: datetime) -> None:
    """Store that another machine is looked for now, and again at `due_at` unless one is found."""
    await write(connection, _SPARE_TRIED, lease_id=lease_id, due_at=due_at)


async def close(
    connection: Connection, repair_id: UUID, outcome: RepairOutcome, *, token: UUID, now: datetime
) -> None:
    await write(connection, _CLOSE, id=repair_id, token=token, outcome=outcome, now=now)


@dataclass(frozen=True, slots=True)
class Around:
    """The machines of the account and region of one that is repaired."""

    account: AccountName
    machines: int
    unhealthy: int
    """Of them, that one included."""
    armed: bool


# What work is planned on says nothing about the others, and may wait for days for its planned time.
_AROUND = text(f"""
SELECT m.account, count(o.id) AS machines, a.armed_at IS NOT NULL AS armed,
  count(*) FILTER (WHERE h.verdict IN ('{Verdict.MAINTENANCE_REQUIRED}', '{Verdict.QUARANTINED}')
    AND NOT {among("h.fault", PLANNED_WORK)}) AS unhealthy
FROM machines m JOIN provider_accounts a ON a.name = m.account
JOIN machines o ON o.account = m.account AND o.region = m.region AND o.state = '{MachineState.VERIFIED}'
LEFT JOIN machine_health h ON h.machine_id = o.id
WHERE m.id = :id GROUP BY m.account, a.armed_at
""")


async def around(connection: Connection, machine_id: MachineId) -> Around | None:
    """What the breaker needs; None when the machine is not verified any more."""
    return await read_one(connection, _AROUND, Around, id=machine_id)


_OF_MACHINES = text(f"""
SELECT DISTINCT ON (machine_id) {_COLUMNS} FROM repairs WHERE machine_id = ANY(:ids)
ORDER BY machine_id, closed_at IS NULL DESC, opened_at DESC
""")


async def of_machines(connection: Connection, machine_ids: Sequence[MachineId]) -> dict[MachineId, Repair]:
    """The open repair of each machine, or its last one."""
    found = await read(connection, _OF_MACHINES, Repair, ids=list(machine_ids))
    return {repair.machine_id: repair for repair in found}


@dataclass(frozen=True, slots=True)
class ShownRepair(Repair):
    """A repair as operators read it."""

    opened_verdict: Verdict
    """Of its machine when it was opened."""
    opened_why: str
    verdict: Verdict
    """Of its machine now."""
    verdict_why: str


# A repair is opened with the change of a verdict, so the last change up to then is the one that it was opened for.
_SHOWN = f"""
SELECT {", ".join(f"r.{column}" for column in _COLUMNS.split(", "))},
  coalesce(c.verdict, h.verdict) AS opened_verdict, coalesce(c.why, h.why) AS opened_why,
  h.verdict, h.why AS verdict_why
FROM repairs r JOIN machine_health h ON h.machine_id = r.machine_id
LEFT JOIN LATERAL (
  SELECT verdict, why FROM health_changes WHERE machine_id = r.machine_id AND at <= r.opened_at
  ORDER BY at DESC, number DESC LIMIT 1
) c ON true
"""
_PAGE = text(f"""
{_SHOWN}
WHERE (NOT CAST(:open AS boolean) OR r.closed_at IS NULL)
  AND (CAST(:machine_id AS uuid) IS NULL OR r.machine_id = :machine_id)
  AND (CAST(:at AS timestamptz) IS NULL OR (r.opened_at, r.id) < (:at, CAST(:id AS uuid)))
ORDER BY r.opened_at DESC, r.id DESC LIMIT :limit
""")
_ONE = text(f"{_SHOWN} WHERE r.id = :id")


async def page(
    connection: Connection,
    *,
    only_open: bool,
    machine_id: MachineId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ShownRepair]:
    """Repairs of a machine or, with None, of all, the latest first.

    They were opened before a moment, or then with a lower id.
    """
    at, repair_id = before or (None, None)
    values = {"open": only_open, "machine_id": machine_id, "limit": limit}
    return await read(connection, _PAGE, ShownRepair, **values, at=at, id=repair_id)


async def get(connection: Connection, repair_id: UUID) -> ShownRepair | None:
    return await read_one(connection, _ONE, ShownRepair, id=repair_id)


@dataclass(frozen=True, slots=True)
class AtProvider:
    """A machine as its provider knows it, and what we did about it in a while, the oldest first."""

    provider: str
    account: AccountName
    native_region: str
    native_type: str
    provider_ref: ProviderRef | None
    gpu_count: int
    gpu_uuids: tuple[str, ...]
    """By its last reading, in the order of their indices."""
    done: tuple[Done, ...]


# The API's role sees machines of its own organization alone; the function answers it while it acts for operators.
_AT_PROVIDER = text("""
SELECT provider, account, native_region, native_type, provider_ref, gpu_count, gpu_uuids, done
FROM machine_for_provider(:machine_id, :since, coalesce(CAST(:until AS timestamptz), 'infinity'))
""")


async def at_provider(
    connection: Connection, machine_id: MachineId, *, since: datetime, until: datetime | None
) -> AtProvider | None:
    """What its provider is told of a machine. Only operators get another answer than None."""
    return await read_one(
        connection, _AT_PROVIDER, AtProvider, machine_id=machine_id, since=since, until=until
    )


_HAND_BACK = text("""
INSERT INTO hand_backs (claim_id, organization_id, lease_id, machine_id, asked_at, why)
SELECT id, organization_id, lease_id, machine_id, :now, :why FROM claims WHERE id = :claim_id
ON CONFLICT (organization_id, claim_id) DO NOTHING
""")
_HAND_BACKS = text("SELECT count(*) FROM hand_backs WHERE lease_id = :lease_id AND asked_at > :since")
_IS_HANDED_BACK = text("SELECT claim_id FROM hand_backs WHERE claim_id = :claim_id")


async def hand_back(connection: Connection, claim_id: ClaimId, *, why: str, now: datetime) -> None:
    """Store that its customer wants the machine of a claim to be replaced."""
    await write(connection, _HAND_BACK, claim_id=claim_id, why=why, now=now)


async def is_handed_back(connection: Connection, claim_id: ClaimId) -> bool:
    return await read_one(connection, _IS_HANDED_BACK, UUID, claim_id=claim_id) is not None


async def count_hand_backs(connection: Connection, lease_id: LeaseId, *, since: datetime) -> int:
    """How many machines of a lease were handed back."""
    return await read_one(connection, _HAND_BACKS, int, lease_id=lease_id, since=since) or 0
