"""Queries on planned work: machines that operators took out of service, and what providers announce."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId, ProviderRef
from control_plane.domain.machine import MachineState
from control_plane.domain.notice import NoticeKind
from control_plane.domain.planned_work import TOLD_MAX, TOLD_WITHIN, Announced, Ended, New, PutOff


@dataclass(frozen=True, slots=True)
class Maintenance:
    id: UUID
    machine_id: MachineId
    since: datetime
    taken_by: str
    why: str
    planned_at: datetime | None
    """When the work is planned."""
    ended_at: datetime | None
    ended_by: str | None


_COLUMNS = "id, machine_id, since, taken_by, why, planned_at, ended_at, ended_by"
_INSERT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at)
VALUES (:id, :machine_id, :since, :taken_by, :why, :planned_at)
ON CONFLICT (machine_id, event) WHERE ended_at IS NULL DO NOTHING
""")
_OPEN = text(
    f"SELECT {_COLUMNS} FROM maintenances WHERE machine_id = :machine_id AND ended_at IS NULL AND event IS NULL"
)
_END = text(f"""
UPDATE maintenances SET ended_at = :now, ended_by = :by
WHERE machine_id = :machine_id AND ended_at IS NULL AND event IS NULL
RETURNING {_COLUMNS}
""")
# The API's role sees machines of its own organization alone. The function shows operators every machine, by descending
# ids: the one before the next id is the wanted one, if it exists.
_VERIFIED = text(f"""
SELECT id FROM fleet_machines(:now, NULL, NULL, NULL, NULL, NULL, false, '{MachineState.VERIFIED}', NULL, NULL, false,
  :next_id, 1) WHERE id = :machine_id
""")


async def may_be_taken(connection: Connection, machine_id: MachineId, *, now: datetime) -> bool:
    """Whether there is such a machine, verified. Only operators get another answer than no."""
    next_id = UUID(int=machine_id.int + 1)
    return (
        await read_one(connection, _VERIFIED, UUID, machine_id=machine_id, next_id=next_id, now=now)
        is not None
    )


async def insert(connection: Connection, taken: Maintenance) -> Maintenance:
    """Take a machine out. Returns how it is out: one that is out already stays as it is."""
    values = asdict(taken)
    values.pop("ended_at")
    values.pop("ended_by")
    await write(connection, _INSERT, **values)
    found = await read_one(connection, _OPEN, Maintenance, machine_id=taken.machine_id)
    if found is None:
        raise LookupError(f"the maintenance of {taken.machine_id} was not stored")
    return found


async def end(connection: Connection, machine_id: MachineId, *, by: str, now: datetime) -> Maintenance | None:
    """Give a machine back to service; None when it is not out."""
    return await read_one(connection, _END, Maintenance, machine_id=machine_id, by=by, now=now)


PROVIDER = "its provider"
"""Who took a machine out whose provider announced work on it."""
_TAKE = text("""
UPDATE provider_accounts SET work_due_at = :next WHERE name = :account AND coalesce(work_due_at <= :now, true)
""")
_KEEP_TURN = text("""
UPDATE provider_accounts SET work_due_at = work_due_at WHERE name = :account AND work_due_at = :next
""")
_MACHINES = text(f"""
SELECT id, provider_ref FROM machines
WHERE account = :account AND state = '{MachineState.VERIFIED}' AND provider_ref = ANY(:refs)
""")
_ANNOUNCED = text(f"""
SELECT t.id, t.machine_id, t.event, t.why, t.planned_at, t.unlisted_at,
  m.state <> '{MachineState.VERIFIED}' AS machine_ended
FROM maintenances t JOIN machines m ON m.id = t.machine_id
WHERE m.account = :account AND t.event IS NOT NULL AND t.ended_at IS NULL ORDER BY t.id
""")
_ANNOUNCE = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at, event)
VALUES (:id, :machine_id, :now, :by, :why, :planned_at, :event)
ON CONFLICT (machine_id, event) WHERE ended_at IS NULL DO NOTHING
""")
_RESUME = text("""
UPDATE maintenances SET ended_at = NULL, ended_by = NULL, unlisted_at = NULL WHERE id = (
  SELECT id FROM maintenances
  WHERE machine_id = :machine_id AND event = :event AND ended_at >= greatest(planned_at, :since)
  ORDER BY ended_at DESC LIMIT 1)
