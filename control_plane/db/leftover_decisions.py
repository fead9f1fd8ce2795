"""Operators' decisions that what a launch left is deleted, with who decided, when and why."""

from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.actor import ActorKind
from control_plane.domain.child import ChildKey
from control_plane.domain.ids import AccountName, LaunchKey


@dataclass(frozen=True, slots=True)
class LeftoverDecision:
    id: UUID
    account: AccountName
    kind: str
    ref: str
    launch_key: LaunchKey
    why: str
    actor_kind: ActorKind
    actor: str
    """The operator's API key, as on the wire."""
    request_id: str | None
    at: datetime


_COLUMNS = tuple(field.name for field in fields(LeftoverDecision))
_INSERT = text(f"""
INSERT INTO leftover_decisions ({", ".join(_COLUMNS)})
VALUES ({", ".join(f":{column}" for column in _COLUMNS)})
""")
# A decision counts for what its operator saw: what was gone since, and is listed again, is decided on anew.
COUNTS = """
t.account = l.account AND t.kind = l.kind AND t.ref = l.ref AND t.launch_key = l.launch_key AND t.at >= l.since
"""
_DECIDED = text(f"""
SELECT DISTINCT l.kind, l.ref, l.launch_key FROM leftovers l JOIN leftover_decisions t ON {COUNTS}
WHERE l.account = :account
""")


async def insert(connection: Connection, decision: LeftoverDecision) -> None:
    await write(connection, _INSERT, **{column: getattr(decision, column) for column in _COLUMNS})


async def decided(connection: Connection, account: AccountName) -> frozenset[ChildKey]:
    """What an account's last list showed as left, and an operator decided to delete."""
    return frozenset(await read(connection, _DECIDED, ChildKey, account=account))
