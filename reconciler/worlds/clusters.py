"""The world of loops of clusters: their servers, and their API servers."""

from dataclasses import dataclass

from data_plane.cluster.clusters import Clusters
from data_plane.cluster.servers import Servers
from reconciler.worlds.secrets import SecretWorld


@dataclass(frozen=True, kw_only=True)
class ClusterWorld(SecretWorld):
    servers: Servers
    kubernetes: Clusters
    """The API servers of clusters."""
