"""The way to the API servers of our clusters, each behind `port.KubernetesPort`."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from data_plane.cluster.lightkube_port import LightkubePort
from data_plane.cluster.port import Cluster, KubernetesPort, Unauthorized


class Clusters(Protocol):
    def connect(self, cluster: Cluster) -> AbstractAsyncContextManager[KubernetesPort]:
        """A connection, for as long as the context lasts. Nothing is sent before the first call.

        Raises Unauthorized when our own credential cannot be used.
        """
        ...


class LightkubeClusters:
    @asynccontextmanager
    async def connect(self, cluster: Cluster) -> AsyncIterator[KubernetesPort]:
        try:
            port = LightkubePort(cluster)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
            raise Unauthorized(f"the cluster's certificates cannot be used: {type(error).__name__}") from None
        try:
            yield port
        finally:
            await port.aclose()
