"""The local cloud's machines are real: they apply their user data, and a terminated machine leaves nothing behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, time
from typing import TypeVar
from uuid import UUID

import asyncssh
import pytest

from control_plane.domain.ids import LaunchKey, ProviderRef, launch_key
from providers import local
from providers.base import LaunchOrder, ListedState, Sighting
from providers.emulators import settings
from providers.emulators.clouds import local as emulator
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import NspawnHost, missing_requirements
from providers.emulators.scenario import EmulatorTransport, Scenario

pytestmark = [pytest.mark.machines, pytest.mark.xdist_group("machines")]

REPOSITORY = Path(__file__).parents[2]
BOOT_SECONDS_MAX = 60
USER = "splitplane"
T = TypeVar("T")


@dataclass
class Rented:
    ref: ProviderRef
    address: str
    ssh: asyncssh.SSHClientConnection

    async def run(self, command: str) -> str:
        done = await asyncio.wait_for(self.ssh.run(command), timeout=60)
        assert done.exit_status == 0, f"{command}: {done.stdout!r}, {done.stderr!r}"
        return str(done.stdout)


class Keys:
    """A machine's host key, made before the machine, and the key we log in with."""

    def __init__(self) -> None:
        self.host = asyncssh.generate_private_key("ssh-ed25519")
        self.ours = asyncssh.generate_private_key("ssh-ed25519")

    def user_data(self) -> str:
        # JSON is YAML, so that no key has to be indented by hand.
        config = {
            "ssh_keys": {
                "ed25519_private": self.host.export_private_key().decode(),
                "ed25519_public": self.host.export_public_key().decode().strip(),
            },
            "users": [
                {
                    "name": USER,
                    "shell": "/bin/bash",
                    "sudo": "ALL=(ALL) NOPASSWD:ALL",
                    "ssh_authorized_keys": [self.ours.export_public_key().decode().strip()],
                }
            ],
            "write_files": [{"path": "/etc/from-user-data", "content": "written\n"}],
            "runcmd": ["echo done > /run/from-user-data"],
        }
        return f"#cloud-config\n{json.dumps(config)}"

    async def connect(self, address: str) -> asyncssh.SSHClientConnection:
        pinned = asyncssh.import_known_hosts(f"{address} {self.host.export_public_key().decode()}")
        return await asyncssh.connect(
            address,
            username=USER,
            client_keys=[self.ours],
            known_hosts=pinned,
            connect_timeout=10,
            config=[],
            agent_path=None,
        )


