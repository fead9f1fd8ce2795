"""The world of loops that build and dismantle clusters."""

from dataclasses import dataclass

from data_plane.cluster.servers import Servers
from reconciler.worlds.secrets import SecretWorld


@dataclass(frozen=True, kw_only=True)
class ClusterWorld(SecretWorld):
    servers: Servers
