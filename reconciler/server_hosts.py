"""What the loops of clusters share: how we log in to server hosts, and what becomes of a try that failed."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

from control_plane.db import clusters
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster, ClusterState, ServerHost
from data_plane.access.port import Target
from reconciler.loop import Report, each
from reconciler.worlds.clusters import ClusterWorld

CLUSTERS_PER_ACTIVATION_MAX = 8
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=10), timedelta(minutes=5)
SERVER_PRINCIPAL = "splitplane-server"
"""What our certificate names when we log in to a server host, which is no machine and has no launch key."""


async def each_due(
    world: ClusterWorld,
    state: ClusterState,
    held_for: timedelta,
    act: Callable[[ClusterWorld, Cluster, UUID, Report], Awaitable[None]],
) -> Report:
    """Hold the clusters that are due in this state, and act on each. `act` gets the token of the hold."""
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await clusters.take(
            connection, state, token=token, now=now, until=now + held_for, limit=CLUSTERS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == CLUSTERS_PER_ACTIVATION_MAX)
    await each(due, lambda cluster: act(world, cluster, token, report), report)
    return report


def target(host: ServerHost) -> Target:
    """How we log in to a server host."""
    return Target(host.address, host.ssh_port, host.host_key, SERVER_PRINCIPAL)


async def fail(world: ClusterWorld, cluster: Cluster, error: Exception, token: UUID, report: Report) -> None:
    """Try again later. Our own host failed, so no customer's machine is to blame, and nobody gives the cluster up."""
    why = f"{type(error).__name__}: {error}"
    report.errors.append(f"{cluster.name}: {why}")
    now = world.now()
    due_at = now + delay(cluster.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        await clusters.fail(connection, cluster.id, why, token=token, now=now, due_at=due_at)
