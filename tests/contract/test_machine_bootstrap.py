"""The bootstrap of a rented machine on real ones: systemd, sshd, cloud-init, WireGuard, a hub.

The machines get the user data that a cloud would get, and everything happens over the SSH connection
that production uses. The judges log in on their own, without our code.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import asyncssh
import pytest
import pytest_asyncio

from control_plane.domain.overlay import address_of
from control_plane.domain.peer_map import Member, Overlay, configurations
from control_plane.domain.user_data import UserDataKind
from data_plane.access.authority import new_authority
from data_plane.access.port import HostKeyChanged, StepFailed, Unreachable
from data_plane.access.ssh import SshAccess, new_host_key
from data_plane.inspection.bundle import build_agent
from data_plane.inspection.gpus import read_gpus
from data_plane.mesh.firewall import UNIT, Opening, apply_firewall, read_firewall
from data_plane.mesh.hub import SshHub
from data_plane.mesh.machine import join_mesh, mesh_public_key, warm_mesh
from data_plane.mesh.node import largest_packet, leave_overlay, make_node_key, read_peers
from data_plane.mesh.port import PEERS_MAX, HubIdentity, MeshLink, Network, Peer, link
from providers.emulators.host import EmulatedGpu, MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import NspawnHost, missing_requirements
from reconciler.overlay import configure
from tests.support.attack_from_machine import ATTEMPTS, NOTHING, SSH_KEY, TUNNEL
from tests.support.certificates import our_access
from tests.support.machine_attack import attacked, on_page
from tests.support.machines import IMAGES, Machine, boot_order, ready
from tests.support.networks import a_network

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

ALICE, BOB = a_network(3), a_network(4095)


@dataclass
class Fleet:
    access: SshAccess
    machines: dict[str, Machine]
    hub: SshHub

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet() -> AsyncIterator[Fleet]:
    """A hub and three machines: alice1 and alice2 of one tenant, bob1 of another."""
    host = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print))
    try:
        authority = new_authority()
        access = our_access(authority)
        keys = {name: new_host_key() for name in ("hub", "alice1", "alice2", "bob1")}
        for name, key in keys.items():
            gpus = () if name == "hub" else (EmulatedGpu("NVIDIA H100 80GB HBM3", 81559),) * 8
            # cloud-init runs a script as late as providers do that pass machines nothing else.
            kind = UserDataKind.SHELL_SCRIPT if name == "bob1" else UserDataKind.CLOUD_CONFIG
            await host.boot(MachineSpec(name, boot_order(key, [authority], name, kind), gpus))
        targets = await asyncio.gather(*(ready(host, access, name, keys[name]) for name in keys))
        machines = {name: Machine(target, authority) for name, target in zip(keys, targets, strict=True)}
        # What newer distributions set: sudo then runs its command on a terminal of its own.
        await machines["alice2"].sh("echo 'Defaults use_pty' | sudo tee /etc/sudoers.d/90-pty")
        yield Fleet(access, machines, SshHub(access, machines["hub"].target))
    finally:
        await host.close()


async def _enrol(fleet: Fleet, network: Network, names: list[str]) -> HubIdentity:
    """Bring machines into a network the way the reconciler does: keys first, then the hub, then the links."""
    peers = []
    for k, name in enumerate(names, start=1):
        async with fleet.access.connect(fleet[name].target) as session:
            peers.append(Peer(network.address_of(k), await mesh_public_key(session)))
    identity = await fleet.hub.sync(network, peers)
    for peer, name in zip(peers, names, strict=True):
        async with fleet.access.connect(fleet[name].target) as session:
            await join_mesh(session, link(network, identity, peer.address))
    return identity


async def test_another_machine_at_the_address_is_refused(fleet: Fleet) -> None:
    target = fleet["alice1"].target
    impostor = replace(target, host_key=new_host_key().public)
    with pytest.raises(HostKeyChanged):
        async with fleet.access.connect(impostor):
            pytest.fail("logged in to another machine")


async def test_the_agent_reports_the_emulated_cards_and_is_pushed_once(fleet: Fleet) -> None:
    machine, agent = fleet["alice1"], build_agent()
    path = f".splitplane/agent-{agent.sha256}.pyz"
    async with fleet.access.connect(machine.target) as session:
        report = await read_gpus(session, agent)
        assert (report.source, report.agent_sha256) == ("emulated", agent.sha256)
        assert [(gpu.index, gpu.name, gpu.memory_mib) for gpu in report.gpus] == [
            (index, "NVIDIA H100 80GB HBM3", 81559) for index in range(8)
        ]
        pushed = await machine.sh(f"stat -c %Y.%i {path}")
        assert await read_gpus(session, agent) == report
        assert await machine.sh(f"stat -c %Y.%i {path}") == pushed


async def test_an_agent_that_rotted_on_the_machine_is_not_run_but_replaced(fleet: Fleet) -> None:
    machine, agent = fleet["alice1"], build_agent()
    path = f".splitplane/agent-{agent.sha256}.pyz"
    async with fleet.access.connect(machine.target) as session:
        healthy = await read_gpus(session, agent)
        await machine.sh(f'echo \'open("/tmp/ran", "w")\' > {path}')
        assert await read_gpus(session, agent) == healthy
    await machine.sh("test ! -e /tmp/ran")


async def test_the_firewall_closes_a_machine_but_for_ssh_and_its_network_and_systemd_loads_it_at_boot(
    fleet: Fleet,
) -> None:
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    one, two = fleet["alice1"], fleet["alice2"]
    serve = "sudo systemd-run -q --unit={0} python3 -m http.server {1} --bind 0.0.0.0 --directory /var/empty"
    for unit, port in (("web", 8080), ("other", 8081)):
        await one.sh("sudo mkdir -p /var/empty; " + serve.format(unit, port))
    opened = [Opening("tcp", 8080, 8080, (f"{two.target.address}/32",))]
    async with fleet.access.connect(one.target) as session:
        digest = await apply_firewall(session, opened)
    loaded = f"sudo nft flush ruleset; sudo systemctl restart {UNIT}; systemctl is-enabled {UNIT}"
    assert (await one.sh(loaded)).strip() == "enabled"
    async with fleet.access.connect(one.target) as session:  # SSH is open.
        assert await read_firewall(session) == digest
    knock = "timeout 2 bash -c 'exec 3<>/dev/tcp/{0}/{1}' 2>/dev/null && echo open || echo closed"

    async def seen(by: Machine, address: str, port: int) -> str:
        return (await by.sh(knock.format(address, port))).strip()

    outside, inside = one.target.address, ALICE.address_of(1)
    assert await seen(two, outside, 8080) == "open"
    assert await seen(two, outside, 8081) == "closed"
    assert await seen(fleet["bob1"], outside, 8080) == "closed"
    assert await seen(two, inside, 8081) == "open", "the private network is not filtered"
    assert await two.reaches(ALICE.address_of(1))
    await one.sh(
        f"sudo systemctl disable --now {UNIT}; sudo nft delete table inet splitplane; sudo systemctl stop web other"
    )


async def test_a_machine_without_hardware_says_so(fleet: Fleet) -> None:
    async with fleet.access.connect(fleet["hub"].target) as session:
        assert (await read_gpus(session, build_agent())).gpus == ()


async def test_private_mesh_keys_are_born_on_the_machine_and_stay_there(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    real = asyncssh.SSHReader.read

    async def read(self: "asyncssh.SSHReader[bytes]", n: int = -1) -> bytes:
        chunk = await real(self, n)
        heard.append(bytes(chunk) if isinstance(chunk, bytes) else chunk.encode())
        return chunk

    monkeypatch.setattr(asyncssh.SSHReader, "read", read)
    identity = await _enrol(fleet, ALICE, ["alice1", "alice2"])
    monkeypatch.undo()

    everything = b"".join(heard)
    assert identity.public_key.encode() in everything, "the tap heard nothing"
    secrets = {
        "alice1": await fleet["alice1"].sh("sudo cat /etc/wireguard/splitplane.key"),
        "alice2": await fleet["alice2"].sh("sudo cat /etc/wireguard/splitplane.key"),
        "hub": await fleet["hub"].sh(f"sudo cat /etc/splitplane/mesh/{ALICE.number}.key"),
    }
    assert len(set(secrets.values())) == 3
    for name, secret in secrets.items():
        assert len(secret.strip()) == 44
        assert secret.strip().encode() not in everything, name
    modes = await fleet["alice1"].sh("sudo sh -c 'stat -c %U.%a /etc/wireguard/*'")
    assert set(modes.split()) == {"root.600"}
    hub_modes = await fleet["hub"].sh("sudo sh -c 'stat -c %U.%a /etc/splitplane/mesh/*'")
    assert set(hub_modes.split()) == {"root.600"}


async def test_everything_twice_changes_nothing(fleet: Fleet) -> None:
    """Not even the tunnels: a second handshake or a new process would have cut the customer's connections."""
    first = await _enrol(fleet, ALICE, ["alice1", "alice2"])
    before = [await fleet[name].sh("pgrep -x wireguard-go || echo kernel") for name in fleet.machines]
    assert await _enrol(fleet, ALICE, ["alice1", "alice2"]) == first
    assert [await fleet[name].sh("pgrep -x wireguard-go || echo kernel") for name in fleet.machines] == before


