"""The agent as a service, on a real machine: systemd, the tunnels, the collectors on the hub and on a cluster's server,
and the relays of samples there.

The machines may divide their control groups, as machines with a kernel of their own do, so that limits bind there.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import re
import secrets
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Network

import asyncssh
import pytest
import pytest_asyncio

from control_plane.domain.overlay import PODS, SERVER_NUMBER, address_of, pods_of, range_of
from data_plane.access.authority import new_authority
from data_plane.access.port import Target
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.cluster.ssh_agents import SshAgents
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
from data_plane.documents.sample import Server, notable, signs
from data_plane.heartbeats.collector.connections import OF_ONE_NODE_MAX
from data_plane.heartbeats.collector.exchange import Known, Reports
from data_plane.heartbeats.port import ClusterServer
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.heartbeats.ssh_collector import SshCollector, remove_collector
from data_plane.inspection.agent_service import BELONGINGS, install_agent
from data_plane.inspection.bundle import Bundle, build_agent, build_collector
from data_plane.mesh.hub import SshHub
from data_plane.mesh.machine import join_mesh, mesh_public_key
from data_plane.mesh.members import SshMembers
from data_plane.mesh.port import Network, OverlayPeer, OverlayPlace, Peer, link
from providers.emulators.host import EmulatedGpu, MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost, missing_requirements
from tests.support.attack_from_machine import CREDENTIAL, TUNNEL
from tests.support.certificates import our_access
from tests.support.ingest_server import IngestServer
from tests.support.machine_attack import attacked, on_page
from tests.support.machines import IMAGES, Machine, boot_order, ready
from tests.support.networks import a_network

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]
NETWORK = a_network(3)
BLOCK = 7
SERVER, OWN = address_of(BLOCK, SERVER_NUMBER), address_of(BLOCK, SERVER_NUMBER + 1)
"""In the overlay of a cluster: its server, and the machine."""
OWN_PODS = pods_of(2)
"""The range of the machine's pods, from which its tunnel lets it send, too."""
BEAT = Heartbeat(1, 0, 0, "", 0, 0)
SECONDS_MAX = 30
SECONDS_STUFFED_MAX = 90
STUFFED = """
import sys, time
if sys.argv[1:] != ["serve"]: sys.exit(0)
stuffing = []
while True:
    stuffing.append(bytearray(b"x" * (8 << 20)))
    end = time.process_time() + 0.02
    while time.process_time() < end: pass
"""
"""Takes all of a core and more and more memory."""


