"""A stage whose machines trust an SSH authority that is stored, as in production, and can be replaced."""

import dataclasses

from sqlalchemy import text

from control_plane.domain.lease import Lease
from control_plane.vault.unsealing.port import KeyManager
from control_plane.world import uuid7
from reconciler.ssh_authorities import StoredAuthorities
from reconciler.ssh_authority_command import SshAuthorityCommand
from tests.support.keys import AFTER
from tests.support.rows import rows
from tests.support.stage import Stage

_STATES = text("SELECT state FROM ssh_authorities ORDER BY made_at, id")


@dataclasses.dataclass
class Cast:
    stage: Stage
    authorities: StoredAuthorities
    command: SshAuthorityCommand
    leases: list[Lease]
    addresses: list[str]

    async def states(self) -> list[str]:
        async with self.stage.db.reading() as connection:
            return [row.state for row in await rows(connection, _STATES)]

    async def turn(self) -> None:
        for loop in ("rotate_ssh_authorities", "trust_ssh_authorities", "trust_server_hosts"):
            await self.stage.run(loop)
        self.stage.clock.advance(5)

    def trusted(self) -> list[set[str]]:
        """By each machine, and by the hub."""
        machines = [self.stage.access.machine(address).authorities for address in self.addresses]
        return [set(known) for known in (*machines, self.stage.hub.authorities)]

    def restart(self, keys: KeyManager) -> None:
        """A reconciler that starts now, with another key manager."""
        self.authorities = StoredAuthorities(self.stage.db, self.stage.clock.now, uuid7, keys)
        self.stage.world = dataclasses.replace(self.stage.world, ssh_authorities=self.authorities)


async def store_authorities(stage: Stage) -> SshAuthorityCommand:
    """From now on machines trust a stored authority, which the command replaces."""
    await stage.operators()
    authorities = StoredAuthorities(stage.db, stage.clock.now, uuid7, AFTER)
    stage.world = dataclasses.replace(stage.world, ssh_authorities=authorities)
    return SshAuthorityCommand(stage.db, stage.clock.now, uuid7, AFTER)


async def cast_of(stage: Stage, leases: int = 2) -> Cast:
    """The stage with so many ready leases."""
    command = await store_authorities(stage)
    authorities = stage.world.ssh_authorities
    assert isinstance(authorities, StoredAuthorities)
    customer = await stage.organization()
    ready = [await stage.lease(customer) for _ in range(leases)]
    addresses = []
    for lease in ready:
        await stage.play_until(lease, "ready")
        (machine,) = await stage.machines(lease)
        addresses.append(str(machine.address))
    return Cast(stage, authorities, command, ready, addresses)
