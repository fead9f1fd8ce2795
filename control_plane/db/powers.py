"""Queries on the power of machines: what customers asked for, and how it came out. The state changes only by `move`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import MachineState
from control_plane.domain.power import CHANGING, REQUESTS_WITHIN, Power, PowerChange, PowerEvent, PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.transitions import Moved

OF_CLAIM = """(SELECT jsonb_build_object('state', w.state, 'generation', w.generation, 'wanted_at', w.wanted_at,
   'settled_at', w.settled_at, 'why', w.why) FROM powers w WHERE w.claim_id = {claim_id})"""
"""SQL: the `Power` of a claim as a document; null before its customer asked for anything."""
CHANGES = among("w.state", CHANGING)
"""SQL: a change of power `w` is open."""
SWITCHES_AT = f"""(SELECT w.listed_from FROM powers w WHERE w.claim_id = c.id AND w.organization_id = c.organization_id
   AND {among("w.state", {PowerState.STOPPING, PowerState.OFF, PowerState.STARTING})}
   AND w.listed = CASE WHEN w.stopped THEN '{ListedState.RUNNING}' ELSE '{ListedState.STOPPED}' END)"""
"""SQL: the first list that shows that the other price applies to the machine of claim `c`, while it is not recorded;
null otherwise. Nothing is billed beyond it.
"""
NOT_ON = f"EXISTS (SELECT FROM powers w WHERE w.machine_id = {{machine}} AND w.state <> '{PowerState.ON}')"
"""SQL: a machine is off, or its customer's request is under way. `{machine}` is its id."""

_GET = text(
    "SELECT state, generation, wanted_at, settled_at, why FROM powers WHERE claim_id = :claim_id FOR UPDATE"
)
_INSERT = text(f"""
INSERT INTO powers (claim_id, organization_id, lease_id, machine_id, state, wanted_at, settled_at, due_at)
SELECT c.id, c.organization_id, c.lease_id, c.machine_id, '{PowerState.ON}', :now, :now, :now
FROM claims c WHERE c.id = :claim_id
ON CONFLICT (organization_id, claim_id) DO NOTHING
""")
# What was listed of a machine that is off is kept when its start is asked for: it may show that it runs already.
_MOVE = text(f"""
UPDATE powers w SET state = :after, generation = generation + 1, due_at = :now, tries = 0,
  wanted_at = CASE WHEN CAST(:opens AS boolean) THEN :now ELSE wanted_at END,
  settled_at = CASE WHEN CAST(:opens AS boolean) THEN NULL ELSE CAST(:now AS timestamptz) END,
  why = :why, asked_at = NULL, accepted = false, boot_id = NULL,
  stopped = CASE :after WHEN '{PowerState.OFF}' THEN true WHEN '{PowerState.STARTING}' THEN stopped ELSE false END,
  listed = CASE WHEN :after <> '{PowerState.ON}' THEN listed END,
  listed_from = CASE WHEN :after <> '{PowerState.ON}' THEN listed_from END,
  listed_at = CASE WHEN :after <> '{PowerState.ON}' THEN listed_at END
WHERE claim_id = :claim_id AND state = :before AND generation = :seen
""")
_OFFERED = text("SELECT power FROM machines WHERE id = :machine_id")
_CHANGE = """w.claim_id, w.organization_id, w.lease_id, w.machine_id, w.state, w.generation, w.stopped, w.tries,
  w.wanted_at, w.asked_at, w.accepted, w.boot_id, w.listed, w.listed_from, w.listed_at, m.launch_key, m.provider_ref,
  m.address, m.ssh_port, m.host_key"""
