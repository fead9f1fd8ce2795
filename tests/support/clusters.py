"""Clusters on a stage, with simulated servers."""

from control_plane.db import ssh_authorities
from control_plane.domain.cluster import Cluster
from control_plane.domain.ids import OrganizationId
from control_plane.services import clusters, server_hosts
from tests.support.stage import Stage

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
REGION = "eu-central-1"


async def created(stage: Stage, name: str) -> Cluster:
    """A shared cluster on a host of its own. There has to be an organization of operators."""
    async with stage.db.transaction() as connection:
        platform = await ssh_authorities.owner(connection)
        assert platform is not None
        await server_hosts.add(
            connection,
            stage.api,
            name=f"host of {name}",
            region=REGION,
            address=f"{name}.internal",
            ssh_port=22,
            host_key=HOST_KEY,
            outside=None,
        )
        made = await clusters.create(
            connection,
            stage.api,
            name=name,
            region=REGION,
            dedicated_to=None,
            platform=OrganizationId(platform),
        )
    assert isinstance(made, Cluster), made
    return made


async def deleted(stage: Stage, name: str) -> None:
    async with stage.db.transaction() as connection:
        assert isinstance(await clusters.delete(connection, stage.api, name), Cluster)