@pytest.fixture(scope="session")
def image() -> Path:
    missing = missing_requirements()
    if missing and os.environ.get("CI") == "true":
        pytest.fail("; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))
    return ensure_image(settings.images(os.environ), print)


@pytest.fixture
async def host(image: Path) -> AsyncIterator[NspawnHost]:
    opened = await NspawnHost.open(image)
    yield opened
    await opened.close()
    assert _left_of(opened) == []
    assert opened.bridge not in _interfaces()


@pytest.fixture
async def cloud(host: NspawnHost) -> AsyncIterator[local.Local]:
    app = emulator.create_app(host, Scenario(), now=lambda: datetime.fromtimestamp(time(), UTC))
    settings = local.Settings(token=emulator.TOKEN, url="http://local.test")
    provider = local.connect(settings, transport=EmulatorTransport(app))
    yield provider
    await provider.close()


async def test_user_data_is_what_the_machine_becomes(cloud: local.Local) -> None:
    machine = await _rent(cloud, 1)

    assert "status: done" in await machine.run("cloud-init status --wait")
    assert await machine.run("cat /etc/from-user-data /run/from-user-data") == "written\ndone\n"
    assert await machine.run("hostname") == await machine.run("hostname --fqdn")
    hardware = json.loads(await machine.run("cat /etc/emulated-nvml.json"))
    assert [gpu["name"] for gpu in hardware["gpus"]] == ["NVIDIA H100 80GB HBM3"]


async def test_a_machine_with_another_host_key_is_refused(cloud: local.Local) -> None:
    machine = await _rent(cloud, 1)
    other_keys = Keys()

    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await other_keys.connect(machine.address)


async def test_the_agents_python_has_what_it_needs(cloud: local.Local) -> None:
    machine = await _rent(cloud, 1)

    await machine.run("python3 -c 'import argparse, ctypes, json, zipimport, ssl, hashlib, http.client'")


async def test_two_machines_reach_each_other_in_the_clear_and_over_wireguard(cloud: local.Local) -> None:
    first, second = await asyncio.gather(_rent(cloud, 1), _rent(cloud, 2))

    await first.run(f"ping -c 1 -W 5 {second.address}")
    keys = [await machine.run("wg genkey | tee /tmp/key | wg pubkey") for machine in (first, second)]
    await _join(first, "10.77.0.1", second, "10.77.0.2", keys[1])
    await _join(second, "10.77.0.2", first, "10.77.0.1", keys[0])
    await first.run("ping -c 3 -W 5 10.77.0.2")
    assert "latest handshake" in await first.run("sudo wg show wg0")


async def test_a_terminated_machine_leaves_nothing(cloud: local.Local, host: NspawnHost) -> None:
    machine = await _rent(cloud, 1)
    survivor = await _rent(cloud, 2)
    assert _left_of(host, "m1") != []

    await cloud.terminate(machine.ref)
    assert (await _sighting(cloud, machine.ref)).state in (ListedState.ENDING, ListedState.GONE)
    await _until(lambda: _is(cloud, machine.ref, ListedState.GONE), "the machine is gone")

    assert _left_of(host, "m1") == []
    assert await survivor.run("echo alive") == "alive\n"


async def test_a_machine_that_powers_itself_off_is_off_or_failed(cloud: local.Local) -> None:
    machine = await _rent(cloud, 1)

    await machine.ssh.run("sudo poweroff", check=False)

    await _until(lambda: _is(cloud, machine.ref, ListedState.OFF_OR_FAILED), "it is off")


async def test_machines_die_with_a_killed_emulator_and_the_next_one_sweeps_up(image: Path) -> None:
    command = (sys.executable, "-m", "providers.emulators", "local", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    ready = (await asyncio.wait_for(process.stdout.readline(), timeout=60)).decode()
    url, bridge = ready.split()[3], ready.split()[6].rstrip(",")
    cloud = local.connect(local.Settings(token=emulator.TOKEN, url=url))
    try:
        await _rent(cloud, 1)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await cloud.close()

    await _until(lambda: _async(not _processes(f"--network-bridge={bridge}")), "the machine died")
    successor = await NspawnHost.open(image)
    try:
        assert bridge == successor.bridge or bridge not in _interfaces()
        assert _left_of(successor) == []
    finally:
        await successor.close()


async def _rent(cloud: local.Local, number: int) -> Rented:
    keys = Keys()
    order = LaunchOrder(
        launch_key=_key(number),
        native_type="gpu-h100x1",
        native_region="local-1",
        user_data=keys.user_data(),
        ssh_public_key="",
    )
    ref = await cloud.launch(order)
    await _until(lambda: _is(cloud, ref, ListedState.RUNNING), "the machine runs")
    address = (await _sighting(cloud, ref)).address
    assert address is not None
    return Rented(ref, address, await _until(lambda: _try(keys, address), "sshd answers"))


def _key(number: int) -> LaunchKey:
    """Keys that differ in their last digit only: interface names must not be cut from them."""
    return launch_key("0a0b0c0d", UUID(int=number))


async def _try(keys: Keys, address: str) -> asyncssh.SSHClientConnection | None:
    try:
        return await keys.connect(address)
    except (OSError, asyncssh.PermissionDenied, asyncssh.ConnectionLost):
        return None  # sshd listens before cloud-init made the user, and not at all before that.


async def _sighting(cloud: local.Local, ref: ProviderRef) -> Sighting:
    (found,) = [each for each in await cloud.inventory() if each.provider_ref == ref]
    return found


async def _is(cloud: local.Local, ref: ProviderRef, state: ListedState) -> bool:
    return (await _sighting(cloud, ref)).state is state


async def _async(answer: bool) -> bool:
    return answer


async def _until(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """The first answer that is true, asked ten times a second for a bounded time."""
    deadline = monotonic() + BOOT_SECONDS_MAX
    while monotonic() < deadline:
        if answer := await look():
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited {BOOT_SECONDS_MAX} s in vain until {what}")


async def _join(machine: Rented, own: str, peer: Rented, peer_own: str, peer_key: str) -> None:
    await machine.run("sudo wireguard-go wg0 >/dev/null 2>&1")
    await machine.run(
        f"sudo wg set wg0 private-key /tmp/key listen-port 51820 peer {peer_key.strip()}"
        f" allowed-ips {peer_own}/32 endpoint {peer.address}:51820"
    )
    await machine.run(f"sudo ip address add {own}/24 dev wg0 && sudo ip link set wg0 up")


def _left_of(host: NspawnHost, machine: str = "m") -> list[str]:
    """Interfaces, processes, files, mounts and control groups that a host's machines have on this machine."""
    prefix = f"sp{host.slot.number}{machine}"
    left = [path.name for path in Path("/sys/class/net").glob(f"vb-{prefix}*")]
    left += _processes(f"--machine={prefix}")
    left += [path.name for path in host.slot.folder.glob(f"{prefix}*")]
    left += [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/{prefix}" in line]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/splitplane/{prefix}*")]
    return sorted(left)


def _interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def _processes(argument: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # Ended while we looked.
        if any(each.startswith(argument) for each in arguments):
            found.append(f"process {path.parent.name}: {arguments[0]}")
    return found
