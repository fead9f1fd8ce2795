"""Takes each step of a rotation of the SSH authority when all machines, server hosts and the hub are ready for it.

An operator begins a rotation: `python -m reconciler ssh-authority rotate`. The next authority signs when every machine
trusts it, and the one before is removed, with its private key, when its last certificate has ended. This loop also
tells the hub which authorities to trust, again and again, because what it was told is stored nowhere. The hub is no
machine, so trust_ssh_authorities does not tell it.
"""

from datetime import datetime, timedelta

from control_plane.db import secrets, ssh_authorities
from control_plane.db.connection import Connection
from control_plane.domain.ssh_authority import (
    TRUSTED,
    Due,
    SshAuthorityState,
    due,
    fingerprint,
)
from data_plane.access.port import AccessError
from reconciler.loop import Loop, Report
from reconciler.worlds.mesh import MeshWorld

NAME = "rotate_ssh_authorities"


async def activate(world: MeshWorld) -> Report:
    report = Report()
    await _tell_hub(world, report)
    opened = {authority.public_key for authority in await world.ssh_authorities.usable()}
    async with world.db.transaction() as connection:
        await ssh_authorities.lock(connection)
        live = await ssh_authorities.live(connection)
        if not live:  # Machines are simulated, without a key manager.
            return report
        now = world.now()
        trust = fingerprint(each.public_key for each in live if each.state in TRUSTED)
        behind = await ssh_authorities.count_behind(connection, trust)
        # Other processes may have taken steps since the hub was told, so what it was told is compared with these rows.
        hub_behind = not world.hub_trust.believed(trust, now)
        step = due(live, machines_behind=behind > 0, hub_behind=hub_behind, now=now)
        if step is None:
            pass
        elif step.state is SshAuthorityState.SIGNING and step.authority.public_key not in opened:
            report.errors.append("The next SSH authority does not sign yet: its key cannot be opened now.")
        else:
            await _take(connection, step, now)
            report.acted_on += 1
    report.looked_at = len(live)
    if behind:
        report.notes.append(
            f"{behind} machines and server hosts trust other SSH authorities than they should."
        )
    return report


async def _tell_hub(world: MeshWorld, report: Report) -> None:
    now = world.now()
    if world.hub_trust.believed(fingerprint(await world.ssh_authorities.trusted()), now):
        return
    try:
        told = await world.hub.trust(world.ssh_authorities.trusted)
    except AccessError as error:
        report.errors.append(f"the hub was not told: {type(error).__name__}: {error}")
        return
    world.hub_trust.told, world.hub_trust.at = fingerprint(told), now


async def _take(connection: Connection, step: Due, now: datetime) -> None:
    authority = step.authority
    if step.state is SshAuthorityState.SIGNING:
        for each in await ssh_authorities.live(connection):
            if each.state is SshAuthorityState.SIGNING:
                await ssh_authorities.move(connection, each, SshAuthorityState.RETIRED, now=now)
    await ssh_authorities.move(connection, authority, step.state, now=now)
    if step.state is SshAuthorityState.REMOVED and authority.secret_id is not None:
        await secrets.delete(connection, authority.secret_id)


LOOP = Loop(NAME, timedelta(seconds=5), activate, wakes=("trust_ssh_authorities", "trust_server_hosts"))