async def test_machines_of_one_tenant_reach_each_other_and_those_of_two_tenants_do_not(fleet: Fleet) -> None:
    alice = await _enrol(fleet, ALICE, ["alice1", "alice2"])
    bob = await _enrol(fleet, BOB, ["bob1"])
    assert alice != bob
    one, two, other = fleet["alice1"], fleet["alice2"], fleet["bob1"]
    assert await one.reaches(ALICE.address_of(2))
    assert await two.reaches(ALICE.address_of(1))
    assert not await other.reaches(ALICE.address_of(1))

    # Bob has root on his machine, so his own settings prove nothing: let him route everything into his tunnel,
    await other.sh(f"sudo wg set splitplane peer {bob.public_key} allowed-ips 10.64.0.0/10")
    await other.sh("sudo ip route replace 10.64.0.0/10 dev splitplane")
    assert await other.reaches(BOB.hub_address)
    assert not await other.reaches(ALICE.address_of(1))
    assert not await other.reaches(ALICE.hub_address)
    # claim an address of Alice's,
    await other.sh(f"sudo ip address add {ALICE.address_of(9)}/32 dev splitplane")
    assert not await other.reaches(ALICE.address_of(1), source=f"-I {ALICE.address_of(9)}")
    # and knock at Alice's own door with Alice's public key, which is no secret.
    await other.sh(
        f"sudo wg set splitplane peer {bob.public_key} remove && sudo wg set splitplane peer {alice.public_key} "
        f"allowed-ips 10.64.0.0/10 endpoint {alice.endpoint}"
    )
    assert not await other.reaches(ALICE.hub_address, seconds=3)
    assert await one.reaches(ALICE.address_of(2)), "Alice noticed"

    async with fleet.access.connect(other.target) as session:  # The bootstrap repairs what Bob bent.
        await join_mesh(session, link(BOB, bob, BOB.address_of(1)))