_TAKE = text(f"""
WITH due AS (
  SELECT w.claim_id FROM powers w JOIN machines m ON m.id = w.machine_id JOIN claims c ON c.id = w.claim_id
  WHERE m.account = :account AND {CHANGES} AND w.due_at <= :now AND c.ended_at IS NULL
    AND m.state = '{MachineState.VERIFIED}'
  ORDER BY w.due_at, w.claim_id LIMIT :limit FOR UPDATE OF w SKIP LOCKED
)
UPDATE powers w SET due_at = :again FROM due, machines m
WHERE w.claim_id = due.claim_id AND m.id = w.machine_id
RETURNING {_CHANGE}
""")
# A list that was asked for shortly after the stop may still show the machine as it was before.
_FOUND_ON = text(f"""
SELECT {_CHANGE} FROM powers w JOIN machines m ON m.id = w.machine_id JOIN claims c ON c.id = w.claim_id
WHERE m.account = :account AND w.state = '{PowerState.OFF}' AND w.listed = '{ListedState.RUNNING}'
  AND w.listed_at > w.settled_at + CAST(:lag AS interval) AND c.ended_at IS NULL
  AND m.state = '{MachineState.VERIFIED}'
ORDER BY w.claim_id LIMIT :limit
""")
_SWITCHES_AT = text(f"""
SELECT found.at FROM (
  SELECT {SWITCHES_AT} AS at FROM claims c WHERE c.lease_id = :lease_id
) found WHERE found.at IS NOT NULL
""")
_COUNT_RECENT = text(f"""
SELECT count(*) FROM journal WHERE lease_id = :lease_id AND event = '{Note.POWER_REQUESTED}' AND at > :since
""")
_ASKING = text("""
UPDATE powers SET asked_at = :now, accepted = false, boot_id = :boot_id
WHERE claim_id = :claim_id AND generation = :seen AND asked_at IS NOT DISTINCT FROM CAST(:asked_at AS timestamptz)
  AND EXISTS (SELECT FROM claims c WHERE c.id = :claim_id AND c.ended_at IS NULL)
""")
_ANSWERED = text("""
UPDATE powers SET accepted = :accepted, due_at = :due_at
WHERE claim_id = :claim_id AND generation = :seen AND asked_at = :asked_at
""")
_NOT_TAKEN = text("""
UPDATE powers SET asked_at = NULL, tries = tries + 1, due_at = :due_at
WHERE claim_id = :claim_id AND generation = :seen AND asked_at = :asked_at
""")
_LATER = text("""
UPDATE powers SET due_at = :due_at, why = :why WHERE claim_id = :claim_id AND generation = :seen
""")
_WATCHED = text(f"""
SELECT w.machine_id FROM powers w JOIN machines m ON m.id = w.machine_id JOIN claims c ON c.id = w.claim_id
WHERE m.account = :account AND w.state <> '{PowerState.ON}' AND c.ended_at IS NULL
""")


@dataclass(frozen=True, slots=True)
class Listed:
    """How the provider lists a machine that is off, or whose power changes."""

    machine_id: MachineId
    state: ListedState


_LISTED = Recordset(Listed, "listed")
# Machines that stay off for weeks cost no write with each list: only what changes is stored, and that one runs.
_SEEN = text(f"""
UPDATE powers w SET listed = listed.state, listed_at = :asked_at,
  listed_from = CASE WHEN w.listed = listed.state THEN w.listed_from ELSE :asked_at END
FROM {_LISTED} WHERE w.machine_id = listed.machine_id AND w.wanted_at < :asked_at
  AND ({CHANGES} OR w.state = '{PowerState.OFF}' AND (w.listed IS DISTINCT FROM listed.state
    OR listed.state = '{ListedState.RUNNING}'))
  AND (w.listed_at IS NULL OR w.listed_at < :asked_at)
""")


async def lock(connection: Connection, claim_id: ClaimId) -> Power | None:
    """The power of the machine of an open claim, locked; None before its customer asked for anything."""
    return await read_one(connection, _GET, Power, claim_id=claim_id)


async def ensure(connection: Connection, claim_id: ClaimId, *, now: datetime) -> Power:
    """The same, stored as on if it was not stored yet. Raises LookupError when there is no such claim."""
    await write(connection, _INSERT, claim_id=claim_id, now=now)
    power = await lock(connection, claim_id)
    if power is None:
        raise LookupError(f"there is no claim {claim_id}")
    return power