@dataclass
class Stage:
    access: SshAccess
    host: NspawnHost
    ingest: IngestServer
    """On this host, which the hub and the server reach."""
    machine: Machine
    hub: Machine
    server: Machine
    """The server of a cluster, in whose overlay the machine is too."""
    collector: SshCollector
    at: ClusterServer | None = None
    """Where the agent reports; None for the hub."""
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    sequences: list[int] = field(default_factory=list[int])
    """Of the heartbeats that were stored, as they came."""
    newest: Heartbeat | None = None
    results: list[Result] = field(default_factory=list[Result])

    async def install(self, *, at: ClusterServer | None = None, agent: Bundle | None = None) -> str:
        """A service with a new credential, which is returned. It reports to the hub, unless another place is given."""
        credential = secrets.token_hex(32)
        digest = hashlib.sha256(credential.encode()).hexdigest()
        self.known, self.sequences = {digest: Known(digest, ended=False, stored_through=0)}, []
        self.results = []
        self.at = at
        self.ingest.known, self.ingest.deliveries, self.ingest.refused = {digest}, [], []
        own = NETWORK.address_of(1) if at is None else OWN
        hub = NETWORK.hub_address if at is None else at.address
        async with self.access.connect(self.machine.target) as session:
            await install_agent(
                session, agent or build_agent(), Config(credential, hub, own, seconds=1, sample_seconds=1)
            )
        return credential

    @property
    def of_nodes(self) -> ClusterServer:
        return ClusterServer(self.server.target, SERVER, str(range_of(BLOCK)))

    async def exchange(self) -> Reports:
        """As the reconciler does: say who is known, and store what comes."""
        reports = await self.collector.exchange(list(self.known.values()), self.at)
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

    async def until(self, reached: Callable[[], bool], *, seconds: int = SECONDS_MAX) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, await self.machine.sh(
                "systemctl status splitplane-agent; sudo journalctl -n 20 --no-pager -u splitplane-agent; true"
            )
            await self.exchange()
            await asyncio.sleep(0.3)  # Real machines take real time.

    async def say(self, line: bytes, *, to: str = NETWORK.hub_address) -> bytes:
        """Send a line from the machine to the collector, as anybody there could."""
        program = (
            "import socket,sys\n"
            f"line=socket.create_connection(('{to}',{PORT}),10)\n"
            "try:\n line.sendall(sys.stdin.buffer.read())\nexcept OSError: pass\n"
            "try: sys.stdout.buffer.write(line.makefile('rb').readline())\nexcept OSError: pass\n"
        )
        async with self.machine.connected() as connection:
            done = await connection.run(f'python3 -c "{program}"', input=line, encoding=None, check=True)
            assert isinstance(done.stdout, bytes)
            return done.stdout


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    image = await asyncio.to_thread(ensure_image, IMAGES, print)
    host = await NspawnHost.open(image, nodes=NodeSupport())
    try:
        authority = new_authority()
        access = our_access(authority)
        keys = {name: new_host_key() for name in ("hub", "alice", "server")}
        for name, key in keys.items():
            gpus = (EmulatedGpu("NVIDIA H100 80GB HBM3", 81559),) * 8 if name == "alice" else ()
            await host.boot(MachineSpec(name, boot_order(key, [authority], name), gpus))
        targets = await asyncio.gather(*(ready(host, access, name, keys[name]) for name in keys))
        machines = {name: Machine(target, authority) for name, target in zip(keys, targets, strict=True)}
        await _join(access, machines["alice"], SshHub(access, machines["hub"].target), NETWORK)
        await _join_overlay(SshMembers(access), machines["server"].target, machines["alice"].target)
        ingest = IngestServer(host.gateway)
        with ingest.listening():
            at = IngestPlace(host.gateway, ingest.port)
            collector = SshCollector(access, machines["hub"].target, build_collector(), at)
            yield Stage(
                access, host, ingest, machines["alice"], machines["hub"], machines["server"], collector
            )
    finally:
        await host.close()


async def _join(access: SshAccess, machine: Machine, hub: SshHub, network: Network) -> None:
    async with access.connect(machine.target) as session:
        peer = Peer(network.address_of(1), await mesh_public_key(session))
        await join_mesh(session, link(network, await hub.sync(network, [peer]), peer.address))


async def _join_overlay(members: SshMembers, server: Target, node: Target) -> None:
    ends = {SERVER: server, OWN: node}
    ranges = {SERVER: (f"{SERVER}/32",), OWN: (f"{OWN}/32", OWN_PODS)}
    keys = {address: await members.make_key(end) for address, end in ends.items()}
    for address, end in ends.items():
        (other,) = ends.keys() - {address}
        peer = OverlayPeer(keys[other], ranges[other], f"{ends[other].address}:51820")
        await members.apply(end, OverlayPlace(address, str(range_of(BLOCK)), str(PODS)), [peer])


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
        json.dumps(right | {"protocol": 2}).encode() + b"\n": "version_not_known",
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


async def test_the_credential_of_an_agent_opens_what_the_page_says(stage: Stage) -> None:
    tried = {
        (CREDENTIAL, "report through the tunnel, for its own lease"),
        (CREDENTIAL, "report at the hub's public address"),
        (TUNNEL, "reach the collector of heartbeats, TCP port 9440 of the hub"),
        (TUNNEL, "reach another TCP port of the hub inside its private network"),
    }
    await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    results = await attacked(stage.machine)
    assert {what: results[what] for what in tried} == {what: on_page()[what] for what in tried}


async def test_nobody_but_the_reconciler_says_who_is_known(stage: Stage) -> None:
    await stage.exchange()
    with contextlib.suppress(asyncssh.ProcessError):
        ports = await stage.hub.sh("ss -Hltn")
        assert str(PORT) not in ports, "the hub's own addresses must not listen"
    mode = await stage.hub.sh("sudo stat -c %a /run/splitplane-heartbeats/exchange")
    assert mode.strip() == "600"