async def test_a_machine_reaches_nothing_of_the_hub_itself(fleet: Fleet) -> None:
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    probe = f"timeout 2 bash -c 'exec 3<> /dev/tcp/{ALICE.hub_address}/22'"
    with pytest.raises(asyncssh.ProcessError):
        await fleet["alice1"].sh(probe)


async def test_the_files_of_a_machine_open_in_its_private_network_what_the_page_says(fleet: Fleet) -> None:
    assert on_page().keys() == ATTEMPTS.keys()
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    await _enrol(fleet, BOB, ["bob1"])
    neighbour, stranger = ALICE.address_of(2), BOB.address_of(1)
    results = await attacked(fleet["alice1"], f"--neighbour={neighbour}", f"--stranger={stranger}")
    assert results.keys() >= {
        (TUNNEL, "reach a machine in another private network, with its address routed into the tunnel"),
        (TUNNEL, "reach another TCP port of the hub inside its private network"),
        (SSH_KEY, "log in to the hub"),
        (SSH_KEY, "log in to a machine in the same private network"),
        (NOTHING, "reach another TCP port at the hub's public address"),
    }
    for process in ("collector of heartbeats, TCP port 9440", "ingest process of samples, TCP port 9441"):
        assert not results.pop((TUNNEL, f"reach the {process} of the hub")), "this hub runs neither"
    assert results == {what: on_page()[what] for what in results}
    assert await fleet["alice1"].reaches(neighbour), "the script has put the machine back as it was"


