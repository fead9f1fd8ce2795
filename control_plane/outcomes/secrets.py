"""What the end of an organization means for its secrets: nobody can ever read them again."""

from datetime import datetime
from uuid import UUID

from control_plane.db import data_keys
from control_plane.db.connection import Connection
from control_plane.db.data_keys import Destruction
from control_plane.domain.actor import Actor
from control_plane.domain.ids import OrganizationId


async def destroy_keys(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    destruction_id: UUID,
    why: str,
    actor: Actor,
    now: datetime,
) -> Destruction:
    """Destroy all data keys of an organization, for ever, and record who did it and why.

    Its secrets stay in the database as bytes that no key opens. Backups that are older than this still hold the wrapped
    keys: see docs/operating.md, "Secrets and keys". It takes effect when the caller's transaction commits, and may be
    repeated. It needs the reconciler's role.
    """
    return await data_keys.destroy(
        connection, organization_id, destruction_id=destruction_id, why=why, actor=actor, now=now
    )
