"""Queries on relays: the places on the hub where nodes of one cluster and organization meet that are behind NAT.

The worker that holds the overlay of a cluster (`db/overlays.py`) is the only one that writes its relays.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import ClusterId, OrganizationId


@dataclass(frozen=True, slots=True)
class RelayRow:
    """A relay, and what the hub was last told about it."""

    organization_id: OrganizationId
    number: int
    """Which of the hub's places for relays it has."""
    public_key: str | None
    """None until the hub was first told of it."""
    endpoint: str | None
    applied_version: str | None
    read_at: datetime | None
    unneeded_since: datetime | None


_COLUMNS = "organization_id, number, public_key, endpoint, applied_version, read_at, unneeded_since"
_ITS = "cluster_id = :cluster_id AND organization_id = :organization_id"
_HELD = "EXISTS (SELECT FROM overlays o WHERE o.cluster_id = :cluster_id AND o.work_token = :token)"
_LOCK_NUMBERS = text("SELECT pg_advisory_xact_lock(hashtext('splitplane relays'))")
_OF_CLUSTER = text(f"SELECT {_COLUMNS} FROM relays WHERE cluster_id = :cluster_id ORDER BY organization_id")
_EXISTS = text(f"SELECT EXISTS (SELECT FROM relays WHERE {_ITS}) AS found")
_ADD = text(f"""
INSERT INTO relays (cluster_id, organization_id, number)
SELECT :cluster_id, :organization_id, min(free) FROM generate_series(0, :numbers - 1) AS free
WHERE NOT EXISTS (SELECT FROM relays WHERE number = free) AND {_HELD} HAVING min(free) IS NOT NULL
ON CONFLICT (cluster_id, organization_id) DO NOTHING
RETURNING {_COLUMNS}
""")
_APPLIED = text(f"""
UPDATE relays SET public_key = :public_key, endpoint = :endpoint, applied_version = :version, read_at = :read_at,
  unneeded_since = CASE WHEN :needed THEN NULL ELSE coalesce(unneeded_since, CAST(:read_at AS timestamptz)) END
WHERE {_ITS} AND {_HELD}
RETURNING {_COLUMNS}
""")
_FORGET = text(f"DELETE FROM relays WHERE {_ITS} AND {_HELD}")


async def of_cluster(connection: Connection, cluster_id: ClusterId) -> list[RelayRow]:
    return await read(connection, _OF_CLUSTER, RelayRow, cluster_id=cluster_id)


async def exists(connection: Connection, cluster_id: ClusterId, organization_id: OrganizationId) -> bool:
    """Whether the hub may have a relay for an organization in a cluster."""
    values = {"cluster_id": cluster_id, "organization_id": organization_id}
    return bool(await read_one(connection, _EXISTS, bool, **values))


async def add(
    connection: Connection,
    cluster_id: ClusterId,
    organization_id: OrganizationId,
    *,
    numbers: int,
    token: UUID,
) -> RelayRow | None:
    """Give a relay the lowest free place below `numbers`. None when all are taken, or the hold was lost."""
    await read(connection, _LOCK_NUMBERS, object)
    values = {"cluster_id": cluster_id, "organization_id": organization_id}
    return await read_one(connection, _ADD, RelayRow, **values, numbers=numbers, token=token)


async def applied(
    connection: Connection,
    cluster_id: ClusterId,
    organization_id: OrganizationId,
    *,
    public_key: str,
    endpoint: str,
    version: str,
    needed: bool,
    read_at: datetime,
    token: UUID,
) -> RelayRow | None:
    """Store what the hub was told. None when another worker holds the overlay."""
    return await read_one(
        connection,
        _APPLIED,
        RelayRow,
        cluster_id=cluster_id,
        organization_id=organization_id,
        public_key=public_key,
        endpoint=endpoint,
        version=version,
        needed=needed,
        read_at=read_at,
        token=token,
    )


async def forget(
    connection: Connection, cluster_id: ClusterId, organization_id: OrganizationId, *, token: UUID
) -> None:
    """Free the place of a relay that the hub has dropped."""
    values = {"cluster_id": cluster_id, "organization_id": organization_id, "token": token}
    await write(connection, _FORGET, **values)
