"""The world of loops of clusters: their servers, the hosts of these, and their API servers."""

from dataclasses import dataclass

from data_plane.access.port import Access
from data_plane.cluster.agents import Agents
from data_plane.cluster.clusters import Clusters
from data_plane.cluster.objects.device_plugin import DevicePlugin
from data_plane.cluster.servers import Servers
from data_plane.mesh.members import Members
from data_plane.mesh.port import Hub
from reconciler.ssh_authorities import SshAuthorities
from reconciler.worlds.secrets import SecretWorld


@dataclass(frozen=True, kw_only=True)
class ClusterWorld(SecretWorld):
    access: Access
    ssh_authorities: SshAuthorities
    servers: Servers
    kubernetes: Clusters
    """The API servers of clusters."""
    agents: Agents
    """K3s agents on rented machines."""
    members: Members
    """The tunnels of servers and nodes."""
    hub: Hub
    """Where nodes meet that are behind NAT."""
    device_plugin: DevicePlugin | None = None
    """What makes GPUs allocatable in clusters; None when nodes are opened without that."""
    accept_emulated: bool = False
    """Whether a node may have less than was sold, as machines with emulated GPUs do. Never in production."""
