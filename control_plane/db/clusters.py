"""Queries on Kubernetes clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.cluster import LIVE, Cluster, ClusterEvent, ClusterState
from control_plane.domain.ids import ClusterId, OrganizationId, SecretId
from control_plane.domain.node import IN_CLUSTER
from control_plane.domain.node_pool import LIVE as LIVE_POOLS
from control_plane.domain.transitions import Moved


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """Where the credentials of a cluster are sealed; None before they are made, and after the end."""

    token_secret_id: SecretId | None
    """The credential with which servers join."""
    admin_secret_id: SecretId | None
    """The administrator's kubeconfig."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the server of a cluster told when it was built."""

    version: str
    endpoint: str
    ca_pem: str


_LOCK_PLAN = text("SELECT pg_advisory_xact_lock(hashtext('splitplane overlays'))")
# The lowest range that no living cluster has. Without one nothing is stored.
_INSERT = text(f"""
INSERT INTO clusters (id, organization_id, name, region, state, overlay, due_at, created_at)
SELECT :id, :organization_id, :name, :region, '{ClusterState.BUILDING}', min(free), :now, :now
FROM generate_series(0, :overlays - 1) AS free
WHERE NOT EXISTS (SELECT FROM clusters WHERE overlay = free AND {among("state", LIVE)})
HAVING min(free) IS NOT NULL RETURNING overlay
""")
_COLUMNS = """
id, organization_id, name, region, state, generation, overlay, version, endpoint, ca_pem, tries, failing_since,
coalesce(failing_why, (SELECT 'tunnels: ' || o.failing_why FROM overlays o WHERE o.cluster_id = clusters.id))
  AS failing_why, server_key_asked_at, created_at, ready_at, gone_at"""
# Those that everybody may use, those of the reader, and for the operators' organization all of them.
_FOR_READER = """
(clusters.organization_id IS NULL OR clusters.organization_id = :reader
 OR EXISTS (SELECT FROM organizations o WHERE o.id = :reader AND o.platform))"""
_GET = text(f"SELECT {_COLUMNS} FROM clusters WHERE id = :id")
_SHOW = text(f"SELECT {_COLUMNS} FROM clusters WHERE id = :id AND {_FOR_READER}")
_NAMED = text(f"SELECT {_COLUMNS} FROM clusters WHERE name = :name AND {among('state', LIVE)}")
_SHOW_NAMED = text(
    f"SELECT {_COLUMNS} FROM clusters WHERE name = :name AND {among('state', LIVE)} AND {_FOR_READER}"
)
_ASK_KEY = text(
    "UPDATE clusters SET server_key_asked_at = :now WHERE id = :id AND server_key_asked_at IS NULL"
)
_LOCK = text(f"SELECT {_COLUMNS} FROM clusters WHERE id = :id FOR NO KEY UPDATE")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM clusters
WHERE {among("state", LIVE)} AND {_FOR_READER}
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
# Whoever builds a cluster that is deleted still holds it: nobody dismantles a server that is being installed.
_KEPT = f":after = '{ClusterState.DELETING}'"
_MOVE = text(f"""
UPDATE clusters SET state = :after, generation = generation + 1, due_at = :now, tries = 0, failing_since = NULL,
  failing_why = NULL, work_token = CASE WHEN {_KEPT} THEN work_token END,
  work_until = CASE WHEN {_KEPT} THEN work_until END,
  ready_at = CASE WHEN :after = '{ClusterState.READY}' THEN CAST(:now AS timestamptz) ELSE ready_at END,
  gone_at = CASE WHEN :after = '{ClusterState.GONE}' THEN CAST(:now AS timestamptz) END
WHERE id = :id AND state = :before AND generation = :seen
""")
# A cluster that is being deleted waits until nothing is left of its node pools, their nodes and their relays.
_TAKE = work.take(
    "clusters",
    f"""state = :state AND due_at <= :now AND (state <> '{ClusterState.DELETING}' OR NOT EXISTS (
      SELECT FROM node_pools p WHERE p.cluster_id = clusters.id AND {among("p.state", LIVE_POOLS)}
      UNION ALL SELECT FROM nodes n WHERE n.cluster_id = clusters.id AND {among("n.state", IN_CLUSTER)}
      UNION ALL SELECT FROM relays r WHERE r.cluster_id = clusters.id))""",
    order="due_at, id",
)
_TAKEN = text(f"SELECT {_COLUMNS} FROM clusters WHERE id = ANY(:ids) ORDER BY created_at, id")
_SECRETS = text("SELECT token_secret_id, admin_secret_id FROM clusters WHERE id = :id")
_KEEP_TOKEN = text(
    f"UPDATE clusters SET token_secret_id = :secret_id WHERE id = :id AND token_secret_id IS NULL AND {work.HELD}"
)
_FAIL = text(f"""
UPDATE clusters SET failing_since = coalesce(failing_since, :now), failing_why = :why, tries = tries + 1,
  tried_at = :now, due_at = :due_at, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD}
""")
_STILL_HELD = work.still_held("clusters")
_RENEW = text(f"UPDATE clusters SET work_until = :until WHERE id = ANY(:ids) AND {work.HELD}")
_GIVE_BACK = text(f"UPDATE clusters SET {work.GIVE_BACK} WHERE id = :id AND {work.HELD}")
_KEEP_TOLD = text("""
UPDATE clusters SET admin_secret_id = :admin_secret_id, version = :version, endpoint = :endpoint, ca_pem = :ca_pem
WHERE id = :id
""")
_FORGET_SECRETS = text("UPDATE clusters SET token_secret_id = NULL, admin_secret_id = NULL WHERE id = :id")


