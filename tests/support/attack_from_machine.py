"""Tries everything that root on a rented machine can reach with the machine's own files, and prints what works.

It needs Python 3.10 and what is on the machine already, so it runs alone: copy it to a machine of yours and start it as
root. What it changes (a route, a range that a tunnel may carry), it changes back.

    sudo python3 attack_from_machine.py [--neighbour 10.64.0.3] [--stranger 10.65.0.2]
                                        [--node 10.64.16.7 --node-outside 203.0.113.9 --pod 10.48.2.1]
                                        [--api https://api.example.com] [--database db.example.com:5432]

Each line is one of the table in docs/security.md, "What the files of a machine open", which has to say the same. A line
whose files or targets are not there is left out. The exit status is 0 also when something works.
"""

import argparse
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

AGENT = Path("/etc/splitplane/agent.json")
HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
KUBELET = Path("/var/lib/rancher/k3s/agent/client-kubelet.crt")
KUBELET_KEY = KUBELET.with_suffix(".key")
K3S = Path("/etc/rancher/k3s/config.yaml")
COLLECTOR = 9440
INGEST = 9441
VXLAN, VXLAN_PORT, VXLAN_NETWORK = "flannel.1", 8472, 1
"""The device that packs the packets of pods, and what it sends them with."""
PORTS = (22, 53, 80, 111, 443, 2379, 5432, 6443, 8080, 9090, 9100, 10250, 10257, 10259)
"""Where services usually listen: SSH, DNS, HTTP, etcd, PostgreSQL, Kubernetes, metrics."""
OVERLAY = "spoverlay"
"""The interface of the tunnels of a node."""
_IP = 0x0800
SECONDS = 3

CREDENTIAL = "the agent's credential"
TUNNEL = "the WireGuard key"
SSH_KEY = "the SSH host key"
CERTIFICATE = "the kubelet's certificate"
NOTHING = "no file at all"


@dataclass
class Machine:
    """What is on the machine, and what it was told to try."""

    neighbour: str | None = None
    """The address of another machine in its private network."""
    stranger: str | None = None
    """The address of a machine in another private network."""
    node: str | None = None
    """The address, in the overlay, of another node of its organization."""
    node_outside: str | None = None
    """The public address of that node."""
    pod: str | None = None
    """An address in the range of that node's pods, which answers echo requests."""
    api: str | None = None
    database: str | None = None

    @cached_property
    def agent(self) -> "dict[str, Any] | None":
        return json.loads(AGENT.read_text()) if AGENT.exists() else None

    @cached_property
    def hub_key(self) -> str:
        """Of the hub in the private network; empty when the machine is in none."""
        return self._shown("splitplane", "peers")

    @cached_property
    def hub(self) -> str:
        """The hub's public address; empty when the machine is in no private network."""
        endpoint = self._shown("splitplane", "endpoints").partition("\t")[2]
        return endpoint.rpartition(":")[0].strip("[]")

    @cached_property
    def own(self) -> str:
        """The machine's address in its private network."""
        line = _run("ip", "-brief", "-4", "address", "show", "dev", "splitplane").split()
        return line[2].partition("/")[0] if len(line) > 2 else ""

    @cached_property
    def hub_inside(self) -> str:
        """The hub's address in the private network: the first one of its range."""
        network = self._shown("splitplane", "allowed-ips").partition("\t")[2]
        head, _, last = network.partition("/")[0].rpartition(".")
        return f"{head}.{int(last) + 1}" if head else ""

    @cached_property
    def server(self) -> str:
        """The address, in the overlay, of the server of its cluster; empty when the machine is no node."""
        found = re.search(r'server: "?https://([0-9.]+):', K3S.read_text()) if K3S.exists() else None
        return found.group(1) if found else ""

    @cached_property
    def own_pods(self) -> str:
        """The address of the bridge of its pods; empty when it has none."""
        line = _run("ip", "-brief", "-4", "address", "show", "dev", "cni0").split()
        return line[2].partition("/")[0] if len(line) > 2 else ""

    def _shown(self, interface: str, what: str) -> str:
        lines = _run("wg", "show", interface, what).splitlines()
        return lines[0].strip() if lines else ""


