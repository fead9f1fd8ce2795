"""The firewall of a machine in a real kernel: who reaches which of its ports, and what never changes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from data_plane.access.port import StepFailed, must
from data_plane.mesh.firewall import APPLY_FIREWALL, FILE, Opening, apply_firewall, read_firewall
from tests.support.underlay import Host, missing_requirements, underlay

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("firewall"),  # They share the hosts.
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

MACHINE, FRIEND, STRANGER = "198.51.100.10", "198.51.100.20", "198.51.100.30"
FRIENDS = Opening("tcp", 8080, 8081, (f"{FRIEND}/32", f"{FRIEND}/31", "2001:db8::20/128"))
ANYBODY = ("0.0.0.0/0", "::/0")

# Answers on TCP and UDP ports with what it was sent. Started once; it ends with its host.
_SERVE = r"""
import selectors, socket, sys

ready = selectors.DefaultSelector()
for word in sys.argv[1:]:
    protocol, port = word.split("/")
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    found = socket.socket(socket.AF_INET6, kind)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("::", int(port)))
    if protocol == "tcp":
        found.listen()
    ready.register(found, selectors.EVENT_READ, protocol)
print("up", flush=True)
while True:
    for key, _ in ready.select():
        if key.data == "udp":
            data, sender = key.fileobj.recvfrom(64)
            key.fileobj.sendto(data, sender)
        elif key.data == "tcp":
            client, _ = key.fileobj.accept()
            ready.register(client, selectors.EVENT_READ, "client")
        else:
            data = key.fileobj.recv(64)
            key.fileobj.sendall(data) if data else (ready.unregister(key.fileobj), key.fileobj.close())
"""
_KNOCK = r"""
import socket, sys, threading

answered = []

