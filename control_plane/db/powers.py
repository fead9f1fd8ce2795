"""Queries on the power of machines: what customers asked for, and how it came out. The state changes only by `move`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, ClaimId, MachineId
from control_plane.domain.machine import MachineState
from control_plane.domain.power import CHANGING, Power, PowerChange, PowerEvent, PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.sighting import ListedState
from control_plane.domain.transitions import Moved

OF_CLAIM = """(SELECT jsonb_build_object('state', w.state, 'generation', w.generation, 'wanted_at', w.wanted_at,
   'settled_at', w.settled_at, 'why', w.why) FROM powers w WHERE w.claim_id = {claim_id})"""
"""SQL: the `Power` of a claim as a document; null before its customer asked for anything."""
CHANGES = among("w.state", CHANGING)
"""SQL: a change of power `w` is open."""
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
_MOVE = text("""
UPDATE powers w SET state = :after, generation = generation + 1, due_at = :now, tries = 0,
  wanted_at = CASE WHEN CAST(:opens AS boolean) THEN :now ELSE wanted_at END,
  settled_at = CASE WHEN CAST(:opens AS boolean) THEN NULL ELSE CAST(:now AS timestamptz) END,
  why = :why, asked_at = NULL, accepted = false, boot_id = NULL, listed = NULL, listed_at = NULL
WHERE claim_id = :claim_id AND state = :before AND generation = :seen
""")
_OFFERED = text("SELECT power FROM machines WHERE id = :machine_id")
_CHANGE = """w.claim_id, w.organization_id, w.lease_id, w.machine_id, w.state, w.generation, w.tries, w.wanted_at,
  w.asked_at, w.accepted, w.boot_id, w.listed, w.listed_at, m.launch_key, m.provider_ref, m.address, m.ssh_port,
  m.host_key"""
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
_LATER = text("UPDATE powers SET due_at = :due_at WHERE claim_id = :claim_id AND generation = :seen")
_WATCHED = text(f"""
SELECT w.machine_id FROM powers w JOIN machines m ON m.id = w.machine_id JOIN claims c ON c.id = w.claim_id
WHERE m.account = :account AND {CHANGES} AND c.ended_at IS NULL
""")


@dataclass(frozen=True, slots=True)
class Listed:
    """How the provider lists a machine whose power changes."""

    machine_id: MachineId
    state: ListedState


_LISTED = Recordset(Listed, "listed")
_SEEN = text(f"""
UPDATE powers w SET listed = listed.state, listed_at = :asked_at
FROM {_LISTED} WHERE w.machine_id = listed.machine_id AND {CHANGES}
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


async def later(connection: Connection, change: PowerChange, *, due_at: datetime) -> None:
    """Look again at `due_at`."""
    await write(connection, _LATER, claim_id=change.claim_id, seen=change.generation, due_at=due_at)


async def watched(connection: Connection, account: AccountName) -> frozenset[MachineId]:
    """The machines of an account whose power changes."""
    return frozenset(await read(connection, _WATCHED, MachineId, account=account))


async def record_listed(connection: Connection, listed: Sequence[Listed], *, asked_at: datetime) -> None:
    """Store how a list that was asked for at `asked_at` shows machines whose power changes."""
    if listed:
        await write(connection, _SEEN, listed=_LISTED.document(listed), asked_at=asked_at)
