"""Queries on organizations and their standings."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.admission import Standing
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState


@dataclass(frozen=True, slots=True)
class Organization:
    """An organization with its standing."""

    id: OrganizationId
    name: str
    state: OrganizationState
    platform: bool
    """Whether it is the organization of those who run the installation."""
    gpu_quota: int
    gpus_held: int
    posted_nano: Nano
    held_nano: Nano
    created_at: datetime


_INSERT = text("""
WITH made AS (
  INSERT INTO organizations (id, name, platform, created_at) VALUES (:id, :name, :platform, :now)
  ON CONFLICT (name) DO NOTHING RETURNING id
)
INSERT INTO standings (organization_id, gpu_quota) SELECT id, :gpu_quota FROM made
""")
_GET = text("""
SELECT o.id, o.name, o.state, o.platform, s.gpu_quota, s.gpus_held, s.posted_nano, s.held_nano, o.created_at
FROM organizations o JOIN standings s ON s.organization_id = o.id WHERE o.id = :id
""")
# A function that runs with its owner's rights: the tenant filter would hide all organizations but one.
_IDS = text("""
SELECT id FROM organization_ids(CAST(:after_at AS timestamptz), CAST(:after_id AS uuid), CAST(:limit AS integer))
""")
_BY_NAME = text("SELECT id FROM organizations WHERE name = :name")
_STANDING = text("""
SELECT o.state, s.gpu_quota, s.gpus_held, s.posted_nano - s.held_nano AS available_nano
FROM standings s JOIN organizations o ON o.id = s.organization_id WHERE s.organization_id = :id
""")
_LOCKED_STANDING = text(_STANDING.text + " FOR UPDATE OF s")
_LOCK_STANDINGS = text("""
SELECT organization_id FROM standings WHERE organization_id = ANY(:ids) ORDER BY organization_id FOR UPDATE
""")


async def insert(
    connection: Connection,
    organization_id: OrganizationId,
    name: str,
    *,
    gpu_quota: int,
    platform: bool,
    now: datetime,
) -> bool:
    """Store an organization and its standing. False when the name is taken."""
    values = {"name": name, "gpu_quota": gpu_quota, "platform": platform, "now": now}
    return bool(await write(connection, _INSERT, id=organization_id, **values))


async def get(connection: Connection, organization_id: OrganizationId) -> Organization | None:
    return await read_one(connection, _GET, Organization, id=organization_id)


async def ids(
    connection: Connection, *, after: tuple[datetime, UUID] | None, limit: int
) -> list[OrganizationId]:
    """The ids of all organizations, oldest first; `after` is creation time and id of the previous page's last one."""
    return await read(
        connection,
        _IDS,
        OrganizationId,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def named(connection: Connection, name: str) -> OrganizationId | None:
    return await read_one(connection, _BY_NAME, OrganizationId, name=name)


async def standing(connection: Connection, organization_id: OrganizationId, *, lock: bool) -> Standing | None:
    """The facts that admission decides on. With `lock`, no other transaction can spend for this organization."""
    return await read_one(connection, _LOCKED_STANDING if lock else _STANDING, Standing, id=organization_id)


async def lock_standings(connection: Connection, organization_ids: Collection[OrganizationId]) -> None:
    """Lock the standings of several organizations, in id order. Holds are locked after them."""
    await connection.execute(_LOCK_STANDINGS, {"ids": sorted(set(organization_ids))})
