"""Operators' decisions to terminate orphans, with who decided, when and why. A decision cannot be withdrawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, write
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef


@dataclass(frozen=True, slots=True)
class OrphanTermination:
    id: UUID
    account: AccountName
    provider_ref: ProviderRef
    launch_key: LaunchKey
    why: str
    actor: str
    """The operator's API key, as on the wire."""
    at: datetime


_DECISIONS = Recordset(OrphanTermination, "decisions")
_INSERT = text(f"""
INSERT INTO orphan_terminations (id, account, provider_ref, launch_key, why, actor, at)
SELECT id, account, provider_ref, launch_key, why, actor, at FROM {_DECISIONS}
""")


async def insert(connection: Connection, decisions: Sequence[OrphanTermination]) -> None:
    await write(connection, _INSERT, decisions=_DECISIONS.document(decisions))
