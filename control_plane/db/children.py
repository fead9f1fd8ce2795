"""Queries on children: what launches made beside their machines, and the machines that they belong to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text

from control_plane.db import journal
from control_plane.db.connection import Connection
from control_plane.db.leftover_decisions import COUNTS
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.actor import Actor
from control_plane.domain.child import Child, ChildKey, Leftover, Parent
from control_plane.domain.freeze import Freeze
from control_plane.domain.ids import AccountName, LaunchKey, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.money import Nano, accrued

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


_LEFT = Recordset(Leftover, "seen")
_RECORD = text(f"""
WITH seen AS (
  SELECT kind, ref, launch_key, machine_id, cost_nano_per_hour, why FROM {_LEFT}
), gone AS (
  DELETE FROM leftovers WHERE account = :account AND (kind, ref) NOT IN (SELECT kind, ref FROM seen)
)
INSERT INTO leftovers (account, kind, ref, launch_key, machine_id, cost_nano_per_hour, since, why)
SELECT :account, kind, ref, launch_key, machine_id, cost_nano_per_hour, :now, why FROM seen
ON CONFLICT (account, kind, ref) DO UPDATE SET
  launch_key = excluded.launch_key, machine_id = excluded.machine_id,
  cost_nano_per_hour = excluded.cost_nano_per_hour, why = excluded.why
WHERE (leftovers.launch_key, leftovers.machine_id, leftovers.cost_nano_per_hour, leftovers.why)
  IS DISTINCT FROM (excluded.launch_key, excluded.machine_id, excluded.cost_nano_per_hour, excluded.why)
""")
_COUNTED = text("""
UPDATE provider_accounts SET children_listed = :listed, children_listed_at = :now WHERE name = :account
""")
_FAILED = text("""
UPDATE leftovers SET failures = failures + 1, failed_why = :why
WHERE account = :account AND kind = :kind AND ref = :ref
""")
_LISTED = text(f"""
SELECT l.account, l.kind, l.ref, l.launch_key, l.machine_id, l.cost_nano_per_hour, l.since, l.why, l.failures,
       l.failed_why, d.at AS decided_at, d.actor AS decided_by, d.why AS decided_why
FROM leftovers l LEFT JOIN LATERAL (
  SELECT t.at, t.actor, t.why FROM leftover_decisions t WHERE {COUNTS} ORDER BY t.at DESC, t.id DESC LIMIT 1) d ON true
ORDER BY l.account, l.kind, l.ref LIMIT :limit
""")


_ACCEPTED = text("""
UPDATE leftovers SET accepted_at = :now WHERE account = :account AND kind = :kind AND ref = :ref
""")
_EXPECTED = text(
    "SELECT kind, ref, launch_key FROM leftovers WHERE account = :account AND accepted_at IS NULL"
)
_FROZEN = text("""
SELECT children_frozen_since AS since, children_frozen_lists AS lists, children_frozen_why AS why,
  children_frozen_missing AS missing
FROM provider_accounts WHERE name = :account AND children_frozen_since IS NOT NULL
""")
_FREEZE = text("""
UPDATE provider_accounts SET children_frozen_since = :since, children_frozen_lists = :lists, children_frozen_why = :why,
  children_frozen_missing = :missing
WHERE name = :account AND (children_frozen_since, children_frozen_lists) IS DISTINCT FROM (:since, :lists)
""")


@dataclass(frozen=True, slots=True)
class ListedLeftover:
    """What a launch left at a provider, as operators read it."""

    account: AccountName
    kind: str
    ref: str
    launch_key: LaunchKey
    machine_id: MachineId | None
    cost_nano_per_hour: Nano | None
    """None where the provider does not say."""
    since: datetime
    """When it was first seen not to be needed."""
    why: str
    failures: int
    """How often its deletion failed."""
    failed_why: str | None
    """What the provider said when its deletion failed last."""
    decided_at: datetime | None
    """When an operator last decided that it is deleted; None when nobody did."""
    decided_by: str | None
    decided_why: str | None

    def cost(self, now: datetime) -> Nano | None:
        """What it has cost since then; None where nobody knows."""
        if self.cost_nano_per_hour is None:
            return None
        return accrued(self.cost_nano_per_hour, max(0, int((now - self.since).total_seconds())))


async def record_leftovers(
    connection: Connection, account: AccountName, seen: Sequence[Leftover], *, listed: int, now: datetime
) -> None:
    """Store what the account's list of `now` shows that nobody needs; what it no longer shows is forgotten. `listed`
    counts all children of ours that it shows.
    """
    await write(connection, _RECORD, seen=_LEFT.document(seen), account=account, now=now)
    await write(connection, _COUNTED, account=account, listed=listed, now=now)


async def record_failure(connection: Connection, account: AccountName, child: Child, *, why: str) -> None:
    """Count a deletion that failed."""
    await write(connection, _FAILED, account=account, kind=child.kind, ref=child.ref, why=why)


async def record_accepted(
    connection: Connection, account: AccountName, child: Child, *, now: datetime
) -> None:
    """Store that the provider accepted the deletion of a child, so that a list may lack it."""
    await write(connection, _ACCEPTED, account=account, kind=child.kind, ref=child.ref, now=now)


async def expected(connection: Connection, account: AccountName) -> list[ChildKey]:
    """The children that should be on the account's list: nobody needs them, and nothing of ours removes them."""
    return await read(connection, _EXPECTED, ChildKey, account=account)


async def freeze(connection: Connection, account: AccountName) -> Freeze | None:
    """The freeze of the account's lists of children; None while they look right."""
    return await read_one(connection, _FROZEN, Freeze, account=account)


async def record_freeze(connection: Connection, account: AccountName, freeze: Freeze | None) -> None:
    """Store the freeze of the account's lists of children, or its end."""
    await write(
        connection,
        _FREEZE,
        account=account,
        since=freeze.since if freeze else None,
        lists=freeze.lists if freeze else 0,
        why=freeze.why if freeze else None,
        missing=freeze.missing if freeze else 0,
    )


async def leftovers(connection: Connection, *, limit: int) -> list[ListedLeftover]:
    """What launches left at all accounts, for operators."""
    return await read(connection, _LISTED, ListedLeftover, limit=limit)


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
