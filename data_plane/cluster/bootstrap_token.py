"""Bootstrap tokens in a cluster: one for each machine that joins, deleted once it has.

K3s takes a token for any name, so the cluster is told besides which Node is expected.
"""

from contextlib import suppress
from datetime import datetime, timedelta

from data_plane.cluster.objects import expected_nodes as expected
from data_plane.cluster.objects import node_addresses
from data_plane.cluster.objects.bootstrap_token import NAMESPACE, BootstrapToken, bootstrap_secret
from data_plane.cluster.port import KubernetesPort, NotFound
from data_plane.cluster.resource import CONFIG_MAP, SECRET


async def admit_machine(
    port: KubernetesPort, token: BootstrapToken, node: str, address: str, *, now: datetime, life: timedelta
) -> None:
    """Make the token valid, and let a Node of this name register, with no address but `address`, which is the machine's
    in the overlay. A second call prolongs it.
    """
    await port.apply(node_addresses.node_addresses())
    known = node_addresses.with_address(node, address)
    await port.patch(CONFIG_MAP, node_addresses.NAME, known, node_addresses.NAMESPACE)
    await port.apply(expected.expected_nodes())
    await port.patch(CONFIG_MAP, expected.NAME, expected.expecting(node), expected.NAMESPACE)
    await port.apply(bootstrap_secret(token, node, now, life), take_over=True)


async def withdraw(port: KubernetesPort, token_id: str, node: str) -> None:
    """A node that has joined needs its token never again, not even to restart, and does not register again."""
    with suppress(NotFound):
        await port.delete(SECRET, f"bootstrap-token-{token_id}", NAMESPACE)
    await expect_no_longer(port, node)


async def expect_no_longer(port: KubernetesPort, node: str) -> None:
    """No Node of this name registers any more."""
    with suppress(NotFound):
        await port.patch(CONFIG_MAP, expected.NAME, expected.no_longer_expecting(node), expected.NAMESPACE)