async def test_the_agent_of_a_node_reports_to_the_server_of_its_cluster_through_the_overlay_alone(
    stage: Stage,
) -> None:
    credential = await stage.install(at=stage.of_nodes)
    await stage.until(lambda: len(stage.sequences) >= 2)
    listening = [line.split()[3] for line in (await stage.server.sh("ss -Hltn")).splitlines()]
    assert [each for each in listening if each.endswith(f":{PORT}")] == [f"{SERVER}%spoverlay:{PORT}"]
    assert read_answer(await stage.say(encode(Delivery("0" * 64, (BEAT,))), to=SERVER)).verdict == "not_known"
    # A neighbour of the server's that is no member, and sends packets for the overlay to it, reaches nobody.
    where = stage.server.target.address
    await stage.hub.sh(f"sudo ip route add {SERVER}/32 via {where}")
    try:
        for address in (SERVER, where):
            reached = (
                f"timeout 3 python3 -c \"import socket; socket.create_connection(('{address}', {PORT}))\""
            )
            assert (await stage.hub.sh(f"{reached} 2>/dev/null && echo yes || echo no")).strip() == "no"
    finally:
        await stage.hub.sh(f"sudo ip route del {SERVER}/32")
    sandbox = await stage.server.sh("systemctl show splitplane-heartbeats -p PrivateNetwork -p DynamicUser")
    assert set(sandbox.split()) == {"PrivateNetwork=yes", "DynamicUser=yes"}
    assert credential not in await stage.server.sh("ps -ewwo args; sudo journalctl --no-pager")


async def test_one_node_cannot_use_up_the_connections_of_the_others(stage: Stage) -> None:
    await stage.install(at=stage.of_nodes)
    await stage.until(lambda: len(stage.sequences) >= 1)
    await stage.machine.sh("sudo systemctl stop splitplane-agent")
    program = (
        "import socket\n"
        f"lines=[socket.create_connection(('{SERVER}',{PORT}),5,('{OWN}',0)) for _ in range(9)]\n"
        "kept=[]\n"
        "for line in lines:\n"
        " line.settimeout(1)\n"
        " try: line.recv(1)\n"
        " except TimeoutError: kept.append(line.getsockname()[0])\n"
        " except OSError: pass\n"
        "print(*kept)\n"
    )
    kept = (await stage.machine.sh(f'python3 -c "{program}"')).split()
    assert kept == [OWN] * OF_ONE_NODE_MAX
    pod = str(IPv4Network(OWN_PODS)[5])
    await stage.machine.sh(f"sudo ip address add {pod}/32 dev lo")
    reached = (
        f"timeout 3 python3 -c \"import socket; socket.create_connection(('{SERVER}',{PORT}),5,('{pod}',0))\""
    )
    assert (await stage.machine.sh(f"{reached} 2>/dev/null && echo yes || echo no")).strip() == "no", (
        "the addresses of its pods are no further places for it"
    )


async def test_the_collector_knows_which_network_a_connection_comes_from(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.sequences) >= 1)
    program = (
        "import sys; sys.path.insert(0,'/usr/local/lib/splitplane/collector.pyz');"
        "from data_plane.heartbeats.collector.sources import of_process; print(of_process(int(sys.argv[1])))"
    )
    proxy = f"$(systemctl show -P MainPID splitplane-heartbeats@{NETWORK.number}.service)"
    assert (
        await stage.hub.sh(f'sudo -u nobody python3 -I -c "{program}" {proxy}')
        == f"network {NETWORK.number}\n"
    )


async def test_reports_wait_while_the_server_has_no_tunnel_and_come_in_order_when_it_is_back(
    stage: Stage,
) -> None:
    await stage.install(at=stage.of_nodes)
    await stage.until(lambda: len(stage.sequences) >= 1)
    # The agent loses its own end first, so that all that was accepted is stored when the collector restarts.
    await stage.machine.sh("sudo ip link set spoverlay down")
    await stage.exchange()
    await stage.server.sh("sudo systemctl restart wg-quick@spoverlay")
    await asyncio.sleep(3)  # The agent's own clock runs.
    reached = stage.sequences[-1]
    await stage.machine.sh("sudo ip link set spoverlay up && sudo sh /etc/wireguard/spoverlay.routes")
    await stage.until(lambda: stage.sequences[-1] >= reached + 3)
    assert stage.sequences == list(range(stage.sequences[0], stage.sequences[-1] + 1))


