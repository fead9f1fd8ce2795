"""Firewall rules as customers make them."""

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.firewall import FirewallRule
from control_plane.domain.lease import Lease
from control_plane.services import firewalls
from tests.support.stage import Stage

SOURCES = ("203.0.113.0/24",)


async def opened(stage: Stage, lease: Lease, port: int) -> FirewallRule:
    """A rule that opens a TCP port of the machine of a lease to `SOURCES`."""
    async with stage.db.transaction(lease.organization_id) as connection:
        made = await firewalls.add(
            connection,
            stage.api,
            lease.organization_id,
            lease.id,
            protocol="tcp",
            ports=str(port),
            sources=SOURCES,
            reach=EVERYWHERE,
        )
    assert isinstance(made, FirewallRule), made
    return made
