"""Operators' decisions to terminate orphans, with who decided, when and why. A decision cannot be withdrawn."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, write
from control_plane.domain.actor import ActorKind
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef


@dataclass(frozen=True, slots=True)
class OrphanTermination:
    id: UUID
    account: AccountName
    provider_ref: ProviderRef
    launch_key: LaunchKey
    why: str
    actor_kind: ActorKind
    actor: str
    """The operator's API key, as on the wire."""
    request_id: str | None
    at: datetime


_DECISIONS = Recordset(OrphanTermination, "decisions")
_COLUMNS = ", ".join(field.name for field in fields(OrphanTermination))
_INSERT = text(f"INSERT INTO orphan_terminations ({_COLUMNS}) SELECT {_COLUMNS} FROM {_DECISIONS}")


async def insert(connection: Connection, decisions: Sequence[OrphanTermination]) -> None:
    await write(connection, _INSERT, decisions=_DECISIONS.document(decisions))
