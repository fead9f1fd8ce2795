"""Real machines for tests: systemd-nspawn containers that get the same user data as in a cloud."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from control_plane.domain.rendering import BootOrder
from control_plane.domain.user_data import UserDataKind, user_data
from data_plane.access.authority import Authority
from data_plane.access.port import Access, AccessError, HostKey, Target
from providers.emulators.host import HostedState
from providers.emulators.nspawn import NspawnHost
from tests.support.certificates import Login, a_login

IMAGES = Path.home() / ".cache" / "splitplane" / "images"
BOOT_SECONDS_MAX = 90


@dataclass
class Machine:
    target: Target
    authority: Authority
    """Which it trusts."""

    @asynccontextmanager
    async def connected(
        self, *, user: str = "splitplane", login: Login | asyncssh.SSHKey | None = None
    ) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """A connection past our own access, as us unless somebody else is named."""
        pinned = asyncssh.import_public_key(self.target.host_key)
        async with asyncssh.connect(
            self.target.address,
            self.target.port,
            username=user,
            client_keys=[login or a_login(self.authority, [self.target.principal], interactive=False)],
            known_hosts=([pinned], [], []),
            config=None,
            agent_path=None,
        ) as connection:
            yield connection

    async def sh(
        self, command: str, *, user: str = "splitplane", login: Login | asyncssh.SSHKey | None = None
    ) -> str:
        """Run a command inside. Returns stdout; raises on an exit status other than 0."""
        async with self.connected(user=user, login=login) as connection:
            done = await connection.run(command, check=True)
            return str(done.stdout)

    async def reaches(self, address: str, *, seconds: float = 1, source: str = "") -> bool:
        try:
            await self.sh(f"ping -n -q -c 1 -W {seconds:.0f} {source} {address}")
        except asyncssh.ProcessError:
            return False
        return True


def boot_order(
    key: HostKey, authorities: Sequence[Authority], name: str, kind: UserDataKind = UserDataKind.CLOUD_CONFIG
) -> str:
    """The user data of a machine whose principal is `name`."""
    trusted = [authority.public_key for authority in authorities]
    return user_data(BootOrder(key.private_openssh, key.public, trusted, name), kind)


async def ready(host: NspawnHost, access: Access, name: str, key: HostKey) -> Target:
    """Wait until we can log in to the machine with this name, which is its principal too."""
    end = time.monotonic() + BOOT_SECONDS_MAX
    last: object = "never had an address"
    while time.monotonic() < end:
        machine = host.machines()[name]
        assert machine.state is not HostedState.FAILED, f"{machine.why}\n{host.console(name)}"
        if machine.address is not None:
            target = Target(machine.address, machine.ssh_port, key.public, name)
            try:
                async with access.connect(target):
                    return target
            except AccessError as error:
                last = error
        await asyncio.sleep(0.2)
    pytest.fail(f"{name} was not ready in {BOOT_SECONDS_MAX} s: {last}\n{host.console(name)}")
