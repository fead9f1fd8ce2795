"""Queries on the hosts of ours that servers of clusters run on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.cluster import ServerHost
from control_plane.domain.ids import ClusterId, ServerHostName

_COLUMNS = """
h.name, h.region, h.address, h.ssh_port, h.host_key, h.outside, h.cluster_id, c.name AS cluster_name, h.added_at
FROM server_hosts h LEFT JOIN clusters c ON c.id = h.cluster_id"""
_INSERT = text("""
INSERT INTO server_hosts (name, region, address, ssh_port, host_key, outside, cluster_id, added_at)
VALUES (:name, :region, :address, :ssh_port, :host_key, :outside, :cluster_id, :added_at)
ON CONFLICT (name) DO NOTHING
""")
_EVERY = text(f"SELECT {_COLUMNS} ORDER BY h.name")
_OF_CLUSTER = text(f"SELECT {_COLUMNS} WHERE h.cluster_id = :cluster_id ORDER BY h.name")
_LOCK = text(f"SELECT {_COLUMNS} WHERE h.name = :name FOR UPDATE OF h")
_DELETE = text("DELETE FROM server_hosts WHERE name = :name AND cluster_id IS NULL")
# Whoever creates a cluster at the same moment takes another host, or none.
# It waits for a loop that writes to the host: a host that is skipped would be refused as one in use.
_TAKE = text("""
UPDATE server_hosts SET cluster_id = :cluster_id WHERE name = (
  SELECT name FROM server_hosts WHERE region = :region AND cluster_id IS NULL
  ORDER BY added_at, name LIMIT 1 FOR UPDATE)
RETURNING name
""")
_NEXT_FENCES = text("""
UPDATE server_hosts SET fence = greatest(fence + 1, :milliseconds) WHERE cluster_id = ANY(:ids)
RETURNING cluster_id, fence
""")
_FREE = text("UPDATE server_hosts SET cluster_id = NULL WHERE cluster_id = :cluster_id")

# A host was never told (null) until the first time after it was added.
_TAKE_BEHIND = text(f"""
WITH behind AS (
  UPDATE server_hosts SET ssh_trust_due_at = :again WHERE name = ANY(ARRAY(
    SELECT name FROM server_hosts
    WHERE ssh_trust IS DISTINCT FROM :trust AND (ssh_trust_due_at IS NULL OR ssh_trust_due_at <= :now)
    ORDER BY ssh_trust_due_at NULLS FIRST, name LIMIT :limit FOR UPDATE SKIP LOCKED
  )) RETURNING name)
SELECT {_COLUMNS} JOIN behind b ON b.name = h.name ORDER BY h.name
""")
_TOLD = text("UPDATE server_hosts SET ssh_trust = :trust, ssh_trust_due_at = NULL WHERE name = :name")


async def take_behind(
    connection: Connection, trust: str, *, now: datetime, again: datetime, limit: int
) -> list[ServerHost]:
    """Hosts that trust other SSH authorities than those with this fingerprint. Nobody else takes them until `again`."""
    return await read(connection, _TAKE_BEHIND, ServerHost, trust=trust, now=now, again=again, limit=limit)


async def told(connection: Connection, name: ServerHostName, trust: str) -> bool:
    """Store which authorities a host was told to trust. False when it was removed meanwhile."""
    return bool(await write(connection, _TOLD, name=name, trust=trust))


async def insert(connection: Connection, host: ServerHost) -> bool:
    """Store a host. False when there is one of this name."""
    values = {
        "name": host.name,
        "region": host.region,
        "address": host.address,
        "ssh_port": host.ssh_port,
        "host_key": host.host_key,
        "outside": host.outside,
        "cluster_id": host.cluster_id,
        "added_at": host.added_at,
    }
    return bool(await write(connection, _INSERT, **values))


async def every(connection: Connection) -> list[ServerHost]:
    """All hosts, in order of name. There are few: one for each cluster."""
    return await read(connection, _EVERY, ServerHost)


async def of_cluster(connection: Connection, cluster_id: ClusterId) -> list[ServerHost]:
    return await read(connection, _OF_CLUSTER, ServerHost, cluster_id=cluster_id)


async def lock(connection: Connection, name: ServerHostName) -> ServerHost | None:
    """Lock a host, so that no cluster takes it."""
    return await read_one(connection, _LOCK, ServerHost, name=name)


async def delete(connection: Connection, name: ServerHostName) -> bool:
    """Forget a host that serves no cluster. False when there is none such."""
    return bool(await write(connection, _DELETE, name=name))


async def take(connection: Connection, cluster_id: ClusterId, *, region: str) -> ServerHostName | None:
    """Give a cluster the free host of a region that was added first; None when none is free."""
    return await read_one(connection, _TAKE, ServerHostName, cluster_id=cluster_id, region=region)


@dataclass(frozen=True, slots=True)
class Fence:
    cluster_id: ClusterId
    fence: int


async def next_fences(
    connection: Connection, ids: Sequence[ClusterId], *, now: datetime
) -> dict[ClusterId, int]:
    """A fence for the host of each cluster, higher than all before, whatever the clock was then."""
    milliseconds = int(now.timestamp() * 1000)
    found = await read(connection, _NEXT_FENCES, Fence, ids=ids, milliseconds=milliseconds)
    return {each.cluster_id: each.fence for each in found}


async def free(connection: Connection, cluster_id: ClusterId) -> None:
    """Nothing of the cluster is left on its hosts: another cluster may take them."""
    await write(connection, _FREE, cluster_id=cluster_id)
