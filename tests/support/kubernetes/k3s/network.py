"""Pods of different nodes reach each other: VXLAN as flannel makes it, and the bridge of CNI on each node.

Flannel's own program is not to be had, so this sets the same devices, routes and annotations with `ip` and `bridge`,
and the same translation of addresses with `iptables`.
"""

import asyncio
import json
import os
import shutil
from ipaddress import IPv4Network
from pathlib import Path

from tests.support.kubernetes.k3s.api import ApiError
from tests.support.kubernetes.k3s.layout import AUXILIARY
from tests.support.kubernetes.k3s.node import Node
from tests.support.kubernetes.k3s.options import Options
from tests.support.kubernetes.k3s.processes import say, write_private

DEVICE, VNI, PORT = "flannel.1", 1, 8472
MASQUERADE = "FLANNEL-POSTRTG"
OVERHEAD = 50
"""Bytes that VXLAN adds to a packet."""
LOOK_SECONDS = 2.0
ANNOTATION = "flannel.alpha.coreos.com"


class NetworkError(Exception):
    """A command of `ip`, `bridge` or `iptables` failed."""


async def keep(node: Node, options: Options) -> None:
    """Follow the nodes of the cluster for ever. What fails is said and tried again."""
    known: frozenset[tuple[str, str, str]] = frozenset()
    ready = False
    while True:
        try:
            if not ready:
                ready = await _prepare(node, options)
            else:
                known = await _follow(node, known)
        except (ApiError, NetworkError, OSError) as error:
            say(f"level=error msg={f'network: {error}'!r}")
        await asyncio.sleep(LOOK_SECONDS if ready else 0.2)


async def _prepare(node: Node, options: Options) -> bool:
    """Make the device and the configuration of CNI once the node has its range of pods."""
    own = await asyncio.to_thread(node.client().get, f"/api/v1/nodes/{node.name}")
    assert isinstance(own, dict)
    pods = own["spec"].get("podCIDR")
    if not pods:
        return False
    below = options.one("flannel-iface") or await _device_of(node.addresses[0])
    mtu = await _make_device(below, node.addresses[0], IPv4Network(pods))
    await _masquerade(pods)
    await asyncio.to_thread(_annotate, node)
    config = {
        "name": "cbr0",
        "cniVersion": "1.0.0",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "hairpinMode": True,
                "mtu": mtu,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }
    write_private(node.layout.cni / "10-flannel.conflist", json.dumps(config).encode())
    return True


async def _make_device(below: str, address: str, pods: IPv4Network) -> int:
    """The VXLAN device, and what fits through it."""
    if not await asyncio.to_thread(Path(f"/sys/class/net/{DEVICE}").exists):
        kind = (
            "type",
            "vxlan",
            "id",
            str(VNI),
            "dev",
            below,
            "local",
            address,
            "dstport",
            str(PORT),
            "nolearning",
        )
        await _run("ip", "link", "add", DEVICE, *kind)
    mtu = int(await asyncio.to_thread(Path(f"/sys/class/net/{below}/mtu").read_text)) - OVERHEAD
    await _run("ip", "link", "set", DEVICE, "mtu", str(mtu), "up")
    await _run("ip", "address", "replace", f"{pods[0]}/32", "dev", DEVICE)
    await asyncio.to_thread(Path("/proc/sys/net/ipv4/ip_forward").write_text, "1")
    return mtu


async def _masquerade(pods: str) -> None:
    """Packets of pods for what is no pod leave with the address of the node, as flannel has it."""
    nat = (
        shutil.which("iptables", path=f"{os.environ['PATH']}:{AUXILIARY}") or "iptables",
        "-w",
        "-t",
        "nat",
    )
    listed = await _run(*nat, "-S")
    if f"-N {MASQUERADE}\n" not in listed:
        await _run(*nat, "-N", MASQUERADE)
        await _run(*nat, "-A", "POSTROUTING", "-j", MASQUERADE)
    await _run(*nat, "-F", MASQUERADE)
    outside = ("-s", pods, "!", "-d", pods, "!", "-o", DEVICE)
    await _run(*nat, "-A", MASQUERADE, *outside, "-j", "MASQUERADE")


def _annotate(node: Node) -> None:
    """Tell the others where this end is, as flannel does: with the certificate that all agents have, on the status."""
    mac = Path(f"/sys/class/net/{DEVICE}/address").read_text().strip()
    annotations = {
        f"{ANNOTATION}/backend-type": "vxlan",
        f"{ANNOTATION}/backend-data": json.dumps({"VNI": VNI, "VtepMAC": mac}, separators=(",", ":")),
        f"{ANNOTATION}/public-ip": node.addresses[0],
        f"{ANNOTATION}/kube-subnet-manager": "true",
    }
    patch = {"metadata": {"annotations": annotations}}
    kind = "application/strategic-merge-patch+json"
    agent = node.client("client-k3s-controller")
    agent.send("PATCH", f"/api/v1/nodes/{node.name}/status", patch, kind=kind)


async def _follow(node: Node, known: frozenset[tuple[str, str, str]]) -> frozenset[tuple[str, str, str]]:
    """Reach the pods of every other node, and forget those of nodes that are gone."""
    listed = await asyncio.to_thread(node.client("client-k3s-controller").get, "/api/v1/nodes")
    assert isinstance(listed, dict)
    found = frozenset(other for item in listed["items"] if (other := _other(item, node.name)))
    for pods, mac, address in known - found:
        gateway = str(IPv4Network(pods)[0])
        await _run("ip", "route", "flush", pods)
        await _run("ip", "neigh", "flush", gateway, "dev", DEVICE)
        await _run("bridge", "fdb", "delete", mac, "dev", DEVICE, "dst", address)
    for pods, mac, address in found - known:
        gateway = str(IPv4Network(pods)[0])
        await _run("ip", "neigh", "replace", gateway, "lladdr", mac, "nud", "permanent", "dev", DEVICE)
        await _run("bridge", "fdb", "replace", mac, "dev", DEVICE, "dst", address)
        await _run("ip", "route", "replace", pods, "via", gateway, "dev", DEVICE, "onlink")
    return found


def _other(item: dict[str, dict[str, object]], own: str) -> tuple[str, str, str] | None:
    """(range of pods, MAC, address) of another node that has a network."""
    annotations = item["metadata"].get("annotations")
    if item["metadata"]["name"] == own or not isinstance(annotations, dict):
        return None
    data, pods = annotations.get(f"{ANNOTATION}/backend-data"), item["spec"].get("podCIDR")
    if not data or not pods:
        return None
    return str(pods), str(json.loads(data)["VtepMAC"]), str(annotations[f"{ANNOTATION}/public-ip"])


async def _device_of(address: str) -> str:
    listed = json.loads(await _run("ip", "-json", "address", "show", "to", address))
    names = [str(link["ifname"]) for link in listed if link]
    if not names:
        raise NetworkError(f"no interface has the address {address}")
    return names[0]


async def _run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {output.decode(errors='replace').strip()}")
    return output.decode()
