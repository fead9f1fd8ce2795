"""Tells the hosts of clusters' servers which SSH authorities to trust, whenever those have changed.

An operator gives a host the authorities of the day when it is added. It is told here for the first time soon after, and
again in each step of a rotation, as machines are (`loops/machines/trust_ssh_authorities.py`). A host that cannot be
reached is tried again, and holds up the rotation for a day at most.
"""

from datetime import timedelta

from control_plane.db import server_hosts
from control_plane.domain.cluster import ServerHost
from control_plane.domain.ssh_authority import fingerprint
from data_plane.access.login import trust
from data_plane.access.port import AccessError, NotCertified
from reconciler.loop import Loop, Report, each
from reconciler.server_hosts import target
from reconciler.worlds.clusters import ClusterWorld

NAME = "trust_server_hosts"
HOSTS_PER_ACTIVATION_MAX = 16
AGAIN = timedelta(seconds=60)
"""When a host is tried again that could not be told, or whose worker died. Longer than the step may take."""


async def activate(world: ClusterWorld) -> Report:
    now = world.now()
    trusted = fingerprint(await world.ssh_authorities.trusted())
    async with world.db.transaction() as connection:
        behind = await server_hosts.take_behind(
            connection, trusted, now=now, again=now + AGAIN, limit=HOSTS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(behind), more=len(behind) == HOSTS_PER_ACTIVATION_MAX)
    await each(behind, lambda host: _tell(world, host, report), report)
    return report


async def _tell(world: ClusterWorld, host: ServerHost, report: Report) -> None:
    try:
        async with world.access.connect(target(host)) as session:
            # Read when we are logged in: what was read before a login that took its time may be outdated.
            trusted = await world.ssh_authorities.trusted()
            await trust(session, trusted)
    except AccessError as error:
        found = report.errors if isinstance(error, NotCertified) else report.notes
        found.append(f"{host.name}: {type(error).__name__}: {error}")
        return
    async with world.db.statement() as connection:
        report.count(await server_hosts.told(connection, host.name, fingerprint(trusted)))


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("rotate_ssh_authorities",))
