"""The agent as a service, on a real machine: systemd, the tunnel, the collector on the hub."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import asyncssh
import pytest
import pytest_asyncio

from data_plane.access.authority import new_authority
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.documents.agent_config import Config
from data_plane.documents.heartbeat import (
    LINE_BYTES_MAX,
    PORT,
    TASKS,
    Delivery,
    Heartbeat,
    Result,
    encode,
    read_answer,
)
from data_plane.heartbeats.collector.exchange import Known, Reports
from data_plane.heartbeats.ssh_collector import SshCollector
from data_plane.inspection.agent_service import install_agent
from data_plane.inspection.bundle import build_agent, build_collector
from data_plane.mesh.hub import SshHub
from data_plane.mesh.machine import join_mesh, mesh_public_key
from data_plane.mesh.port import Network, Peer, link
from providers.emulators.host import EmulatedGpu, MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import NspawnHost, missing_requirements
from tests.support.certificates import our_access
from tests.support.machines import IMAGES, Machine, boot_order, ready
from tests.support.networks import a_network

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]
NETWORK = a_network(3)
SECONDS_MAX = 30
BELONGINGS = (
    "/etc/systemd/system/splitplane-agent.service",
    "/etc/systemd/system/multi-user.target.wants/splitplane-agent.service",
    "/etc/splitplane/agent.json",
    "/usr/local/lib/splitplane/agent.pyz",
    "/usr/local/lib/splitplane/remove-agent",
    "/var/lib/private/splitplane-agent",
    "/var/lib/splitplane-agent",
)


@dataclass
class Stage:
    access: SshAccess
    machine: Machine
    hub: Machine
    collector: SshCollector
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    sequences: list[int] = field(default_factory=list[int])
    """Of the heartbeats that were stored, as they came."""
    newest: Heartbeat | None = None
    results: list[Result] = field(default_factory=list[Result])

    async def install(self) -> str:
        """A service with a new credential, which is returned."""
        credential = secrets.token_hex(32)
        digest = hashlib.sha256(credential.encode()).hexdigest()
        self.known, self.sequences = {digest: Known(digest, ended=False, stored_through=0)}, []
        self.results = []
        config = Config(credential, NETWORK.hub_address, NETWORK.address_of(1), seconds=1)
        async with self.access.connect(self.machine.target) as session:
            await install_agent(session, build_agent(), config)
        return credential

    async def exchange(self) -> Reports:
        """As the reconciler does: say who is known, and store what comes."""
        reports = await self.collector.exchange(list(self.known.values()))
        for each in reports.reported:
            before = self.known[each.digest]
            self.known[each.digest] = Known(each.digest, before.ended, each.heartbeat.sequence, before.task)
            self.sequences.append(each.heartbeat.sequence)
            self.newest = each.heartbeat
            if each.heartbeat.result is not None:
                self.results.append(each.heartbeat.result)
        return reports

    def has_results(self, number: int) -> bool:
        return len(self.results) >= number

    async def until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS_MAX
        while not reached():
            assert time.monotonic() < end, await self.machine.sh(
                "systemctl status splitplane-agent; sudo journalctl -n 20 --no-pager -u splitplane-agent; true"
            )
            await self.exchange()
            await asyncio.sleep(0.3)  # Real machines take real time.

    async def say(self, line: bytes) -> bytes:
        """Send a line from the machine to the collector, as anybody there could."""
        program = (
            "import socket,sys\n"
            f"line=socket.create_connection(('{NETWORK.hub_address}',{PORT}),10)\n"
            "try:\n line.sendall(sys.stdin.buffer.read())\nexcept OSError: pass\n"
            "try: sys.stdout.buffer.write(line.makefile('rb').readline())\nexcept OSError: pass\n"
        )
        async with self.machine.connected() as connection:
            done = await connection.run(f'python3 -c "{program}"', input=line, encoding=None, check=True)
            assert isinstance(done.stdout, bytes)
            return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    host = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print))
    try:
        authority = new_authority()
        access = our_access(authority)
        keys = {name: new_host_key() for name in ("hub", "alice")}
        for name, key in keys.items():
            gpus = () if name == "hub" else (EmulatedGpu("NVIDIA H100 80GB HBM3", 81559),) * 8
            await host.boot(MachineSpec(name, boot_order(key, [authority], name), gpus))
        targets = await asyncio.gather(*(ready(host, access, name, keys[name]) for name in keys))
        machines = {name: Machine(target, authority) for name, target in zip(keys, targets, strict=True)}
        await _join(access, machines["alice"], SshHub(access, machines["hub"].target), NETWORK)
        collector = SshCollector(access, machines["hub"].target, build_collector())
        yield Stage(access, machines["alice"], machines["hub"], collector)
    finally:
        await host.close()


async def _join(access: SshAccess, machine: Machine, hub: SshHub, network: Network) -> None:
    async with access.connect(machine.target) as session:
        peer = Peer(network.address_of(1), await mesh_public_key(session))
        await join_mesh(session, link(network, await hub.sync(network, [peer]), peer.address))


async def test_an_installed_agent_reports_through_the_tunnel_within_its_limits(stage: Stage) -> None:
    credential = await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 2)
    assert stage.sequences == list(range(stage.sequences[0], stage.sequences[-1] + 1))
    shown = await stage.machine.sh(
        "systemctl show splitplane-agent -p MemoryMax -p TasksMax -p CPUQuotaPerSecUSec -p DynamicUser -p User"
    )
    assert {"MemoryMax=268435456", "TasksMax=64", "CPUQuotaPerSecUSec=100ms", "DynamicUser=yes"} <= set(
        shown.split()
    )
    user = await stage.machine.sh("ps -o uid= -p $(systemctl show -P MainPID splitplane-agent)")
    assert 61184 <= int(user) <= 65519, "not one of systemd's dynamic users"
    # The credential is in no process list, no log and no file that others may read.
    with pytest.raises(asyncssh.ProcessError):
        await stage.machine.sh("cat /etc/splitplane/agent.json")
    assert credential not in await stage.machine.sh("ps -ewwo args; sudo journalctl --no-pager")


async def test_it_does_the_tasks_that_it_is_asked_for(stage: Stage) -> None:
    await stage.install()
    for number, task in enumerate(TASKS, start=1):
        digest = next(iter(stage.known))
        stage.known[digest] = replace(stage.known[digest], task=task)
        await stage.until(partial(stage.has_results, number))
    done = {result.task: result for result in stage.results}
    assert [result.task for result in stage.results] == list(TASKS)
    assert all(result.done for result in done.values()), done
    assert "8 GPUs" in done["topology"].detail
    assert done["verify"].digest == build_agent().sha256
    # Of the older hierarchies of control groups, the agent cannot read its limits.
    unified = await stage.machine.sh("stat -fc %T /sys/fs/cgroup") == "cgroup2fs\n"
    assert f"memory.max {268435456 if unified else 'not readable'}" in done["verify"].detail
    assert "0 lost" in done["report"].detail


async def test_what_could_not_be_delivered_comes_in_order_when_the_tunnel_is_back(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    await stage.machine.sh("sudo ip link set splitplane down")
    await asyncio.sleep(6)  # The agent's own clock runs.
    last = stage.sequences[-1]
    await stage.exchange()
    silent = stage.sequences[-1]
    assert silent <= last + 2
    await stage.machine.sh("sudo ip link set splitplane up")
    await stage.until(lambda: stage.sequences[-1] >= silent + 6)
    assert stage.sequences == list(range(stage.sequences[0], stage.sequences[-1] + 1))
    assert stage.newest is not None
    assert stage.newest.dropped == 0


async def test_a_killed_agent_is_started_again_and_goes_on_counting(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    before = await stage.machine.sh("systemctl show -P MainPID splitplane-agent")
    await stage.machine.sh("sudo systemctl kill -s KILL splitplane-agent")
    reached = stage.sequences[-1]
    await stage.until(lambda: stage.sequences[-1] >= reached + 3)
    assert await stage.machine.sh("systemctl show -P MainPID splitplane-agent") != before
    assert stage.sequences == sorted(set(stage.sequences))


async def test_hostile_lines_are_refused_and_change_nothing(stage: Stage) -> None:
    credential = await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    await stage.machine.sh("sudo systemctl stop splitplane-agent")
    await stage.exchange()
    stored = dict(stage.known)
    replayed = Heartbeat(1, 0, 0, "", 0, 0)
    right = json.loads(encode(Delivery(credential, (replayed,))))
    cases = {
        b"\n": "malformed",
        b"GET / HTTP/1.1\r\n": "malformed",
        json.dumps(right | {"lease": "le_1"}).encode() + b"\n": "malformed",
        json.dumps(right | {"protocol": 2}).encode() + b"\n": "malformed",
        encode(Delivery("0" * 64, (replayed,))): "not_known",
        encode(Delivery(hashlib.sha256(credential.encode()).hexdigest(), (replayed,))): "not_known",
        encode(Delivery(credential, (replayed,))): "accepted",  # A replay is answered, and not stored again.
    }
    for line, verdict in cases.items():
        assert read_answer(await stage.say(line)).verdict == verdict, line
    assert await stage.say(b"x" * (LINE_BYTES_MAX * 4) + b"\n") == b""
    reports = await stage.exchange()
    assert (reports.reported, reports.refused >= 6) == ((), True)
    assert stage.known == stored


async def test_nobody_but_the_reconciler_says_who_is_known(stage: Stage) -> None:
    await stage.exchange()
    with contextlib.suppress(asyncssh.ProcessError):
        ports = await stage.hub.sh("ss -Hltn")
        assert str(PORT) not in ports, "the hub's own addresses must not listen"
    mode = await stage.hub.sh("sudo stat -c %a /run/splitplane-heartbeats/exchange")
    assert mode.strip() == "600"


async def test_an_agent_whose_lease_has_ended_removes_itself_and_leaves_nothing(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    digest = next(iter(stage.known))
    stage.known[digest] = Known(digest, ended=True, stored_through=stage.sequences[-1])
    left = ""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        await stage.exchange()
        left = await stage.machine.sh(
            f"for path in {' '.join(BELONGINGS)}; do sudo test ! -e $path || echo $path; done"
        )
        if not left:
            break
        await asyncio.sleep(0.5)
    assert left == ""
    assert await stage.machine.sh("systemctl list-units --all --no-legend 'splitplane-agent*'") == ""
