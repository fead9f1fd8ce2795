"""Bootstrap tokens in a cluster: one for each machine that joins, deleted once it has."""

from datetime import datetime, timedelta

from data_plane.cluster.objects.bootstrap_token import NAMESPACE, BootstrapToken, bootstrap_secret
from data_plane.cluster.port import KubernetesPort, NotFound
from data_plane.cluster.resource import SECRET


async def admit_machine(
    port: KubernetesPort, token: BootstrapToken, node: str, *, now: datetime, life: timedelta
) -> None:
    """Make the token valid. A second call prolongs it."""
    await port.apply(bootstrap_secret(token, node, now, life), take_over=True)


async def withdraw(port: KubernetesPort, token_id: str) -> None:
    """A node that has joined does not need its token again, not even to restart."""
    try:
        await port.delete(SECRET, f"bootstrap-token-{token_id}", NAMESPACE)
    except NotFound:
        return
