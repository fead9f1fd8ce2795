"""The port to hosts of ours that run the K3s servers of clusters, and its laws.

1. Installing is repeated until it succeeds: what a run finds done, it leaves as it is. It sends large files for a
   bounded time, and raises StillSending when they have not all arrived.
2. A host serves one cluster. Dismantling leaves nothing of it there, keys and data included.
3. Only AccessError is raised, and no error text contains a credential.
4. A host on which a call with a higher fence was made refuses a lower one, also once it was dismantled: a worker that
   stalled neither installs the server of a cluster that is gone nor removes that of the next one. Two calls take turns.
"""

from dataclasses import dataclass, field
from typing import Protocol

from data_plane.access.port import Target
from data_plane.mesh.port import OverlayPlace


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """What the server of a cluster shall be."""

    host: Target
    outside: str
    """The address at which nodes and customers reach the host."""
    place: OverlayPlace
    """Where it is in the overlay of its cluster."""
    name: str
    """The name in the server's certificate by which everybody recognizes it."""
    services: str
    """The range of the addresses of services."""
    token: str = field(repr=False)
    """With it servers join, and agents prove nothing: they get credentials of their own."""
    fence: int


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server that runs tells of itself."""

    version: str
    """The version of Kubernetes, such as `v1.36.3+k3s1`."""
    endpoint: str
    """The URL of the API server."""
    ca_pem: str
    """The certificate authority of the API server."""
    admin_kubeconfig: str = field(repr=False)
    """The administrator's credential. It is sealed at once, and no customer ever gets it."""


class Servers(Protocol):
    """Installs and dismantles K3s servers. Raises AccessError."""

    async def install(self, order: ServerOrder) -> ServerIdentity: ...

    async def dismantle(self, host: Target, *, fence: int) -> None:
        """Does nothing where no server is."""
        ...