def _run(*command: str, seconds: int = 20) -> str:
    """What a command prints; empty when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _opens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), SECONDS).close()
    except OSError:
        return False
    return True


def _reports(machine: Machine, address: str, port: int = COLLECTOR) -> bool:
    """Whether a collector takes a heartbeat with the machine's credential.

    The heartbeat is the first one once more, so that nothing is stored.
    """
    assert machine.agent is not None
    beat = dict.fromkeys(("at", "uptime_seconds", "spooled", "dropped"), 0)
    line = {
        "protocol": 1,
        "kind": "delivery",
        "credential": machine.agent["credential"],
        "heartbeats": [{**beat, "sequence": 1, "boot": "", "result": None}],
    }
    try:
        with socket.create_connection((address, port), SECONDS) as connection:
            connection.sendall(json.dumps(line).encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or "{}")
    except (OSError, ValueError):
        return False
    return answer.get("verdict") in ("accepted", "too_fast")


def _logs_in(address: str) -> bool:
    command = ["ssh", "-F", "none", "-i", str(HOST_KEY), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
    command += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    command += ["-o", f"ConnectTimeout={SECONDS}"]
    return any(_run(*command, f"{user}@{address}", "echo in") for user in ("splitplane", "ubuntu", "root"))


@contextmanager
def _drawn_into_tunnel(machine: Machine, address: str) -> Iterator[None]:
    """Packets for an address outside of the private network go into its tunnel, as whoever has the key can arrange."""
    allowed = machine._shown("splitplane", "allowed-ips").partition("\t")[2].replace(" ", ",")
    peer = ["wg", "set", "splitplane", "peer", machine.hub_key, "allowed-ips"]
    route = [f"{address}/32", "dev", "splitplane"]
    _run(*peer, f"{allowed},{address}/32")
    _run("ip", "route", "add", *route)
    try:
        yield
    finally:
        _run("ip", "route", "del", *route)
        _run(*peer, allowed)


def _reaches_stranger(machine: Machine, stranger: str) -> bool:
    with _drawn_into_tunnel(machine, stranger):
        return _opens(stranger, 22) or bool(_run("ping", "-n", "-q", "-c", "1", "-W", "2", stranger))


def _kubelet_answers(address: str) -> bool:
    """Whether another kubelet says what runs there."""
    context = ssl._create_unverified_context()  # An attacker does not mind whose certificate it is.
    context.load_cert_chain(KUBELET, KUBELET_KEY)
    return _answers(urllib.request.Request(f"https://{address}:10250/pods"), context)


def _answers(request: urllib.request.Request, context: "ssl.SSLContext | None" = None) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
            return int(answer.status) < 400
    except OSError:  # urllib's errors among them.
        return False


def _is_api_key(machine: Machine, api: str) -> bool:
    assert machine.agent is not None
    headers = {"Authorization": f"Bearer {machine.agent['credential']}"}
    return _answers(urllib.request.Request(f"{api.rstrip('/')}/v1/me", headers=headers))


def _database_opens(database: str) -> bool:
    host, _, port = database.rpartition(":")
    return _opens(host, int(port))


def _sum(content: bytes) -> int:
    """The checksum of IP and ICMP."""
    total: int = sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _echo(source: str, target: str, number: int) -> bytes:
    """An echo request, as an IP packet."""
    echo = struct.pack("!BBHHH", 8, 0, 0, number, 1)
    echo = struct.pack("!BBHHH", 8, 0, _sum(echo), number, 1)
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(echo), 0, 0, 64, socket.IPPROTO_ICMP, 0)
    head = struct.pack("!BBHHHBBH", *struct.unpack("!BBHHHBBH", head)[:7], _sum(head + ends)) + ends
    return head + echo


def _packed(mac: str, packet: bytes) -> bytes:
    """A pod's packet in VXLAN, for the device with this MAC."""
    frame = bytes.fromhex(mac.replace(":", "")) + b"\x02\x00\x00\x00\x00\x01" + b"\x08\x00"
    return struct.pack("!BBHI", 8, 0, 0, VXLAN_NETWORK << 8) + frame + packet


