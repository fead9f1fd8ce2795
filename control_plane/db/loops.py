"""Queries on the loops there are, and on the last report of each in every replica, which an operator looks at first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, write


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What a loop did in its last activation, in one replica."""

    loop: str
    wing: str
    """Empty while the roster does not know the loop."""
    account: str
    """Empty for a loop that covers the whole system."""
    replica: str
    started_at: datetime
    finished_at: datetime
    every_seconds: int
    late_after_seconds: int
    """How long after its last report a loop counts as late."""
    looked_at: int
    acted_on: int
    errors: Sequence[str]
    notes: Sequence[str]
    activations: int
    """How many activations were reported. Uneventful ones are reported only every few seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A loop of a process, with its account; empty for a loop that covers the whole system."""

    loop: str
    account: str


@dataclass(frozen=True, slots=True)
class RosterLine:
    """A loop that some process could run."""

    loop: str
    account: str
    """Empty for a loop that covers the whole system, and where the accounts are not known."""
    wing: str


_LINES = Recordset(RosterLine, "lines")
_TURNS = Recordset(Turn, "turns")
_RECORD = text("""
INSERT INTO loop_reports (loop, account, replica, started_at, finished_at, every_seconds, late_after_seconds,
                          looked_at, acted_on, errors, notes)
VALUES (:loop, :account, :replica, :started_at, :finished_at, :every_seconds, :late_after_seconds,
        :looked_at, :acted_on, :errors, :notes)
ON CONFLICT (loop, account, replica) DO UPDATE SET
  started_at = excluded.started_at, finished_at = excluded.finished_at, every_seconds = excluded.every_seconds,
  late_after_seconds = excluded.late_after_seconds,
  looked_at = excluded.looked_at, acted_on = excluded.acted_on, errors = excluded.errors, notes = excluded.notes,
  activations = loop_reports.activations + 1
""")
_ALL = text("""
SELECT loop, coalesce((SELECT max(wing) FROM loop_roster AS r WHERE r.loop = reports.loop), '') AS wing, account,
       replica, started_at, finished_at, every_seconds, late_after_seconds, looked_at, acted_on, errors, notes,
       activations
FROM loop_reports AS reports ORDER BY wing, loop, account, replica
""")
# A process that does not run a loop cannot know its accounts, and stores it without one. That line says nothing where
# another process knows more.
_MISSING = text("""
SELECT loop, account, wing FROM loop_roster AS r
WHERE NOT EXISTS (SELECT FROM loop_reports AS s WHERE s.loop = r.loop AND s.account = r.account)
  AND (account <> '' OR NOT EXISTS (SELECT FROM loop_reports AS s WHERE s.loop = r.loop)
                        AND NOT EXISTS (SELECT FROM loop_roster AS o WHERE o.loop = r.loop AND o.account <> ''))
ORDER BY wing, loop, account
""")
_STORE_ROSTER = text(f"""
INSERT INTO loop_roster (loop, account, wing, stored_at) SELECT loop, account, wing, :now FROM {_LINES}
ON CONFLICT (loop, account) DO UPDATE SET wing = excluded.wing, stored_at = excluded.stored_at
""")
_WITHDRAW = text(f"""
DELETE FROM loop_reports WHERE replica = :replica AND (loop, account) IN (SELECT loop, account FROM {_TURNS})
""")
_DROP_ROSTER = text("DELETE FROM loop_roster WHERE account = :account")
_DROP_REPORTS = text("DELETE FROM loop_reports WHERE account = :account")
# While no process stores its roster, all of them are down, and nothing is forgotten: it says what should run.
_SOMEBODY_RUNS = "EXISTS (SELECT FROM loop_roster WHERE stored_at >= :before)"
_FORGET_ROSTER = text(f"DELETE FROM loop_roster WHERE stored_at < :before AND {_SOMEBODY_RUNS}")
# The newest report of a loop stays while the loop exists, so that one that no replica runs is seen to be late and not
# missing.
_FORGET = text(f"""
DELETE FROM loop_reports AS old WHERE old.finished_at < :before AND (
  EXISTS (
    SELECT FROM loop_reports AS newer WHERE newer.loop = old.loop AND newer.account = old.account
      AND (newer.finished_at, newer.replica) > (old.finished_at, old.replica))
  OR {_SOMEBODY_RUNS} AND NOT EXISTS (
    SELECT FROM loop_roster AS r WHERE r.loop = old.loop AND r.account IN (old.account, '')))
""")


async def record(
    connection: Connection,
    *,
    loop: str,
    account: str,
    replica: str,
    started_at: datetime,
    finished_at: datetime,
    every_seconds: float,
    late_after_seconds: float,
    looked_at: int,
    acted_on: int,
    errors: Sequence[str],
    notes: Sequence[str],
) -> None:
    """Replace the loop's last report in this replica."""
    await write(
        connection,
        _RECORD,
        loop=loop,
        account=account,
        replica=replica,
        started_at=started_at,
        finished_at=finished_at,
        every_seconds=max(1, round(every_seconds)),
        late_after_seconds=math.ceil(late_after_seconds),
        looked_at=looked_at,
        acted_on=acted_on,
        errors=list(errors),
        notes=list(notes),
    )


async def reports(connection: Connection) -> list[LoopReport]:
    """The last reports of all loops in all replicas."""
    return await read(connection, _ALL, LoopReport)


async def missing(connection: Connection) -> list[RosterLine]:
    """The loops, each with its account, of which no replica has a report."""
    return await read(connection, _MISSING, RosterLine)


async def store_roster(connection: Connection, lines: Sequence[RosterLine], *, now: datetime) -> None:
    """Store which loops there are."""
    await write(connection, _STORE_ROSTER, lines=_LINES.document(lines), now=now)


async def withdraw(connection: Connection, replica: str, turns: Sequence[Turn]) -> None:
    """Delete the reports of a replica on these loops and accounts, because it stops."""
    await write(connection, _WITHDRAW, replica=replica, turns=_TURNS.document(turns))


async def drop_account(connection: Connection, account: str) -> None:
    """Forget the loops of an account that was removed, and their reports."""
    await write(connection, _DROP_ROSTER, account=account)
    await write(connection, _DROP_REPORTS, account=account)


async def forget(connection: Connection, *, before: datetime) -> None:
    """Forget loops that no process has named since `before`, and old reports but for the newest of every loop."""
    await write(connection, _FORGET_ROSTER, before=before)
    await write(connection, _FORGET, before=before)