async def test_a_removed_machine_falls_silent_and_the_others_keep_their_sessions(fleet: Fleet) -> None:
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    one, two = fleet["alice1"], fleet["alice2"]
    async with fleet.access.connect(one.target) as session:
        staying = Peer(ALICE.address_of(1), await mesh_public_key(session))
    shaken = await one.sh("sudo wg show splitplane latest-handshakes")
    for _ in range(2):
        identity = await fleet.hub.sync(ALICE, [staying])
    assert not await two.reaches(ALICE.hub_address)
    assert not await one.reaches(ALICE.address_of(2))
    assert await one.reaches(ALICE.hub_address)
    assert await one.sh("sudo wg show splitplane latest-handshakes") == shaken

    # Back again: the hub has lost the session that alice2 still believes in.
    async with fleet.access.connect(two.target) as session:
        returning = Peer(ALICE.address_of(2), await mesh_public_key(session))
        assert await fleet.hub.sync(ALICE, [staying, returning]) == identity
        await join_mesh(session, link(ALICE, identity, returning.address))
    assert await one.reaches(ALICE.address_of(2))


async def test_a_machine_that_was_warmed_joins_without_a_restart_and_comes_back_after_a_reboot(
    fleet: Fleet,
) -> None:
    """What a machine of a pool does before it has a customer: its key, and an interface that reaches nobody."""
    machine = fleet["bob1"]
    started = "systemctl show --property ActiveEnterTimestampMonotonic wg-quick@splitplane"
    # As if it had never been in a network.
    await machine.sh(
        "sudo systemctl stop wg-quick@splitplane || true; sudo sh -c 'rm -f /etc/wireguard/splitplane.*'"
    )
    async with fleet.access.connect(machine.target) as session:
        public_key = await warm_mesh(session)
        up = await machine.sh(started)
        assert await warm_mesh(session) == await mesh_public_key(session) == public_key
        assert (await machine.sh("sudo wg show splitplane peers")).strip() == ""
        assert "inet" not in await machine.sh("ip -4 address show dev splitplane")
        identity = await fleet.hub.sync(ALICE, [Peer(ALICE.address_of(9), public_key)])
        for _ in range(2):
            await join_mesh(session, link(ALICE, identity, ALICE.address_of(9)))
        assert await machine.sh(started) == up, "nothing was started for it"
    assert await machine.reaches(ALICE.hub_address)
    await machine.sh("sudo systemctl restart wg-quick@splitplane")
    assert await machine.reaches(ALICE.hub_address), "the file says the same as what was set"
    async with fleet.access.connect(machine.target) as session:
        await warm_mesh(session)
    assert await machine.reaches(ALICE.hub_address), "a machine in a network is left as it is"


async def test_a_wrong_hub_key_fails_the_step(fleet: Fleet) -> None:
    right = await _enrol(fleet, BOB, ["bob1"])
    other = await _enrol(fleet, ALICE, ["alice1"])
    wrong = MeshLink(BOB.address_of(1), str(BOB.subnet), BOB.hub_address, other.public_key, right.endpoint)
    async with fleet.access.connect(fleet["bob1"].target) as session:
        with pytest.raises(StepFailed, match="did not answer through the tunnel"):
            await join_mesh(session, wrong)
        await join_mesh(session, link(BOB, right, BOB.address_of(1)))