def _answers_echo(target: str, number: int, send: Callable[[], object]) -> bool:
    """Whether an echo request with this number, which is sent by `send`, is answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as answers:
        send()
        end = time.monotonic() + SECONDS
        while (left := end - time.monotonic()) > 0:
            answers.settimeout(left)
            try:
                answer, (by, _) = answers.recvfrom(1_500)
            except OSError:
                break
            if by == target and answer[20:21] == b"\0" and answer[24:26] == struct.pack("!H", number):
                return True
    return False


def _answers_vxlan(machine: Machine, member: str, outside: str) -> "bool | None":
    """Whether a pod of another node answers an echo request that is sent, in VXLAN, to an address of a member.

    None where there are no pods, or K3s does not know the device of this member.
    """
    entries = json.loads(_run("bridge", "-json", "fdb", "show", "dev", VXLAN) or "[]")
    macs = [entry["mac"] for entry in entries if entry.get("dst") == member]
    if not macs or not machine.own_pods or not machine.pod:
        return None
    number = os.getpid() & 0xFFFF
    packet = _packed(macs[0], _echo(machine.own_pods, machine.pod, number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return _answers_echo(machine.pod, number, lambda: sender.sendto(packet, (outside, VXLAN_PORT)))


def _answers_pod(machine: Machine, member: str) -> "bool | None":
    """Whether a member answers an echo request of a pod that is sent into the tunnel as it is, past all NAT."""
    if not machine.own_pods:
        return None
    number = (os.getpid() + 1) & 0xFFFF
    packet = _echo(machine.own_pods, member, number)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as sender:
        return _answers_echo(member, number, lambda: sender.sendto(packet, (OVERLAY, _IP)))


Attempt = Callable[[Machine], "bool | None"]
"""Whether it works; None when its files or its target are not there."""
ATTEMPTS: "dict[tuple[str, str], Attempt]" = {
    (CREDENTIAL, "report through the tunnel, for its own lease"): lambda m: (
        _reports(m, m.agent["hub"]) if m.agent else None
    ),
    (CREDENTIAL, "report at the hub's public address"): lambda m: (
        _reports(m, m.hub) if m.agent and m.hub else None
    ),
    (CREDENTIAL, "use the API of the control plane"): lambda m: (
        _is_api_key(m, m.api) if m.agent and m.api else None
    ),
    (TUNNEL, "reach the collector of heartbeats, TCP port 9440 of the hub"): lambda m: (
        _opens(m.hub_inside, COLLECTOR) if m.hub_inside else None
    ),
    (TUNNEL, "reach the ingest process of samples, TCP port 9441 of the hub"): lambda m: (
        _opens(m.hub_inside, INGEST) if m.hub_inside else None
    ),
    (TUNNEL, "reach another TCP port of the hub inside its private network"): lambda m: (
        any(_opens(m.hub_inside, port) for port in PORTS) if m.hub_inside else None
    ),
    (TUNNEL, "reach TCP port 22 of a machine in the same private network"): lambda m: (
        _opens(m.neighbour, 22) if m.neighbour else None
    ),
    (
        TUNNEL,
        "reach a machine in another private network, with its address routed into the tunnel",
    ): lambda m: _reaches_stranger(m, m.stranger) if m.stranger and m.hub_key else None,
    (TUNNEL, "reach the kubelet of another node of its organization, TCP port 10250"): lambda m: (
        _opens(m.node, 10250) if m.node else None
    ),
    (TUNNEL, "send VXLAN to the server of its cluster, for a pod of another node"): lambda m: (
        _answers_vxlan(m, m.server, m.server) if m.server else None
    ),
    (TUNNEL, "reach the server of its cluster from an address of its pods, outside VXLAN"): lambda m: (
        _answers_pod(m, m.server) if m.server else None
    ),
    (CERTIFICATE, "ask the kubelet of another node what runs there"): lambda m: (
        _kubelet_answers(m.node) if m.node and KUBELET.exists() else None
    ),
    (SSH_KEY, "log in to the hub"): lambda m: _logs_in(m.hub) if m.hub else None,
    (SSH_KEY, "log in to a machine in the same private network"): lambda m: (
        _logs_in(m.neighbour) if m.neighbour else None
    ),
    (SSH_KEY, "log in to another node of its organization"): lambda m: _logs_in(m.node) if m.node else None,
    (NOTHING, "reach TCP port 22 at the hub's public address"): lambda m: (
        _opens(m.hub, 22) if m.hub else None
    ),
    (NOTHING, "reach another TCP port at the hub's public address"): lambda m: (
        any(_opens(m.hub, port) for port in (*PORTS, COLLECTOR, INGEST) if port != 22) if m.hub else None
    ),
    (NOTHING, "send VXLAN to the public address of another node, for a pod there"): lambda m: (
        _answers_vxlan(m, m.node, m.node_outside) if m.node and m.node_outside else None
    ),
    (NOTHING, "reach the database of the control plane"): lambda m: (
        _database_opens(m.database) if m.database else None
    ),
}


def tried(machine: Machine) -> "dict[tuple[str, str], bool]":
    """What works, of all that can be tried here."""
    results = {what: attempt(machine) for what, attempt in ATTEMPTS.items()}
    return {what: works for what, works in results.items() if works is not None}


def main(arguments: "list[str]") -> int:
    parser = argparse.ArgumentParser(
        description="Try what root on a rented machine can reach with its files."
    )
    parser.add_argument("--neighbour", help="address of another machine in the same private network")
    parser.add_argument("--stranger", help="address of a machine in another private network")
    parser.add_argument("--node", help="overlay address of another node of the same organization")
    parser.add_argument("--node-outside", help="public address of that node")
    parser.add_argument("--pod", help="address of a pod, or of the bridge of the pods, of that node")
    parser.add_argument("--api", help="URL of the control plane's API")
    parser.add_argument("--database", help="host:port of the control plane's database")
    for (by, what), works in tried(Machine(**vars(parser.parse_args(arguments)))).items():
        sys.stdout.write(f"| {by} | {what} | {'yes' if works else 'no'} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
