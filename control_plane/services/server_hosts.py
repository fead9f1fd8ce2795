"""Hosts of ours for the servers of clusters, which operators add and remove."""

from collections.abc import Sequence

from control_plane.db import server_hosts
from control_plane.db.connection import Connection
from control_plane.domain.cluster import ServerHost
from control_plane.domain.ids import OrganizationId, ServerHostName
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.ssh_public_key import InvalidSshKeyError, parse
from control_plane.world import World


async def every(world: World, platform: OrganizationId) -> Sequence[ServerHost]:
    """All hosts, in order of name. `platform`: the operators' organization."""
    async with world.db.reading(platform) as connection:
        return await server_hosts.every(connection)


async def add(
    connection: Connection,
    world: World,
    *,
    name: str,
    region: str,
    address: str,
    ssh_port: int,
    host_key: str,
    outside: str | None,
) -> ServerHost | Refused:
    """Add a host. Nothing is installed there before a cluster takes it."""
    try:
        key = parse(host_key)
    except InvalidSshKeyError as error:
        return Refused(RefusalCode.HOST_KEY_INVALID, str(error))
    host = ServerHost(
        name=ServerHostName(name),
        region=region,
        address=address,
        ssh_port=ssh_port,
        host_key=key.line,
        outside=outside or address,
        cluster_id=None,
        cluster_name=None,
        added_at=world.now(),
    )
    if not await server_hosts.insert(connection, host):
        return Refused(RefusalCode.NAME_TAKEN, f"There is a server host called {name!r} already.")
    return host


async def remove(world: World, platform: OrganizationId, name: str) -> Refused | None:
    """Forget a host that serves no cluster. What an operator installed there stays."""
    async with world.db.transaction(platform) as connection:
        host = await server_hosts.lock(connection, ServerHostName(name))
        if host is None:
            return Refused(RefusalCode.NOT_FOUND, f"There is no server host {name!r}.")
        if host.cluster_id is not None:
            why = f"The server of a cluster is on {name!r}; delete the cluster, and wait until it is gone."
            return Refused(RefusalCode.SERVER_HOST_IN_USE, why)
        await server_hosts.delete(connection, host.name)
        return None
