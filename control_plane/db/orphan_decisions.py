"""Operators' decisions on orphans, with who decided, when and why. The last one of an orphan counts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, write
from control_plane.domain.actor import ActorKind
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from control_plane.domain.orphan import Choice


@dataclass(frozen=True, slots=True)
class OrphanDecision:
    id: UUID
    account: AccountName
    provider_ref: ProviderRef
    launch_key: LaunchKey
    choice: Choice
    why: str
    actor_kind: ActorKind
    actor: str
    """The operator's API key, as on the wire."""
    request_id: str | None
    at: datetime


_DECISIONS = Recordset(OrphanDecision, "decisions")
_COLUMNS = ", ".join(field.name for field in fields(OrphanDecision))
_INSERT = text(f"INSERT INTO orphan_decisions ({_COLUMNS}) SELECT {_COLUMNS} FROM {_DECISIONS}")


async def insert(connection: Connection, decisions: Sequence[OrphanDecision]) -> None:
    await write(connection, _INSERT, decisions=_DECISIONS.document(decisions))
