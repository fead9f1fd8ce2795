"""Queries for the business metrics of clusters: their states, node pools, nodes, tunnels and kubeconfigs."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.cluster import LIVE, ClusterState
from control_plane.domain.node import IN_CLUSTER, NodeState
from control_plane.domain.node_health import GPUS_MISSING
from control_plane.domain.node_pool import LIVE as LIVE_POOL
from control_plane.domain.node_pool import NodePoolState


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """A cluster that is not gone. Times are None when what they tell does not last."""

    name: str
    state: ClusterState
    failing_since: datetime | None
    joining: int
    ready: int
    leaving: int
    unready: int
    """How many of the nodes that are ready in our books are not ready in the cluster."""
    without_gpus: int
    """On how many of them pods cannot have all GPUs that were sold."""
    tunnels_read_at: datetime | None
    """When the tunnels of the member were last read that was read the longest ago."""
    handshake_at: datetime | None
    """When the tunnel with the server last had a handshake of the open node whose last one is the longest ago."""
    kubeconfigs: int
    """How many open something."""
    kubeconfig_wanted_at: datetime | None
    """When the first one was asked for that is not issued yet."""


@dataclass(frozen=True, slots=True)
class PoolCount:
    state: NodePoolState
    pools: int
    waiting_since: datetime | None
    """Since when the first of them lacks a node that is not admitted."""


_CLUSTERS = text(f"""
SELECT c.name, c.state, c.failing_since, n.joining, n.ready, n.leaving, n.unready, n.without_gpus,
       least(n.read_at, CASE WHEN c.state = '{ClusterState.READY}' THEN o.read_at END) AS tunnels_read_at,
       n.handshake_at, k.kubeconfigs, k.kubeconfig_wanted_at
FROM clusters c LEFT JOIN overlays o ON o.cluster_id = c.id
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE state = '{NodeState.JOINING}') AS joining,
         count(*) FILTER (WHERE state = '{NodeState.READY}') AS ready,
         count(*) FILTER (WHERE state = '{NodeState.LEAVING}') AS leaving,
         count(*) FILTER (WHERE state = '{NodeState.READY}' AND unready_since IS NOT NULL) AS unready,
         count(*) FILTER (WHERE state = '{NodeState.READY}'
           AND reported -> 'conditions' ->> '{GPUS_MISSING}' = 'True') AS without_gpus,
         min(peers_read_at) FILTER (WHERE state = '{NodeState.READY}' AND removed_at IS NULL) AS read_at,
         min(handshake_at) FILTER (WHERE state = '{NodeState.READY}' AND removed_at IS NULL) AS handshake_at
  FROM nodes WHERE cluster_id = c.id AND {among("state", IN_CLUSTER)}
) n
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE issued_at IS NOT NULL AND revoked_at IS NULL AND expires_at > :now) AS kubeconfigs,
         min(requested_at) FILTER (WHERE issued_at IS NULL AND revoked_at IS NULL AND refused_at IS NULL)
           AS kubeconfig_wanted_at
  FROM kubeconfigs WHERE cluster_id = c.id AND removed_at IS NULL
) k
WHERE {among("c.state", LIVE)} ORDER BY c.name
""")
_POOLS = text(f"""
SELECT state, count(*) AS pools, min(waiting_since) AS waiting_since
FROM node_pools WHERE {among("state", LIVE_POOL)} GROUP BY state
""")


async def clusters(connection: Connection, *, now: datetime) -> list[ClusterFigures]:
    return await read(connection, _CLUSTERS, ClusterFigures, now=now)


async def node_pools(connection: Connection) -> list[PoolCount]:
    """A state without node pools has no row."""
    return await read(connection, _POOLS, PoolCount)
