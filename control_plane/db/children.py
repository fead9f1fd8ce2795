"""Queries on children: what launches made beside their machines, and the machines that they belong to."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db import journal
from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.actor import Actor
from control_plane.domain.child import Parent
from control_plane.domain.ids import AccountName, LaunchKey, MachineId
from control_plane.domain.journal import Note

_TAKE = text("""
UPDATE provider_accounts SET children_due_at = :next WHERE name = :name AND coalesce(children_due_at <= :now, true)
""")
# An orphan with the same launch key is a machine of that launch as well.
_PARENTS = text("""
SELECT m.id AS machine_id, m.launch_key, m.state, m.step,
       CASE WHEN NOT coalesce(o.listed, false) THEN greatest(m.gone_at, o.gone_at) END AS gone_at
FROM machines m
LEFT JOIN LATERAL (
  SELECT bool_or(gone_at IS NULL) AS listed, max(gone_at) AS gone_at FROM orphans
  WHERE account = m.account AND launch_key = m.launch_key
) o ON true
WHERE m.account = :account AND m.launch_key = ANY(:keys)
""")
# A run that died after this line and before the deletion is repeated, and finds its line.
_NOTE = text(f"""
{journal.INSERT}
SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, m.id, :now, {journal.ACTOR},
       '{Note.CHILD_DELETION_REQUESTED}', NULL, NULL, :why
FROM machines m {journal.CLAIMANTS.format(machine="m.id")}
WHERE m.id = :machine_id AND NOT EXISTS (
  SELECT FROM journal j WHERE j.machine_id = m.id AND j.event = '{Note.CHILD_DELETION_REQUESTED}' AND j.why = :why)
""")


async def take_listing(connection: Connection, name: AccountName, *, now: datetime, every: timedelta) -> bool:
    """Whether this replica lists the account's children now."""
    return bool(await write(connection, _TAKE, name=name, now=now, next=now + every))


async def parents(
    connection: Connection, account: AccountName, keys: Iterable[LaunchKey]
) -> dict[LaunchKey, Parent]:
    """The records of the account that have these launch keys."""
    found = await read(connection, _PARENTS, Parent, account=account, keys=sorted(set(keys)))
    return {parent.launch_key: parent for parent in found}


async def note_request(
    connection: Connection, machine_id: MachineId, *, why: str, actor: Actor, now: datetime
) -> None:
    """Add the journal's line that a machine's child is about to be deleted, once for each `why`."""
    values = {"machine_id": machine_id, "why": why, "now": now}
    await write(connection, _NOTE, **values, **journal.actor_values(actor))