async def test_a_hub_whose_daemon_died_is_repaired_by_the_next_sync(fleet: Fleet) -> None:
    if not (await fleet["hub"].sh("pgrep -x wireguard-go || true")).strip():
        pytest.skip("the kernel does WireGuard here: no daemon to lose")
    before = await _enrol(fleet, ALICE, ["alice1", "alice2"])
    await fleet["hub"].sh("sudo pkill -KILL -x wireguard-go")
    assert await _enrol(fleet, ALICE, ["alice1", "alice2"]) == before
    assert await fleet["alice1"].reaches(ALICE.address_of(2))
    await _enrol(fleet, BOB, ["bob1"])


async def test_links_and_networks_are_set_to_return_after_a_reboot(fleet: Fleet) -> None:
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    assert (await fleet["alice1"].sh("systemctl is-enabled wg-quick@splitplane")).strip() == "enabled"
    unit = f"splitplane-mesh@{ALICE.number}"
    assert (await fleet["hub"].sh(f"systemctl is-enabled {unit}")).strip() == "enabled"
    # What a boot does, without the boot: the unit alone must bring everything back from its files.
    await fleet["hub"].sh(f"sudo systemctl stop {unit} && test ! -e /run/netns/splitplane-{ALICE.number}")
    await fleet["hub"].sh(f"sudo systemctl start {unit}")
    await fleet["alice1"].sh("sudo systemctl restart wg-quick@splitplane")
    assert await fleet["alice1"].reaches(ALICE.hub_address, seconds=5)


async def test_many_networks_may_be_synced_at_once(fleet: Fleet) -> None:
    networks = [a_network(number) for number in range(100, 106)]
    identities = await asyncio.gather(*(fleet.hub.sync(network, []) for network in networks * 2))
    assert len({identity.public_key for identity in identities}) == len(networks)
    await asyncio.gather(*(fleet.hub.drop(network) for network in networks))


async def test_a_full_network_fits(fleet: Fleet) -> None:
    keys = [base64.b64encode(hashlib.sha256(str(k).encode()).digest()).decode() for k in range(PEERS_MAX)]
    peers = [Peer(ALICE.address_of(k), key) for k, key in enumerate(keys, start=1)]
    for _ in range(2):
        await fleet.hub.sync(ALICE, peers)
    shown = await fleet["hub"].sh(f"sudo wg show spmesh{ALICE.number} allowed-ips")
    assert {tuple(line.split()) for line in shown.splitlines()} == {
        (peer.public_key, f"{peer.address}/32") for peer in peers
    }


async def test_a_line_cut_in_the_middle_of_a_step_leaves_something_that_can_be_repeated(fleet: Fleet) -> None:
    machine = fleet["alice2"]
    identity = await _enrol(fleet, ALICE, ["alice1", "alice2"])
    request = link(ALICE, identity, ALICE.address_of(2))

    async def is_cut() -> bool:
        await machine.sh("sudo rm /etc/wireguard/splitplane.conf")  # So that there is something to do.
        with contextlib.suppress(Unreachable):
            async with fleet.access.connect(machine.target) as session:
                step = asyncio.create_task(join_mesh(session, request))
                await _kill_logins(machine)
                await step
            return False  # On a busy machine the step may end before it is killed.
        return True

    for _ in range(5):
        if await is_cut():
            break
    else:
        pytest.fail("no step was cut")
    async with fleet.access.connect(machine.target) as session:
        await join_mesh(session, request)
    assert await fleet["alice1"].reaches(ALICE.address_of(2), seconds=10)


async def _kill_logins(machine: Machine) -> None:
    """Cut every SSH connection of ours on the machine, this one last."""
    with contextlib.suppress(asyncssh.Error, OSError):  # Our own line is cut as well.
        await machine.sh("sudo systemd-run --quiet --collect pkill -KILL -f '^sshd: splitplane'; sleep 5")