def knock(word):
    address, protocol, port = word.split("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    found.settimeout(0.7)
    try:
        found.connect((address, int(port)))
        found.send(b"?")
        if found.recv(1) == b"?":
            answered.append(word)
    except OSError:
        pass

threads = [threading.Thread(target=knock, args=(word,)) for word in sys.argv[1:]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*sorted(answered))
"""
PORTS = ("tcp/22", "tcp/2222", "tcp/8080", "tcp/8081", "tcp/9000", "udp/8080", "udp/9000", "udp/51820")


@dataclass
class World:
    machine: Host
    friend: Host
    stranger: Host

    async def reached(self, host: Host, *ports: str, at: str = MACHINE) -> set[str]:
        words = [f"{at}/{port}" for port in ports or PORTS]
        program = 'program=$1; shift; exec python3 -I -c "$program" "$@"'
        found = (await host.sh(program, _KNOCK, *words)).split()
        return {word.removeprefix(f"{at}/") for word in found}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world() -> AsyncIterator[World]:
    async with underlay() as internet:
        machine, friend, stranger = [
            await internet.connect(name, number)
            for name, number in (("machine", 10), ("friend", 20), ("stranger", 30))
        ]
        for host, number in ((machine, 10), (friend, 20), (stranger, 30)):
            await host.sh("ip address add 2001:db8::$1/64 dev up0 nodad", str(number))
        serve = 'program=$1; shift; python3 -I -c "$program" "$@" > /run/served 2>&1 & while ! grep -q up /run/served; do sleep 0.02; done'
        await machine.sh(serve, _SERVE, *PORTS, "tcp/80")
        yield World(machine, friend, stranger)


async def test_without_rules_every_port_is_closed_but_those_of_ssh_and_wireguard(world: World) -> None:
    assert await world.reached(world.stranger) == set(PORTS), "nothing filters before"
    await apply_firewall(world.machine, [], ssh_port=2222)
    for at in (MACHINE, "2001:db8::10"):
        assert await world.reached(world.stranger, at=at) == {"tcp/22", "tcp/2222", "udp/51820"}, at
    assert await world.reached(world.machine, at="127.0.0.1") == set(PORTS), "the machine itself reaches all"


async def test_a_rule_opens_its_ports_to_its_sources_alone_and_closes_them_with_its_end(world: World) -> None:
    await apply_firewall(world.machine, [FRIENDS, Opening("udp", 9000, 9000, ANYBODY)])
    for at in (MACHINE, "2001:db8::10"):
        ours = {"tcp/22", "udp/51820", "udp/9000"}
        assert await world.reached(world.stranger, at=at) == ours, at
        assert await world.reached(world.friend, at=at) == ours | {"tcp/8080", "tcp/8081"}, at
    await apply_firewall(world.machine, [])
    assert await world.reached(world.friend) == {"tcp/22", "udp/51820"}


async def test_an_open_connection_outlives_a_change_of_rules(world: World) -> None:
    """SSH sessions above all: whoever changes the rules is logged in over one."""
    await apply_firewall(world.machine, [FRIENDS])
    talk = r"""
import socket, sys, time
found = socket.create_connection((sys.argv[1], 8080), timeout=5)
for number in range(40):
    found.sendall(b"%02d" % number)
    assert found.recv(2) == b"%02d" % number
    print(number, flush=True)
    time.sleep(0.05)
"""
    talking = asyncio.create_task(world.friend.sh('exec python3 -I -c "$1" "$2"', talk, MACHINE))
    connected = "ss -Htn state established '( sport = :8080 )'"
    await world.machine.sh(f"until {connected} | grep -q .; do sleep 0.02; done")
    await apply_firewall(world.machine, [])
    assert await world.reached(world.friend, "tcp/8080") == set()
    assert (await talking).split()[-1] == "39"


async def test_rules_that_the_kernel_refuses_leave_the_old_ones_there_and_at_the_next_boot(
    world: World,
) -> None:
    before = await apply_firewall(world.machine, [FRIENDS])
    garbled = b"table inet splitplane\ndelete table inet splitplane\ntable inet splitplane { chain arriving {"
    with pytest.raises(StepFailed):
        await must(world.machine, APPLY_FIREWALL, stdin=garbled)
    assert await read_firewall(world.machine) == before
    assert await world.reached(world.friend, "tcp/8080", "tcp/9000") == {"tcp/8080"}
    await world.machine.sh("nft flush ruleset")  # As after a boot: only what the unit loads comes back.
    start = await world.machine.sh("sed -n s/^ExecStart=//p /etc/systemd/system/splitplane-firewall.service")
    assert FILE in start
    await world.machine.sh(start)
    assert await read_firewall(world.machine) == before
    left = (await world.machine.sh("ls /etc/splitplane")).split()
    assert left == ["firewall.nft"], "what was refused is gone"


async def test_the_digest_tells_whether_the_table_is_ours(world: World) -> None:
    ours = await apply_firewall(world.machine, [FRIENDS])
    assert await apply_firewall(world.machine, [FRIENDS]) == ours
    await world.reached(world.friend)
    assert await read_firewall(world.machine) == ours, "traffic does not change it"
    await world.machine.sh("nft insert rule inet splitplane arriving tcp dport 9000 accept")
    assert await read_firewall(world.machine) not in (ours, None)
    await world.machine.sh("nft delete table inet splitplane")
    assert await read_firewall(world.machine) is None
    assert await apply_firewall(world.machine, [FRIENDS]) == ours


async def test_a_port_that_a_container_publishes_is_decided_by_the_rules_as_well(world: World) -> None:
    """Docker sends it on before the input chain: published ports are open on machines that filter only there."""
    box = (
        "ip netns add box && ip link add docker0 type veth peer name eth0 netns box && ip link set docker0 up;"
        "ip address add 172.17.0.1/16 dev docker0; ip netns exec box ip address add 172.17.0.2/16 dev eth0;"
        "ip netns exec box ip link set eth0 up; ip netns exec box ip link set lo up;"
        "ip netns exec box ip route add default via 172.17.0.1; echo 1 > /proc/sys/net/ipv4/ip_forward;"
        "iptables -t nat -A PREROUTING -p tcp --dport 9100 -j DNAT --to-destination 172.17.0.2:80;"
        'ip netns exec box python3 -I -c "$1" tcp/80 > /run/boxed 2>&1 & '
        "while ! grep -q up /run/boxed; do sleep 0.02; done"
    )
    await world.machine.sh("nft delete table inet splitplane || true")
    await world.machine.sh(box, _SERVE)
    assert await world.reached(world.stranger, "tcp/9100") == {"tcp/9100"}, "nothing filters before"
    await apply_firewall(world.machine, [Opening("tcp", 80, 80, ANYBODY)])
    assert await world.reached(world.stranger, "tcp/9100") == set(), "the container's own port is no leave"
    await apply_firewall(world.machine, [Opening("tcp", 9100, 9100, (f"{FRIEND}/32",))])
    assert await world.reached(world.stranger, "tcp/9100") == set()
    assert await world.reached(world.friend, "tcp/9100") == {"tcp/9100"}
    inside = await world.machine.sh('ip netns exec box python3 -I -c "$1" 172.17.0.1/tcp/9000', _KNOCK)
    assert inside.strip() == "172.17.0.1/tcp/9000", "a container reaches its machine"
