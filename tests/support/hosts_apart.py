"""Hosts of local machines, each with a network of its own, and an internet between them that can be closed.

The internet is a network namespace that routes between the hosts' bridges: machines of different hosts reach each other
through it, and we reach each machine directly, as if from a network for managing them.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from data_plane.access.authority import Authority
from data_plane.access.port import Access
from data_plane.access.ssh import new_host_key
from providers.emulators.host import MachineSpec
from providers.emulators.host_resources import delete_link
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost
from tests.support.machines import Machine, boot_order, ready

ROUTER = 3
"""The number of the router's address in the network of each host."""


@dataclass
class HostsApart:
    authority: Authority
    """Which machines trust that are booted here."""
    access: Access
    hosts: dict[str, NspawnHost] = field(default_factory=dict[str, NspawnHost])
    """By their names."""

    @property
    def namespace(self) -> str:
        return f"spinternet-{os.getpid()}"

    def close_internet(self, host: str) -> None:
        """Cut the machines of a host off the internet. We still reach them."""
        _ip("link", "set", _link(self.hosts[host]), "down")

    def open_internet(self, host: str) -> None:
        _ip("link", "set", _link(self.hosts[host]), "up")

    async def boot(self, host: str, name: str) -> Machine:
        """A machine of our own, whose principal is its name."""
        key = new_host_key()
        await self.hosts[host].boot(MachineSpec(name, boot_order(key, [self.authority], name), ()))
        return Machine(await ready(self.hosts[host], self.access, name, key), self.authority)


@asynccontextmanager
async def hosts_apart(
    names: Sequence[str], image: Path, parts: Path, authority: Authority, access: Access
) -> AsyncIterator[HostsApart]:
    """Hosts with these names, whose machines can become nodes of Kubernetes: `parts` has the programs."""
    apart = HostsApart(authority, access)
    async with AsyncExitStack() as closing:
        _ip("netns", "add", apart.namespace)
        closing.callback(_ip, "netns", "delete", apart.namespace)
        _ip("netns", "exec", apart.namespace, "sysctl", "-q", "net.ipv4.ip_forward=1")
        for name in names:
            apart.hosts[name] = host = await NspawnHost.open(image, nodes=NodeSupport(parts))
            closing.push_async_callback(host.close)
            host.router = host.subnet[ROUTER]
            _plug_in(host, apart.namespace)
        yield apart


def _link(host: NspawnHost) -> str:
    return f"{host.bridge}-net"


def _plug_in(host: NspawnHost, namespace: str) -> None:
    """A cable from a host's bridge to the router."""
    near, far = _link(host), f"{host.bridge}-far"
    # Of an earlier run: the kernel deletes the cables of a deleted namespace a while later.
    delete_link(near)
    _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
    _ip("link", "set", near, "master", host.bridge, "up")
    inside = ("-n", namespace)
    _ip(*inside, "address", "add", f"{host.router}/{host.subnet.prefixlen}", "dev", far)
    _ip(*inside, "link", "set", far, "up")


def _ip(*arguments: str) -> None:
    done = subprocess.run(("ip", *arguments), check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
