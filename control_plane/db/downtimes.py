"""Queries on the downtime of machines: since when their providers list them as failed or stopped, and in which word."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db import journal
from control_plane.db.connection import Connection
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.actor import Actor
from control_plane.domain.downtime import Reworded, Wavered, WentDown
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.machine import MAY_EXIST, MachineState
from control_plane.domain.outage import Cause
from control_plane.domain.power import PowerState

_SWITCHED = text(f"""
SELECT m.id, w.state AS power FROM machines m JOIN powers w ON w.machine_id = m.id
WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}' AND w.state <> '{PowerState.ON}'
""")
_DOWNTIME = text("""
SELECT sighted_at AS since, down_cause AS cause FROM machines
WHERE id = :id AND down_since IS NOT NULL AND sighted_at IS NOT NULL FOR UPDATE
""")


@dataclass(frozen=True, slots=True)
class _Switched:
    id: MachineId
    power: PowerState


@dataclass(frozen=True, slots=True)
class _Down:
    id: MachineId
    cause: Cause
    why: str


_DOWN = Recordset(_Down, "down")
# A machine was last seen running by the list before.
_BEGIN = text(f"""
WITH went AS (
  UPDATE machines m SET sighted_at = {SIGHTED_AT}, down_since = coalesce(m.down_since, :now), down_cause = down.cause
  FROM {_DOWN}, provider_accounts a
  WHERE m.id = down.id AND a.name = m.account AND m.state = '{MachineState.VERIFIED}'
    AND m.down_cause IS DISTINCT FROM down.cause
  RETURNING m.id, m.state, down.why
), noted AS (
  {journal.insert_for("went", f"'{Note.MACHINE_DOWN}'", "went.why")}
)
SELECT id FROM went
""")
_END = text(f"""
WITH up AS (
  UPDATE machines SET sighted_at = :now, down_since = NULL, down_cause = NULL, back_since = NULL, back_at = :now
  WHERE id = :id AND down_since IS NOT NULL
  RETURNING id, state
), noted AS (
  {journal.insert_for("up", f"'{Note.MACHINE_UP}'")}
)
SELECT id FROM up
""")
_WAVERED = Recordset(Wavered, "wavered")
_WAVER = text(f"""
UPDATE machines m SET back_since = CASE WHEN wavered.back THEN coalesce(m.back_since, :now) END, back_at = :now
FROM {_WAVERED} WHERE m.id = wavered.id AND m.down_since IS NOT NULL
""")
_SEEN = text(
    "UPDATE machines SET sighted_at = :at WHERE id = :id AND down_since IS NOT NULL AND sighted_at < :at"
)
_WORDS = Recordset(Reworded, "words")
_REWORD = text(f"""
UPDATE machines m SET provider_state = words.native_status FROM {_WORDS}
WHERE m.id = words.id AND {among("m.state", MAY_EXIST)}
""")


@dataclass(frozen=True, slots=True)
class Downtime:
    since: datetime
    """When the last list was asked for that showed the machine running."""
    cause: Cause
    """Whose doing it is, by all lists since."""


async def of_machine(connection: Connection, machine_id: MachineId) -> Downtime | None:
    """The downtime of a machine, which is locked. None when it is not down."""
    return await read_one(connection, _DOWNTIME, Downtime, id=machine_id)


async def powers(connection: Connection, account: AccountName) -> Mapping[MachineId, PowerState]:
    """The power of the machines of an account that are off, or whose customers wait for a change of it."""
    return {each.id: each.power for each in await read(connection, _SWITCHED, _Switched, account=account)}


async def begin(connection: Connection, down: Sequence[WentDown], *, actor: Actor, now: datetime) -> None:
    """Store that a list which was asked for at `now` shows machines as down, or says more about whose doing it is.

    Call it before the account's listing time is updated, and before the machines are recorded as sighted.
    """
    if down:
        rows = _DOWN.document([_Down(each.id, each.cause, _down_why(each)) for each in down])
        await read(connection, _BEGIN, MachineId, down=rows, now=now, **journal.actor_values(actor))


def _down_why(down: WentDown) -> str:
    return f"its provider lists it as {down.native_status!r}; its meter stands still until that changes"


async def end(
    connection: Connection, machine_id: MachineId, *, why: str, actor: Actor, now: datetime
) -> None:
    """Store that a machine is no longer down."""
    await read(connection, _END, MachineId, id=machine_id, why=why, now=now, **journal.actor_values(actor))


async def seen_working(connection: Connection, machine_id: MachineId, *, at: datetime) -> None:
    """Store that a machine which is down was seen working by ourselves, so that it is billed until then."""
    await write(connection, _SEEN, id=machine_id, at=at)


async def waver(connection: Connection, wavered: Sequence[Wavered], *, now: datetime) -> None:
    """Store which machines a list that was asked for at `now` shows as back, or no longer so, while they are down."""
    if wavered:
        await write(connection, _WAVER, wavered=_WAVERED.document(wavered), now=now)


async def reword(connection: Connection, words: Sequence[Reworded]) -> None:
    """Store the provider's own words for the states of machines."""
    if words:
        await write(connection, _REWORD, words=_WORDS.document(words))