async def test_a_stuffed_agent_is_slowed_and_killed_and_a_customers_process_is_not(stage: Stage) -> None:
    await stage.machine.sh(
        # A local machine may divide its groups only since it has booted, and systemd has to look again.
        "sudo systemctl daemon-reexec && sudo systemd-run --quiet --collect --unit=customer"
        " python3 -c 'import time; held = bytearray(300 << 20); time.sleep(600)'"
    )
    content = _zipapp(STUFFED)
    await stage.install(agent=Bundle(content, hashlib.sha256(content).hexdigest()))
    killed = "systemctl show -P NRestarts splitplane-agent"
    throttled = (
        "cat /sys/fs/cgroup/cpu/system.slice/splitplane-agent.service/cpu.stat"
        " /sys/fs/cgroup/system.slice/splitplane-agent.service/cpu.stat 2>/dev/null | grep ^nr_throttled; true"
    )
    slowed: set[str] = set()
    end = time.monotonic() + SECONDS_STUFFED_MAX
    while not int(await stage.machine.sh(killed)):
        assert time.monotonic() < end, await stage.machine.sh("systemctl status splitplane-agent; true")
        slowed |= set((await stage.machine.sh(throttled)).split()) - {"nr_throttled", "0"}
        await asyncio.sleep(0.5)  # Real memory takes real time.
    journal = await stage.machine.sh("sudo journalctl --no-pager -n 9 -u splitplane-agent")
    assert "status=9/KILL" in journal, journal
    assert slowed, "it had more than a tenth of a core"
    assert (await stage.machine.sh("systemctl is-active customer")).strip() == "active"
    await stage.machine.sh("sudo systemctl stop customer")


async def _serve(stage: Stage, address: str) -> None:
    """An inference server on the machine, as the unit `vllm`."""
    metrics = "vllm:kv_cache_usage_perc 0.75\nvllm:num_requests_running 3\n"
    await stage.machine.sh(
        f"mkdir -p /tmp/vllm && printf '{metrics}' > /tmp/vllm/metrics && sudo systemd-run --quiet --collect"
        f" --unit=vllm python3 -m http.server --bind {address} --directory /tmp/vllm 8000"
    )


async def test_samples_of_a_machine_reach_the_ingest_process_through_its_tunnel(stage: Stage) -> None:
    credential = await stage.install()
    await _serve(stage, "127.0.0.1")
    await stage.until(lambda: any(sample.servers for sample in stage.ingest.samples))
    sample = next(each for each in stage.ingest.samples if each.servers)
    assert (sample.source, sample.failure, len(sample.gpus)) == ("emulated", None, 8)
    assert {gpu.memory_total_mib for gpu in sample.gpus} == {81559}
    assert not notable(sample)
    assert sample.host.memory_total_mib
    assert sample.host.processes
    assert sample.servers == (Server(8000, "vllm", 7500, 3),)
    sequences = [each.sequence for each in stage.ingest.samples]
    assert sequences == list(range(sequences[0], sequences[-1] + 1))
    await stage.machine.sh("sudo systemctl stop vllm")
    # Heartbeats take their own way, as those of an installation that knows nothing else.
    await stage.until(lambda: len(stage.sequences) >= 2)
    assert credential not in await stage.machine.sh("ps -ewwo args; sudo journalctl --no-pager")
    assert credential not in await stage.hub.sh("ps -ewwo args; sudo journalctl --no-pager")


async def test_a_gpu_that_fails_before_our_eyes_is_in_the_next_sample(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.ingest.samples) >= 2)
    await stage.host.script_gpu("alice", {"at": 0, "gpu": 5, "xid": 79, "lost": True, "fields": {"230": 2}})
    await stage.until(lambda: any(sample.xids for sample in stage.ingest.samples))
    (failed,) = (sample for sample in stage.ingest.samples if sample.xids)
    assert [(xid.kind, xid.number) for xid in failed.xids] == [("xid", 79)], "and it is reported once"
    assert [gpu.index for gpu in failed.gpus if gpu.lost] == [5]
    assert signs(failed) == ("gpu_lost", "xid")
    await stage.host.script_gpu("alice", {"at": 0, "gpu": 5, "lost": False, "fields": {"230": 0}})


