"""Queries on termination permits, which operators give when a provider is at fault for many failed proofs.

A permit is valid for a limited time and cannot be withdrawn; the table keeps who gave it and why.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.actor import ActorKind
from control_plane.domain.ids import AccountName


@dataclass(frozen=True, slots=True)
class Permit:
    account: AccountName
    why: str
    actor_kind: ActorKind
    actor: str
    """The operator's API key, as on the wire."""
    request_id: str | None
    at: datetime
    until: datetime


_INSERT = text("""
INSERT INTO termination_permits (id, account, why, actor_kind, actor, request_id, at, until)
VALUES (:id, :account, :why, :actor_kind, :actor, :request_id, :at, :until)
""")
# Of several permits for one account, the one that is valid longest.
_VALID = text("""
SELECT DISTINCT ON (account) account, why, actor_kind, actor, request_id, at, until FROM termination_permits
WHERE until > :now AND (CAST(:account AS text) IS NULL OR account = :account) ORDER BY account, until DESC
""")


async def insert(connection: Connection, permit_id: UUID, permit: Permit) -> None:
    await write(connection, _INSERT, id=permit_id, **asdict(permit))


async def valid(connection: Connection, *, now: datetime, account: AccountName | None = None) -> list[Permit]:
    """The permits that are valid at `now`, for one account or for all; one per account."""
    return await read(connection, _VALID, Permit, now=now, account=account)