async def test_missing_tools_are_installed_or_fail_the_step(fleet: Fleet) -> None:
    """These machines reach no mirror: first the real apt-get fails, then a simulated one installs the tool."""
    machine = fleet["bob1"]
    shop = '#!/bin/sh\ncase "$*" in *install*wireguard-tools*) mv /usr/bin/wg.away /usr/bin/wg;; esac\n'
    await machine.sh("sudo mv /usr/bin/wg /usr/bin/wg.away")
    async with fleet.access.connect(machine.target) as session:
        with pytest.raises(StepFailed, match="this machine lacks wireguard-tools, and could not install it"):
            await mesh_public_key(session)
        await machine.sh(
            f"sudo mv /usr/bin/apt-get /usr/bin/apt-get.away; sudo tee /usr/bin/apt-get <<< {shlex.quote(shop)}"
        )
        await machine.sh("sudo chmod +x /usr/bin/apt-get")
        try:
            await mesh_public_key(session)
        finally:
            await machine.sh("sudo mv /usr/bin/apt-get.away /usr/bin/apt-get")


async def test_a_member_of_an_overlay_has_its_tunnels_again_after_systemd_restarts_them(fleet: Fleet) -> None:
    names = ("alice1", "alice2")
    targets = {name: fleet[name].target for name in names}
    members = []
    for number, name in enumerate(names, start=1):
        async with fleet.access.connect(targets[name]) as session:
            key = await make_node_key(session)
        members.append(Member(number, key, number, f"{targets[name].address}:51820"))
    overlay = Overlay(2, servers=members[:1], nodes={None: members[1:]})
    for name, configuration in zip(names, configurations(overlay), strict=True):
        async with fleet.access.connect(targets[name]) as session:
            assert (
                await configure(session, overlay, configuration)
            ).public_key == configuration.member.public_key
    async with fleet.access.connect(targets["alice2"]) as session:
        assert await largest_packet(session, address_of(2, 1)) == 1_420
        unit = "wg-quick@spoverlay.service"
        assert (await fleet["alice2"].sh(f"systemctl is-enabled {unit}")).strip() == "enabled"
        await fleet["alice2"].sh(f"sudo systemctl restart {unit}")
        assert await largest_packet(session, address_of(2, 1)) == 1_420
        await leave_overlay(session)
        with pytest.raises(StepFailed, match="no interface"):
            await read_peers(session)
    async with fleet.access.connect(targets["alice1"]) as session:
        await leave_overlay(session)


async def test_a_dropped_network_is_gone_with_its_key(fleet: Fleet) -> None:
    before = await _enrol(fleet, BOB, ["bob1"])
    for _ in range(2):
        await fleet.hub.drop(BOB)
    assert not await fleet["bob1"].reaches(BOB.hub_address)
    places = "/etc/splitplane/mesh /run/netns /run/wireguard /etc/systemd/system/multi-user.target.wants"
    left = await fleet["hub"].sh(f"sudo ls {places} 2>&1 || true")
    assert f"{ALICE.number}.key" in left, "looked in the wrong place"
    assert str(BOB.number) not in left
    after = await _enrol(fleet, BOB, ["bob1"])
    assert after.endpoint == before.endpoint
    assert after.public_key != before.public_key


async def test_the_whole_bootstrap_shows_no_secret_in_process_lists(fleet: Fleet) -> None:
    """Commands carry scripts and public values only; a planted watcher sees every command line there is."""
    machine = fleet["alice2"]
    await machine.sh(
        "sudo sh -c 'touch /tmp/watches; nohup timeout 120 sh -c \"while [ -e /tmp/watches ]; do"
        " cat /proc/[0-9]*/cmdline; done > /tmp/seen 2>/dev/null\" > /dev/null 2>&1 &'"
    )
    await _enrol(fleet, ALICE, ["alice1", "alice2"])
    secret = (await machine.sh("sudo rm /tmp/watches; sudo cat /etc/wireguard/splitplane.key")).strip()
    seen = (await machine.sh("sudo cat /tmp/seen | tr '\\0' ' '")).strip()
    assert "wg pubkey" in seen or "wg genkey" in seen, "the watcher saw nothing"
    assert secret not in seen
    assert json.dumps(secret) not in seen
