"""Queries on private networks as their customers see them. Their places on the hub are in `db/mesh.py`."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.ids import NetworkId, OrganizationId, ProjectId
from control_plane.domain.network import BLOCKS, DEFAULT_NAME, Member, Network

_LOCK = text(
    "SELECT pg_advisory_xact_lock(hashtextextended(CAST(CAST(:organization_id AS uuid) AS text), 4713))"
)
# The lowest range that no network of the organization has; without one nothing is stored.
_INSERT = text("""
INSERT INTO networks (id, organization_id, project_id, name, block, labels, created_at)
SELECT :id, :organization_id, :project_id, :name, min(free), CAST(:labels AS jsonb), :now
FROM generate_series(0, (SELECT count(*) FROM networks WHERE organization_id = :organization_id AND deleted_at IS NULL))
  AS free
WHERE NOT EXISTS (SELECT FROM networks WHERE organization_id = :organization_id AND deleted_at IS NULL AND block = free)
  AND free < :blocks
HAVING min(free) IS NOT NULL
ON CONFLICT (organization_id, project_id, name) WHERE deleted_at IS NULL DO NOTHING RETURNING block
""")
_COLUMNS = """
n.id, n.organization_id, n.project_id, n.name, n.block, n.labels, n.created_at,
(SELECT count(*) FROM peers p JOIN claims c ON c.id = p.claim_id WHERE p.network_id = n.id AND c.ended_at IS NULL)
  AS members"""
_LIVE = "n.organization_id = :organization_id AND n.project_id = :project_id AND n.deleted_at IS NULL"
_NAMED = text(f"SELECT {_COLUMNS} FROM networks n WHERE {_LIVE} AND n.name = :name")
_ID = text(f"SELECT n.id FROM networks n WHERE {_LIVE} AND n.name = :name")
_GET = text(f"SELECT {_COLUMNS} FROM networks n WHERE {_LIVE} AND n.id = :id")
_COUNT = text(f"SELECT count(*) FROM networks n WHERE {_LIVE}")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM networks n
WHERE {_LIVE}
  AND (CAST(:after_at AS timestamptz) IS NULL OR (n.created_at, n.id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY n.created_at, n.id LIMIT :limit
""")
_MEMBERS = text("""
SELECT l.id AS lease_id, l.name AS lease_name, p.host_number, p.address, p.joined_at
FROM peers p JOIN claims c ON c.id = p.claim_id JOIN leases l ON l.id = c.lease_id
WHERE p.organization_id = :organization_id AND p.network_id = :network_id AND c.ended_at IS NULL
  AND p.host_number > :after
ORDER BY p.host_number LIMIT :limit
""")
# A lease that is created holds this lock in the other mode (`_HOLD`), so that none is admitted to a deleted network.
_SEIZE = text("""
SELECT id FROM networks WHERE organization_id = :organization_id AND id = :id AND deleted_at IS NULL FOR UPDATE
""")
_HOLD = text("""
SELECT id FROM networks WHERE organization_id = :organization_id AND id = :id AND deleted_at IS NULL FOR SHARE
""")
_USED = text("""
SELECT name FROM leases
WHERE organization_id = :organization_id AND network_id = :id AND ended_at IS NULL ORDER BY created_at LIMIT :limit
""")
_LABEL = text("""
UPDATE networks SET labels = CAST(:labels AS jsonb) WHERE organization_id = :organization_id AND id = :id
""")
_DELETE = text("UPDATE networks SET deleted_at = :now WHERE organization_id = :organization_id AND id = :id")


async def lock_plan(connection: Connection, organization_id: OrganizationId) -> None:
    """Let no other transaction give out a range of the organization."""
    await read(connection, _LOCK, object, organization_id=organization_id)


async def insert(
    connection: Connection,
    *,
    network_id: NetworkId,
    organization_id: OrganizationId,
    project_id: ProjectId,
    name: str,
    labels: Mapping[str, str],
    now: datetime,
) -> int | None:
    """Store a network with the lowest free range; returns its block. The caller holds the plan's lock.

    None when the project has a network of that name, or the organization has no free range.
    """
    return await read_one(
        connection,
        _INSERT,
        int,
        id=network_id,
        organization_id=organization_id,
        project_id=project_id,
        name=name,
        labels=document(labels),
        now=now,
        blocks=BLOCKS,
    )


async def get(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId, network_id: NetworkId
) -> Network | None:
    scope = {"organization_id": organization_id, "project_id": project_id}
    return await read_one(connection, _GET, Network, **scope, id=network_id)


async def named(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId, name: str
) -> Network | None:
    scope = {"organization_id": organization_id, "project_id": project_id}
    return await read_one(connection, _NAMED, Network, **scope, name=name)


async def exists(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId, name: str
) -> bool:
    """Whether a project has a network of this name."""
    scope = {"organization_id": organization_id, "project_id": project_id}
    return await read_one(connection, _ID, NetworkId, **scope, name=name) is not None


async def default(connection: Connection, organization_id: OrganizationId, project_id: ProjectId) -> Network:
    """The network of leases whose request names none. Raises LookupError when the project is not visible."""
    found = await named(connection, organization_id, project_id, DEFAULT_NAME)
    if found is None:
        raise LookupError(f"project {project_id} has no default network")
    return found


async def count(connection: Connection, organization_id: OrganizationId, project_id: ProjectId) -> int:
    """How many networks a project has."""
    scope = {"organization_id": organization_id, "project_id": project_id}
    return await read_one(connection, _COUNT, int, **scope) or 0


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    project_id: ProjectId,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Network]:
    """A project's networks, oldest first; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        Network,
        organization_id=organization_id,
        project_id=project_id,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def members(connection: Connection, network: Network, *, after: int, limit: int) -> list[Member]:
    """The machines in a network by their addresses; `after` is the host number of one."""
    return await read(
        connection,
        _MEMBERS,
        Member,
        organization_id=network.organization_id,
        network_id=network.id,
        after=after,
        limit=limit,
    )


async def hold(connection: Connection, network: Network) -> bool:
    """Keep a network from being deleted until the transaction ends. False when it is deleted already."""
    found = await read_one(
        connection, _HOLD, NetworkId, organization_id=network.organization_id, id=network.id
    )
    return found is not None


async def seize(connection: Connection, network: Network) -> bool:
    """Wait for leases that are being created in a network, and let no other begin. False when it is deleted."""
    found = await read_one(
        connection, _SEIZE, NetworkId, organization_id=network.organization_id, id=network.id
    )
    return found is not None


async def users(connection: Connection, network: Network, *, limit: int) -> list[str]:
    """The names of leases that have not ended and use the network, oldest first."""
    return await read(
        connection, _USED, str, organization_id=network.organization_id, id=network.id, limit=limit
    )


async def set_labels(connection: Connection, network: Network, labels: Mapping[str, str]) -> None:
    values = {"organization_id": network.organization_id, "id": network.id, "labels": document(labels)}
    await write(connection, _LABEL, **values)


async def delete(connection: Connection, network: Network, *, now: datetime) -> None:
    """Delete a network that nobody uses. The caller has seized it."""
    await write(connection, _DELETE, organization_id=network.organization_id, id=network.id, now=now)
