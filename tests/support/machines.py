"""Real machines for tests: systemd-nspawn containers that get the same user data as in a cloud."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from data_plane.access.port import Access, AccessError, HostKey, Target
from providers.emulators.host import HostedState
from providers.emulators.nspawn import NspawnHost

IMAGES = Path.home() / ".cache" / "splitplane" / "images"
BOOT_SECONDS_MAX = 90


@dataclass
class Machine:
    target: Target
    ours: asyncssh.SSHKey

    async def sh(self, command: str, *, user: str = "splitplane", key: asyncssh.SSHKey | None = None) -> str:
        """Run a command inside, past our own access. Returns stdout; raises on an exit status other than 0."""
        pinned = asyncssh.import_public_key(self.target.host_key)
        async with asyncssh.connect(
            self.target.address,
            self.target.port,
            username=user,
            client_keys=[key or self.ours],
            known_hosts=([pinned], [], []),
            config=None,
            agent_path=None,
        ) as connection:
            done = await connection.run(command, check=True)
            return str(done.stdout)

    async def reaches(self, address: str, *, seconds: float = 1, source: str = "") -> bool:
        try:
            await self.sh(f"ping -n -q -c 1 -W {seconds:.0f} {source} {address}")
        except asyncssh.ProcessError:
            return False
        return True


async def ready(host: NspawnHost, access: Access, name: str, key: HostKey) -> Target:
    end = time.monotonic() + BOOT_SECONDS_MAX
    last: object = "never had an address"
    while time.monotonic() < end:
        machine = host.machines()[name]
        assert machine.state is not HostedState.FAILED, f"{machine.why}\n{host.console(name)}"
        if machine.address is not None:
            target = Target(machine.address, machine.ssh_port, key.public)
            try:
                async with access.connect(target):
                    return target
            except AccessError as error:
                last = error
        await asyncio.sleep(0.2)
    pytest.fail(f"{name} was not ready in {BOOT_SECONDS_MAX} s: {last}\n{host.console(name)}")
