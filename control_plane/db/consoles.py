"""Queries on consoles: what was asked for, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.console import (
    KEPT,
    RECENT,
    Console,
    ConsoleSource,
    Finding,
    MachineAnswer,
    Printed,
    ProviderAnswer,
)
from control_plane.domain.ids import (
    AccountName,
    ClaimId,
    ConsoleId,
    LaunchKey,
    LeaseId,
    OrganizationId,
    ProjectId,
    ProviderRef,
)
from control_plane.domain.machine import MachineState

REQUESTS = "splitplane_consoles"
"""The channel on which PostgreSQL notifies of requests, when they are committed."""

_COUNT_RECENT = text("SELECT count(*) FROM consoles WHERE lease_id = :lease_id AND requested_at > :since")
_INSERT = text("""
INSERT INTO consoles (id, organization_id, project_id, lease_id, claim_id, due_at, requested_at, answered_at, source,
                      provider, machine, printed, is_cut)
VALUES (:id, :organization_id, :project_id, :lease_id, :claim_id, :now, :now, :answered_at, :source, :provider,
        :machine, :printed, :is_cut)
""")
_NOTIFY = text("SELECT pg_notify(:channel, '')")
_GET = text("""
SELECT id, organization_id, lease_id, requested_at, answered_at, source, provider, machine, printed, is_cut
FROM consoles WHERE organization_id = :organization_id AND lease_id = :lease_id AND id = :id
  AND coalesce(answered_at, requested_at) > :since
""")
_TAKE = text(f"""
WITH taken AS (
  SELECT w.id, m.launch_key, m.address, m.ssh_port, m.host_key,
         CASE WHEN m.state = '{MachineState.GONE}' THEN NULL ELSE m.provider_ref END AS provider_ref,
         c.ended_at IS NOT NULL AS is_over
  FROM consoles w JOIN claims c ON c.id = w.claim_id JOIN machines m ON m.id = c.machine_id
  WHERE m.account = :account AND w.answered_at IS NULL AND w.due_at <= :now
    AND {work.FREE.replace("work_until", "w.work_until")}
  ORDER BY w.due_at, w.id LIMIT :limit FOR UPDATE OF w SKIP LOCKED
)
UPDATE consoles w SET work_token = :token, work_until = :until FROM taken WHERE w.id = taken.id
RETURNING w.id, w.requested_at, w.ticket, taken.launch_key, taken.address, taken.ssh_port, taken.host_key,
          taken.provider_ref, taken.is_over
""")
_ANSWER = text(f"""
UPDATE consoles SET answered_at = :now, source = :source, provider = :provider, machine = :machine, printed = :printed,
  is_cut = :is_cut, ticket = NULL, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_WAIT = text(f"""
UPDATE consoles SET ticket = :ticket, due_at = :due_at, tries = tries + 1, tried_at = :now, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_FORGET = text("""
DELETE FROM consoles WHERE id IN (
  SELECT id FROM consoles WHERE requested_at < :before AND coalesce(answered_at, requested_at) < :before
  ORDER BY requested_at LIMIT :limit
)
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What is stored of a request."""

    console: Console
    project_id: ProjectId
    claim_id: ClaimId | None
    """Whose machine is read; None where the request is answered at once."""


@dataclass(frozen=True, slots=True)
class _Row:
    id: ConsoleId
    organization_id: OrganizationId
    lease_id: LeaseId
    requested_at: datetime
    answered_at: datetime | None
    source: ConsoleSource | None
    provider: ProviderAnswer | None
    machine: MachineAnswer | None
    printed: str | None
    is_cut: bool | None

    @property
    def value(self) -> Console:
        return Console(
            id=self.id,
            organization_id=self.organization_id,
            lease_id=self.lease_id,
            requested_at=self.requested_at,
            answered_at=self.answered_at,
            finding=self._finding,
        )

    @property
    def _finding(self) -> Finding | None:
        if self.source is None or self.provider is None or self.machine is None:
            return None
        lines = tuple(self.printed.split("\n")) if self.printed else ()
        return Finding(self.source, self.provider, self.machine, Printed(lines, bool(self.is_cut)))


async def count_recent(connection: Connection, lease_id: LeaseId, *, now: datetime) -> int:
    """Requests for a lease that are not older than RECENT. The caller holds the lease's lock."""
    return await read_one(connection, _COUNT_RECENT, int, lease_id=lease_id, since=now - RECENT) or 0


async def insert(connection: Connection, requested: Requested) -> None:
    """Store a request, and wake the loop that answers it."""
    console = requested.console
    await write(
        connection,
        _INSERT,
        id=console.id,
        organization_id=console.organization_id,
        project_id=requested.project_id,
        lease_id=console.lease_id,
        claim_id=requested.claim_id,
        now=console.requested_at,
        answered_at=console.answered_at,
        **_values(console.finding),
    )
    await read(connection, _NOTIFY, object, channel=REQUESTS)


def _values(finding: Finding | None) -> dict[str, str | bool | None]:
    if finding is None:
        return dict.fromkeys(("source", "provider", "machine", "printed", "is_cut"))
    return {
        "source": finding.source.value,
        "provider": finding.provider.value,
        "machine": finding.machine.value,
        "printed": "\n".join(finding.printed.lines),
        "is_cut": finding.printed.is_cut,
    }


async def get(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    console_id: UUID,
    *,
    now: datetime,
) -> Console | None:
    """A request and its answer; None once its time is over, deleted or not."""
    values = {"organization_id": organization_id, "lease_id": lease_id, "id": console_id, "since": now - KEPT}
    row = await read_one(connection, _GET, _Row, **values)
    return row.value if row else None


# What the reconciler does with them


@dataclass(frozen=True, slots=True)
class Due:
    """A request that this worker answers, and how its machine is reached."""

    id: ConsoleId
    requested_at: datetime
    ticket: str | None
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None
    provider_ref: ProviderRef | None
    """None while nothing was bought, and once it is gone."""
    is_over: bool
    """Whether the lease let go of the machine meanwhile."""


async def take(
    connection: Connection, account: AccountName, *, token: UUID, now: datetime, until: datetime, limit: int
) -> Sequence[Due]:
    """Requests for machines of an account that nobody answers yet, oldest first; held until `until`."""
    values = {"account": account, "token": token, "now": now, "until": until, "limit": limit}
    return sorted(await read(connection, _TAKE, Due, **values), key=lambda due: due.id.bytes)


async def answer(
    connection: Connection, console_id: ConsoleId, finding: Finding, *, token: UUID, now: datetime
) -> bool:
    """Store what was found. False when another worker holds the request."""
    values = {"id": console_id, "token": token, "now": now}
    return bool(await write(connection, _ANSWER, **values, **_values(finding)))


async def wait(
    connection: Connection,
    console_id: ConsoleId,
    ticket: str,
    *,
    token: UUID,
    now: datetime,
    after: timedelta,
) -> None:
    """Ask the provider again after a while, with this ticket."""
    values = {"id": console_id, "token": token, "ticket": ticket, "now": now, "due_at": now + after}
    await write(connection, _WAIT, **values)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete answers, and requests that nobody answered, from before a time. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