async def lock_plan(connection: Connection) -> None:
    """Let no other transaction give out a range of addresses, or a name."""
    await read(connection, _LOCK_PLAN, object)


async def insert(
    connection: Connection,
    *,
    cluster_id: ClusterId,
    organization_id: OrganizationId | None,
    name: str,
    region: str,
    overlays: int,
    now: datetime,
) -> bool:
    """Store a cluster with the lowest free range; False when all below `overlays` are taken.

    The caller holds the plan's lock.
    """
    values = {"id": cluster_id, "organization_id": organization_id, "name": name, "region": region}
    return await read_one(connection, _INSERT, int, **values, overlays=overlays, now=now) is not None


async def get(connection: Connection, cluster_id: ClusterId) -> Cluster | None:
    return await read_one(connection, _GET, Cluster, id=cluster_id)


async def named(connection: Connection, name: str) -> Cluster | None:
    """The living cluster of this name, whoever may use it."""
    return await read_one(connection, _NAMED, Cluster, name=name)


async def show_named(connection: Connection, reader: OrganizationId, name: str) -> Cluster | None:
    """The living cluster of this name, if the organization may use it."""
    return await read_one(connection, _SHOW_NAMED, Cluster, reader=reader, name=name)


async def show(connection: Connection, reader: OrganizationId, cluster_id: ClusterId) -> Cluster | None:
    """A cluster, if the organization may use it."""
    return await read_one(connection, _SHOW, Cluster, reader=reader, id=cluster_id)


async def lock(connection: Connection, cluster_id: ClusterId) -> Cluster | None:
    return await read_one(connection, _LOCK, Cluster, id=cluster_id)


async def page(
    connection: Connection, reader: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> list[Cluster]:
    """Living clusters that the organization may use, oldest first; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        Cluster,
        reader=reader,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def move(
    connection: Connection, cluster: Cluster, moved: Moved[ClusterState, ClusterEvent], *, now: datetime
) -> bool:
    """Move a cluster, and make it due. False when somebody has moved it since it was read."""
    values = {"id": cluster.id, "before": moved.before, "after": moved.after, "seen": cluster.generation}
    return bool(await write(connection, _MOVE, **values, now=now))


# What the reconciler does with them


async def take(
    connection: Connection, state: ClusterState, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[Cluster]:
    """Hold clusters that are due in this state. One that is being deleted is not due before its nodes are gone."""
    ids = await read(connection, _TAKE, UUID, state=state, token=token, now=now, until=until, limit=limit)
    return await read(connection, _TAKEN, Cluster, ids=ids)


async def secrets_of(connection: Connection, cluster_id: ClusterId) -> ClusterSecrets:
    """Raises LookupError for an unknown cluster."""
    found = await read_one(connection, _SECRETS, ClusterSecrets, id=cluster_id)
    if found is None:
        raise LookupError(f"there is no cluster {cluster_id}")
    return found


async def keep_token(
    connection: Connection, cluster_id: ClusterId, secret_id: SecretId, *, token: UUID
) -> bool:
    """Store where a new cluster's credential is sealed. False when it has one, or another worker holds the cluster."""
    return bool(await write(connection, _KEEP_TOKEN, id=cluster_id, secret_id=secret_id, token=token))


async def fail(
    connection: Connection, cluster_id: ClusterId, why: str, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a cluster back after a try that failed, with the reason that operators read."""
    await write(connection, _FAIL, id=cluster_id, why=why, token=token, now=now, due_at=due_at)


async def renew(connection: Connection, ids: Sequence[ClusterId], *, token: UUID, until: datetime) -> bool:
    """Hold clusters for longer. False when this worker holds none of them any more."""
    return bool(await write(connection, _RENEW, ids=ids, token=token, until=until))


async def is_held(connection: Connection, cluster_id: ClusterId, *, token: UUID) -> bool:
    """Lock a cluster if this worker still holds it."""
    return await read_one(connection, _STILL_HELD, ClusterId, id=cluster_id, token=token) is not None


async def give_back(connection: Connection, cluster_id: ClusterId, *, token: UUID) -> None:
    """Hold a cluster no longer. When it is due is not changed."""
    await write(connection, _GIVE_BACK, id=cluster_id, token=token)


async def keep_told(
    connection: Connection, cluster_id: ClusterId, told: Built, admin: SecretId | None
) -> None:
    """Store what the server of a cluster told, and where its administrator's credential is sealed."""
    await write(
        connection,
        _KEEP_TOLD,
        id=cluster_id,
        admin_secret_id=admin,
        version=told.version,
        endpoint=told.endpoint,
        ca_pem=told.ca_pem,
    )


async def forget_secrets(connection: Connection, cluster_id: ClusterId) -> None:
    """The caller deletes the secrets themselves."""
    await write(connection, _FORGET_SECRETS, id=cluster_id)


async def ask_for_server_key(connection: Connection, cluster_id: ClusterId, *, now: datetime) -> None:
    """Have the WireGuard key of a cluster's server changed at once, unless that is asked for already."""
    await write(connection, _ASK_KEY, id=cluster_id, now=now)