""")
_PUT_OFF = text("""
UPDATE maintenances SET planned_at = :planned_at, why = :why, notified_at = NULL WHERE id = :id AND ended_at IS NULL
""")
_UNLISTED = text("UPDATE maintenances SET unlisted_at = :at WHERE id = ANY(:ids) AND ended_at IS NULL")
_OVER = text("UPDATE maintenances SET ended_at = :at, ended_by = :by WHERE id = :id AND ended_at IS NULL")
_NOTICES = """
SELECT count(*) FROM notices n WHERE n.organization_id = c.organization_id AND n.lease_id = c.lease_id
  AND n.machine_id = c.machine_id AND n.kind = """
_UNTOLD = text(f"""
WITH new AS (
  SELECT array_agg(t.id) AS ids, c.organization_id, c.lease_id, t.machine_id, t.why, t.planned_at
  FROM maintenances t JOIN machines m ON m.id = t.machine_id
  JOIN claims c ON c.machine_id = m.id AND c.ended_at IS NULL AND c.admitted_at IS NOT NULL
  WHERE m.account = :account AND t.event IS NOT NULL AND t.ended_at IS NULL AND t.notified_at IS NULL
  GROUP BY c.organization_id, c.lease_id, t.machine_id, t.why, t.planned_at
), counted AS (
  SELECT c.*, row_number() OVER (PARTITION BY c.lease_id, c.machine_id ORDER BY c.planned_at, c.why) AS place,
    ({_NOTICES} '{NoticeKind.MAINTENANCE_PLANNED}' AND n.at > :told_since) AS told
  FROM new c
)
SELECT ids, organization_id, lease_id, machine_id, why, planned_at FROM counted WHERE place + told <= :told_max
ORDER BY planned_at, machine_id, why
""")
_EXPECTED = text(f"""
SELECT ({_NOTICES} '{NoticeKind.MAINTENANCE_PLANNED}') > ({_NOTICES} '{NoticeKind.MAINTENANCE_WITHDRAWN}')
FROM claims c WHERE c.machine_id = :machine_id AND c.ended_at IS NULL AND c.admitted_at IS NOT NULL LIMIT 1
""")
_TELL = text("""
INSERT INTO notices (organization_id, project_id, lease_id, machine_id, at, kind, message, planned_at)
SELECT c.organization_id, c.project_id, c.lease_id, c.machine_id, :now, :kind, :message, :planned_at
FROM claims c WHERE c.organization_id = :organization_id AND c.lease_id = :lease_id AND c.machine_id = :machine_id
  AND c.ended_at IS NULL AND c.admitted_at IS NOT NULL
""")
_TOLD = text("UPDATE maintenances SET notified_at = :now WHERE id = ANY(:ids)")


async def take_turn(
    connection: Connection, account: AccountName, *, now: datetime, next_at: datetime
) -> bool:
    """Whether this replica reads the account's planned work now."""
    return bool(await write(connection, _TAKE, account=account, now=now, next=next_at))


async def keeps_turn(connection: Connection, account: AccountName, *, next_at: datetime) -> bool:
    """Whether no other replica has read the account's planned work since `take_turn`.

    The account's row is locked afterwards, so that none does before the end of the transaction.
    """
    return bool(await write(connection, _KEEP_TURN, account=account, next=next_at))


@dataclass(frozen=True, slots=True)
class _Machine:
    id: MachineId
    provider_ref: ProviderRef


async def machines(
    connection: Connection, account: AccountName, refs: Collection[ProviderRef]
) -> dict[ProviderRef, MachineId]:
    """The account's verified machines with these references."""
    found = await read(connection, _MACHINES, _Machine, account=account, refs=list(refs))
    return {each.provider_ref: each.id for each in found}


async def announced(connection: Connection, account: AccountName) -> list[Announced]:
    """What the provider announced about machines of the account, and is not over."""
    return await read(connection, _ANNOUNCED, Announced, account=account)


async def announce(connection: Connection, new: New, id_: UUID, *, now: datetime) -> None:
    """Store what a provider announced about a machine."""
    work = new.work
    await write(
        connection,
        _ANNOUNCE,
        id=id_,
        machine_id=new.machine_id,
        now=now,
        by=PROVIDER,
        why=work.why,
        planned_at=work.begins_at,
        event=work.event,
    )


async def resume(connection: Connection, new: New, *, since: datetime) -> bool:
    """Have work under way go on that was taken to be over at `since` or later. False when there is none."""
    values = {"machine_id": new.machine_id, "event": new.work.event, "since": since}
    return bool(await write(connection, _RESUME, **values))


async def put_off(connection: Connection, moved: PutOff) -> None:
    await write(connection, _PUT_OFF, id=moved.id, planned_at=moved.planned_at, why=moved.why)


async def set_unlisted(connection: Connection, ids: Collection[UUID], at: datetime | None) -> None:
    """Store that a list lacked announcements, or with None that one has them again."""
    if ids:
        await write(connection, _UNLISTED, ids=list(ids), at=at)


async def end_announced(connection: Connection, ended: Ended) -> bool:
    """End what a provider announced. False when it had ended."""
    return bool(await write(connection, _OVER, id=ended.announced.id, at=ended.at, by=PROVIDER))


@dataclass(frozen=True, slots=True)
class Untold:
    """What the customer of a machine was not told yet of its provider's work, as it is now."""

    ids: tuple[UUID, ...]
    """Of the announcements: several may say the same."""
    organization_id: OrganizationId
    lease_id: LeaseId
    machine_id: MachineId
    why: str
    planned_at: datetime


async def untold(connection: Connection, account: AccountName, *, now: datetime) -> list[Untold]:
    """What customers of the account's machines were not told yet, soonest first. Those who were told enough lately wait
    (`TOLD_MAX`).
    """
    values = {"account": account, "told_since": now - TOLD_WITHIN, "told_max": TOLD_MAX}
    return await read(connection, _UNTOLD, Untold, **values)


async def expected(connection: Connection, machine_id: MachineId) -> bool:
    """Whether a machine's customer was told of more announcements than were called off."""
    return bool(await read_one(connection, _EXPECTED, bool, machine_id=machine_id))


async def tell(connection: Connection, one: Untold, message: str, *, now: datetime) -> None:
    """Tell the customer of a machine, and store that."""
    await write(
        connection,
        _TELL,
        organization_id=one.organization_id,
        lease_id=one.lease_id,
        machine_id=one.machine_id,
        now=now,
        kind=NoticeKind.MAINTENANCE_PLANNED,
        message=message,
        planned_at=one.planned_at,
    )
    await write(connection, _TOLD, ids=list(one.ids), now=now)
