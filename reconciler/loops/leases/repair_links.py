"""Tells customers' machines the hub's key and endpoint again, when the hub has others than they joined with.

A machine learns both when it joins its private network. A hub that was built anew without its files has other keys, and
one that moved has another endpoint: its machines would be cut off for good. `sync_hub` reads every few minutes what the
hub says of itself. Where a machine has reached the hub with something else last, this loop logs in at the machine's
public address, joins it once more, and has it prove that the hub answers through the tunnel. A machine that does not
take it is tried again, at first after seconds and later every five minutes, for as long as its customer has it; nothing
else happens to it.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import network_links
from control_plane.db.network_links import Broken
from control_plane.domain.backoff import delay
from control_plane.domain.ids import AccountName
from control_plane.domain.network import range_of
from data_plane.access.port import AccessError, NotCertified, Target
from data_plane.mesh.machine import join_mesh
from data_plane.mesh.port import HubIdentity, Network, link
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.leases import LeaseWorld
from tracing.tracer import Kind

NAME = "repair_links"
MACHINES_PER_ACTIVATION_MAX = 16
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=10), timedelta(minutes=5)
HELD_FOR = timedelta(seconds=90)
"""Longer than a login and the step take."""


async def activate(world: LeaseWorld, account: AccountName) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        broken = await network_links.take_broken(
            connection, account, token=token, now=now, until=now + HELD_FOR, limit=MACHINES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(broken), more=len(broken) == MACHINES_PER_ACTIVATION_MAX)
    await each(broken, lambda found: _repair(world, found, token, report), report)
    return report


async def _repair(world: LeaseWorld, found: Broken, token: UUID, report: Report) -> None:
    if found.address is None or found.host_key is None:
        raise ValueError(f"{found.launch_key} has a customer without an address or a host key")
    target = Target(found.address, found.ssh_port, found.host_key, found.launch_key)
    identity = HubIdentity(found.public_key, found.endpoint)
    try:
        with world.tracer.span("machine session", Kind.CLIENT):
            async with world.access.connect(target) as session:
                await join_mesh(
                    session, link(Network(found.number, range_of(found.block)), identity, found.inside)
                )
    except AccessError as error:
        (report.errors if isinstance(error, NotCertified) else report.notes).append(
            f"{found.launch_key} knows another hub: {type(error).__name__}: {error}"
        )
        async with world.db.statement() as connection:
            now = world.now()
            due_at = now + delay(found.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
            await network_links.failed(connection, found, token=token, now=now, due_at=due_at)
        return
    async with world.db.statement() as connection:
        repaired = await network_links.repaired(connection, found, token=token, now=world.now())
    if repaired:
        report.acted_on += 1
        report.notes.append(f"{found.launch_key} has the hub's new key or endpoint, and reaches it")


LOOP = AccountLoop(NAME, timedelta(seconds=30), activate, lasts=HELD_FOR)