async def move(
    connection: Connection,
    claim_id: ClaimId,
    seen: int,
    moved: Moved[PowerState, PowerEvent],
    *,
    why: str | None = None,
    now: datetime,
) -> bool:
    """Apply a move to the generation `seen`. False when it has moved meanwhile."""
    values = {"before": moved.before.value, "after": moved.after.value, "opens": moved.after in CHANGING}
    return bool(await write(connection, _MOVE, claim_id=claim_id, seen=seen, why=why, now=now, **values))


async def offered(connection: Connection, machine_id: MachineId) -> frozenset[PowerAction]:
    """What the provider of a machine can do, as its offer said when it was ordered."""
    return frozenset(
        await read_one(connection, _OFFERED, tuple[PowerAction, ...], machine_id=machine_id) or ()
    )


async def take_due(
    connection: Connection, account: AccountName, *, now: datetime, again: datetime, limit: int
) -> list[PowerChange]:
    """Open changes of an account that are due, in the order of their claims. Nobody else takes them until `again`."""
    values = {"account": account, "now": now, "again": again, "limit": limit}
    return sorted(await read(connection, _TAKE, PowerChange, **values), key=lambda change: change.claim_id)


async def found_on(
    connection: Connection, account: AccountName, *, lag: timedelta, limit: int
) -> list[PowerChange]:
    """Machines of an account that are off, and that lists show as running from `lag` after that on."""
    values = {"account": account, "lag": lag, "limit": limit}
    return await read(connection, _FOUND_ON, PowerChange, **values)


async def switches_at(connection: Connection, lease_id: LeaseId) -> datetime | None:
    """The list from which on the other price applies to a lease, when nobody has recorded that yet."""
    return await read_one(connection, _SWITCHES_AT, datetime, lease_id=lease_id)


async def count_recent(connection: Connection, lease_id: LeaseId, *, now: datetime) -> int:
    """How many changes were asked for within REQUESTS_WITHIN."""
    since = now - REQUESTS_WITHIN
    return await read_one(connection, _COUNT_RECENT, int, lease_id=lease_id, since=since) or 0


async def asking(connection: Connection, change: PowerChange, boot_id: str | None, *, now: datetime) -> bool:
    """Store that the provider is asked now. False when the lease has ended, or another worker asks."""
    values = {"claim_id": change.claim_id, "seen": change.generation, "asked_at": change.asked_at}
    return bool(await write(connection, _ASKING, boot_id=boot_id, now=now, **values))


async def answered(
    connection: Connection, change: PowerChange, *, asked_at: datetime, accepted: bool, due_at: datetime
) -> None:
    """Store whether the provider accepted what it was asked for at `asked_at`; not when the answer was lost."""
    values = {"claim_id": change.claim_id, "seen": change.generation, "asked_at": asked_at}
    await write(connection, _ANSWERED, accepted=accepted, due_at=due_at, **values)


async def not_taken(
    connection: Connection, change: PowerChange, *, asked_at: datetime, due_at: datetime
) -> None:
    """Store that the request of `asked_at` had no effect: it is made again at `due_at`."""
    values = {"claim_id": change.claim_id, "seen": change.generation, "asked_at": asked_at}
    await write(connection, _NOT_TAKEN, due_at=due_at, **values)


async def later(connection: Connection, change: PowerChange, why: str | None, *, due_at: datetime) -> None:
    """Look again at `due_at`. `why` is what keeps the change open."""
    await write(connection, _LATER, claim_id=change.claim_id, seen=change.generation, why=why, due_at=due_at)


async def watched(connection: Connection, account: AccountName) -> frozenset[MachineId]:
    """The machines of an account that are off, or whose power changes."""
    return frozenset(await read(connection, _WATCHED, MachineId, account=account))


async def record_listed(connection: Connection, listed: Sequence[Listed], *, asked_at: datetime) -> None:
    """Store how a list that was asked for at `asked_at` shows these machines."""
    if listed:
        await write(connection, _SEEN, listed=_LISTED.document(listed), asked_at=asked_at)
