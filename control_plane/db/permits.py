"""Queries on termination permits: operators give them when a provider is at fault for many failed proofs, or when many
machines are gone indeed that an account's lists miss.

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
    frozen_since: datetime | None = None
    """For missing machines: since when the account was frozen when the operator looked. None for failed proofs."""
    missing: int | None = None
    """How many machines its list missed then."""


_INSERT = text("""
INSERT INTO termination_permits (id, account, why, actor_kind, actor, request_id, at, until, frozen_since, missing)
VALUES (:id, :account, :why, :actor_kind, :actor, :request_id, :at, :until, :frozen_since, :missing)
""")
_COLUMNS = "account, why, actor_kind, actor, request_id, at, until, frozen_since, missing"
# Of several permits for one account, the one that is valid longest.
_VALID = text(f"""
SELECT DISTINCT ON (account) {_COLUMNS} FROM termination_permits
WHERE until > :now AND missing IS NULL AND (CAST(:account AS text) IS NULL OR account = :account)
ORDER BY account, until DESC
""")
# The freeze that it is for may have ended, and then it counts no more. Of several, the one that covers most.
_VALID_FOR_MISSING = text(f"""
SELECT DISTINCT ON (p.account) {", ".join(f"p.{column}" for column in _COLUMNS.split(", "))}
FROM termination_permits p JOIN provider_accounts a ON a.name = p.account AND a.frozen_since = p.frozen_since
WHERE p.until > :now AND (CAST(:account AS text) IS NULL OR p.account = :account)
ORDER BY p.account, p.missing DESC, p.until DESC
""")


async def insert(connection: Connection, permit_id: UUID, permit: Permit) -> None:
    await write(connection, _INSERT, id=permit_id, **asdict(permit))


async def valid(connection: Connection, *, now: datetime, account: AccountName | None = None) -> list[Permit]:
    """The permits for failed proofs that are valid at `now`, for one account or for all; one per account."""
    return await read(connection, _VALID, Permit, now=now, account=account)


async def valid_for_missing(
    connection: Connection, *, now: datetime, account: AccountName | None = None
) -> list[Permit]:
    """The same for missing machines: those for the freezes that last."""
    return await read(connection, _VALID_FOR_MISSING, Permit, now=now, account=account)
