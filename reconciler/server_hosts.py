"""What the loops of clusters share: how we reach server hosts and API servers, and what a failed try leads to."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from control_plane.db import clusters, server_hosts
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster, ClusterState, ServerHost, server_name
from data_plane.access.port import Target
from data_plane.cluster import port
from data_plane.cluster.admin import credential_of
from data_plane.cluster.port import ClientCertificate, KubernetesPort, Unauthorized
from reconciler import cluster_secrets
from reconciler.loop import Report, each
from reconciler.renewal import renewed
from reconciler.worlds.clusters import ClusterWorld

CLUSTERS_PER_ACTIVATION_MAX = 8
HELD_FOR = timedelta(minutes=1)
"""How long a cluster waits when the process of its worker is gone."""
LASTS = timedelta(minutes=12)
"""Of an activation: sending K3s to a host, and waiting there for a worker whose process is gone."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=10), timedelta(minutes=5)
SERVER_PRINCIPAL = "splitplane-server"
"""What our certificate names when we log in to a server host, which is no machine and has no launch key."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A worker's turn at a cluster that it holds."""

    token: UUID
    fence: int
    """Of the cluster's host: higher than that of a worker that held the cluster before and stalled."""


async def each_due(
    world: ClusterWorld,
    state: ClusterState,
    act: Callable[[ClusterWorld, Cluster, Turn, Report], Awaitable[None]],
) -> Report:
    """Hold the clusters that are due in this state while `act` runs for each of them."""
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await clusters.take(
            connection,
            state,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=CLUSTERS_PER_ACTIVATION_MAX,
        )
        fences = await server_hosts.next_fences(connection, [cluster.id for cluster in due], now=now)
    report = Report(looked_at=len(due), more=len(due) == CLUSTERS_PER_ACTIVATION_MAX)

    async def renew() -> bool:
        async with world.db.statement() as connection:
            ids = [cluster.id for cluster in due]
            return await clusters.renew(connection, ids, token=token, until=world.now() + HELD_FOR)

    async with renewed(renew, world.sleep):
        await each(due, lambda cluster: act(world, cluster, Turn(token, fences[cluster.id]), report), report)
    return report


def target(host: ServerHost) -> Target:
    """How we log in to a server host."""
    return Target(host.address, host.ssh_port, host.host_key, SERVER_PRINCIPAL)


@asynccontextmanager
async def connected(world: ClusterWorld, cluster: Cluster) -> AsyncIterator[KubernetesPort]:
    """The API server of a cluster that was built.

    Call it with no transaction open. Raises ClusterError, and KeyManagerError when the certificate cannot be opened.
    """
    if cluster.endpoint is None or cluster.ca_pem is None:
        raise Unauthorized(f"the cluster {cluster.name} has no API server yet")
    credential = await _credential(world, cluster)
    reached = port.Cluster(cluster.endpoint, cluster.ca_pem, credential, server_name(cluster.id))
    async with world.kubernetes.connect(reached) as opened:
        yield opened


async def _credential(world: ClusterWorld, cluster: Cluster) -> ClientCertificate:
    async with world.db.reading() as connection:
        stored = (await clusters.secrets_of(connection, cluster.id)).admin_secret_id
    if stored is not None:
        return credential_of(await cluster_secrets.opened(world, stored))
    if world.keys is None:
        return ClientCertificate("", "")  # Nothing is sealed where clusters are simulated.
    raise Unauthorized(f"the cluster {cluster.name} has no administrator's certificate any more")


async def fail(world: ClusterWorld, cluster: Cluster, error: Exception, token: UUID, report: Report) -> None:
    """Try again later. Our own host failed, so no customer's machine is to blame, and nobody gives the cluster up."""
    why = f"{type(error).__name__}: {error}"
    report.errors.append(f"{cluster.name}: {why}")
    now = world.now()
    due_at = now + delay(cluster.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        await clusters.fail(connection, cluster.id, why, token=token, now=now, due_at=due_at)