async def test_after_the_ingest_process_was_away_the_newest_sample_comes_first(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.ingest.samples) >= 1)
    before = stage.ingest.samples[-1].sequence
    stage.ingest.close()
    stage.ingest.deliveries.clear()
    await asyncio.sleep(8)  # The agent's own clock runs.
    stage.ingest.open()
    await stage.until(lambda: before + 1 in {each.sequence for each in stage.ingest.samples}, seconds=60)
    first = stage.ingest.deliveries[0]
    assert len(first.samples) == 1
    assert first.samples[0].spooled > 0
    assert first.samples[0].sequence > before + 1
    late = next(each for each in stage.ingest.deliveries if each.samples[0].sequence == before + 1)
    assert late.sent_at_ms - late.samples[0].at_ms > 4000, "how old it is can be told from the delivery"


async def test_a_credential_that_was_revoked_delivers_no_sample_and_the_agent_reports_on(
    stage: Stage,
) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.ingest.samples) >= 1)
    stage.ingest.known.clear()
    stage.ingest.refused.clear()
    accepted = len(stage.ingest.samples)
    await stage.until(lambda: bool(stage.ingest.refused))
    beats = len(stage.sequences)
    await stage.until(lambda: len(stage.sequences) >= beats + 4)
    assert stage.ingest.refused == ["not_known"], "it does not ask again before minutes have passed"
    assert len(stage.ingest.samples) == accepted


async def test_samples_of_a_node_go_through_the_server_of_its_cluster_and_tell_of_servers_in_its_pods(
    stage: Stage,
) -> None:
    # As CNI's plugin leaves it, whose folders everybody may list and whose files nobody may read.
    await stage.machine.sh(
        "sudo install -d -m 755 /var/lib/cni /var/lib/cni/networks /var/lib/cni/networks/cbr0"
        " && cd /var/lib/cni/networks/cbr0 && sudo install -m 600 /dev/null 127.0.0.9"
        " && sudo install -m 600 /dev/null last_reserved_ip.0"
    )
    await _serve(stage, "127.0.0.9")
    await stage.install(at=stage.of_nodes)
    await stage.until(lambda: any(sample.servers for sample in stage.ingest.samples))
    sample = next(each for each in stage.ingest.samples if each.servers)
    assert sample.servers == (Server(8000, "vllm", 7500, 3, pod_ip="127.0.0.9"),)
    await stage.machine.sh("sudo systemctl stop vllm && sudo rm -r /var/lib/cni")
    listening = await stage.server.sh("ss -Hltn")
    assert set(re.findall(r"\S+(?=:9441\s)", listening)) == {f"{SERVER}%spoverlay"}


async def test_without_an_ingest_process_nobody_takes_samples_and_heartbeats_go_on(stage: Stage) -> None:
    await stage.install()
    await stage.until(lambda: len(stage.ingest.samples) >= 1)
    with_relay = stage.collector
    stage.collector = SshCollector(stage.access, stage.hub.target, build_collector())
    try:
        await stage.exchange()
        listed = await stage.hub.sh(
            "systemctl list-units --no-legend 'splitplane-samples*'; ls /etc/systemd/system"
        )
        assert "splitplane-samples" not in listed
        inside = await stage.hub.sh(f"sudo nsenter --net=/run/netns/splitplane-{NETWORK.number} ss -Hltn")
        assert f":{PORT} " in inside
        assert ":9441 " not in inside
    finally:
        stage.collector = with_relay
    await stage.exchange()
    inside = await stage.hub.sh(f"sudo nsenter --net=/run/netns/splitplane-{NETWORK.number} ss -Hltn")
    assert ":9441 " in inside


async def test_cleaning_takes_the_agent_off_a_node_and_dismantling_the_collector_off_its_server(
    stage: Stage,
) -> None:
    await stage.install(at=stage.of_nodes)
    cleaned = await SshAgents(stage.access, None).clean(stage.machine.target)
    assert cleaned.nothing_left, cleaned.left
    left = await stage.machine.sh(
        f"for path in {' '.join(BELONGINGS)}; do sudo test ! -e $path || echo $path; done"
    )
    assert left == ""
    async with stage.access.connect(stage.server.target) as session:
        await remove_collector(session)
        await remove_collector(session)
    kept = "ls /etc/systemd/system /usr/local/lib/splitplane 2>/dev/null; ss -Hltn"
    assert not {"splitplane-heartbeats", "splitplane-samples", "collector.pyz", str(PORT), "9441"} & set(
        re.split(r"[\s:.]+", await stage.server.sh(f"{kept}; true"))
    )


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


def _zipapp(program: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("__main__.py", program)
    return content.getvalue()
