"""Queries on machines that are challenged next: while they are in use, and at the end of their claim."""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from control_plane.db import machines, work
from control_plane.db.connection import Connection
from control_plane.db.powers import NOT_ON
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.proof import DOUBT_LASTS

# A machine that is off cannot be challenged. It is taken nevertheless once its doubt has lasted long enough to lapse:
# until then nothing is billed.
_TAKE_DUE = work.take(
    "machines",
    f"""account = :account AND state = '{MachineState.VERIFIED}' AND proof_due_at <= :now
    AND (suspect_since <= CAST(:now AS timestamptz) - CAST('{DOUBT_LASTS}' AS interval)
      OR NOT {NOT_ON.format(machine="machines.id")})""",
    order="proof_due_at, id",
)
# The hold ends with the wait, so the machine is terminated in time even if the worker dies.
_TAKE_ERASING = work.take(
    "machines",
    f"account = :account AND state = '{MachineState.TERMINATING}' AND erasing_until > :now AND due_at <= :now",
    order="erasing_until, id",
    until="erasing_until",
)
_TAKEN = text(f"{machines.SELECT} WHERE m.work_token = :token ORDER BY m.id")


async def take_due(
    connection: Connection, account: AccountName, *, token: UUID, until: datetime, now: datetime, limit: int
) -> list[Machine]:
    """Hold verified machines whose next challenge is due, until `until` or until they move."""
    taken = await read(
        connection, _TAKE_DUE, UUID, account=account, token=token, until=until, now=now, limit=limit
    )
    return await read(connection, _TAKEN, Machine, token=token) if taken else []


async def take_erasing(
    connection: Connection, account: AccountName, *, token: UUID, now: datetime, limit: int
) -> list[Machine]:
    """Hold machines whose termination waits for the proof that their memory is overwritten, until that wait is over."""
    taken = await read(connection, _TAKE_ERASING, UUID, account=account, token=token, now=now, limit=limit)
    return await read(connection, _TAKEN, Machine, token=token) if taken else []


_STILL_HELD = work.still_held("machines")
_NEXT = text(f"""
UPDATE machines SET proof_due_at = :due_at, {work.GIVE_BACK},
  suspect_since = CASE WHEN NOT CAST(:judged AS boolean) THEN suspect_since
                       WHEN CAST(:suspect AS boolean) THEN coalesce(suspect_since, :now) END
WHERE id = :id AND {work.HELD}
""")
_ERASED = text(f"""
UPDATE machines SET erasing_until = NULL, tries = 0, due_at = :now, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}
""")


async def still_held(connection: Connection, machine_id: MachineId, *, token: UUID) -> bool:
    """Lock a machine if this worker still holds it. A worker that lost it discards its result."""
    return await read_one(connection, _STILL_HELD, UUID, id=machine_id, token=token) is not None


async def next_challenge(
    connection: Connection,
    machine_id: MachineId,
    *,
    token: UUID,
    due_at: datetime,
    suspect: bool | None,
    now: datetime,
) -> None:
    """Give a verified machine back, to be challenged next at `due_at`.

    `suspect` says whether the machine is suspect now; None leaves that as it was.
    """
    values = {"due_at": due_at, "judged": suspect is not None, "suspect": bool(suspect), "now": now}
    await write(connection, _NEXT, id=machine_id, token=token, **values)


async def erased(connection: Connection, machine_id: MachineId, *, token: UUID, now: datetime) -> None:
    """Give a machine back whose termination need not wait any longer."""
    await write(connection, _ERASED, id=machine_id, token=token, now=now)


_EARLIER = "greatest(CAST(:now AS timestamptz), last_challenged_at + CAST(:apart AS interval))"
_CHALLENGE_NOW = text(f"""
UPDATE machines SET proof_due_at = {_EARLIER}
WHERE id = :id AND state = '{MachineState.VERIFIED}' AND proof_due_at > {_EARLIER}
""")


async def challenge_now(
    connection: Connection, machine_id: MachineId, *, now: datetime, apart: timedelta = timedelta(0)
) -> None:
    """Bring the next challenge of a verified machine forward to now, or to so long after its last one."""
    await write(connection, _CHALLENGE_NOW, id=machine_id, now=now, apart=apart)
