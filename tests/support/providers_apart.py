"""Local machines at several providers, each with a network of its own, and an internet between them that can be closed.

The internet is a network namespace that routes between the providers' bridges: machines reach each other through it, and
we reach each machine directly, as if from a network for managing them.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from data_plane.access.authority import Authority, new_authority
from data_plane.access.port import HostKey
from data_plane.access.ssh import SshAccess, new_host_key
from providers.emulators.host import MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.node_support import NodeSupport
from providers.emulators.nspawn import NspawnHost
from tests.support.certificates import our_access
from tests.support.machines import IMAGES, Machine, boot_order, ready

ROUTER = 3
"""The number of the router's address in each provider's network."""


@dataclass
class ProvidersApart:
    authority: Authority
    access: SshAccess
    hosts: dict[str, NspawnHost] = field(default_factory=dict[str, NspawnHost])
    """By the names of their one machine."""
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])

    @property
    def namespace(self) -> str:
        return f"spinternet-{os.getpid()}"

    def close_internet(self, name: str) -> None:
        """Cut the machine's provider off the internet. We still reach the machine."""
        _ip("link", "set", _link(self.hosts[name]), "down")

    def open_internet(self, name: str) -> None:
        _ip("link", "set", _link(self.hosts[name]), "up")

    async def boot(self, name: str, key: HostKey) -> None:
        host = self.hosts[name]
        await host.boot(MachineSpec(name, boot_order(key, [self.authority], name), ()))
        self.machines[name] = machine = Machine(await ready(host, self.access, name, key), self.authority)
        await machine.sh(f"sudo ip route add default via {host.subnet[ROUTER]}")


@asynccontextmanager
async def providers_apart(names: Sequence[str], parts: Path) -> AsyncIterator[ProvidersApart]:
    """One machine for each name, at a provider of its own, that can become a node of Kubernetes."""
    authority = new_authority()
    world = ProvidersApart(authority, our_access(authority))
    image = await asyncio.to_thread(ensure_image, IMAGES, print)
    async with AsyncExitStack() as closing:
        _ip("netns", "add", world.namespace)
        closing.callback(_ip, "netns", "delete", world.namespace)
        _ip("netns", "exec", world.namespace, "sysctl", "-q", "net.ipv4.ip_forward=1")
        for name in names:
            world.hosts[name] = host = await NspawnHost.open(image, nodes=NodeSupport(parts))
            closing.push_async_callback(host.close)
            _plug_in(host, world.namespace)
        await asyncio.gather(*(world.boot(name, new_host_key()) for name in names))
        yield world


def _link(host: NspawnHost) -> str:
    return f"{host.bridge}-net"


def _plug_in(host: NspawnHost, namespace: str) -> None:
    """A cable from a provider's bridge to the router."""
    near, far = _link(host), f"{host.bridge}-far"
    _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
    _ip("link", "set", near, "master", host.bridge, "up")
    inside = ("-n", namespace)
    _ip(*inside, "address", "add", f"{host.subnet[ROUTER]}/{host.subnet.prefixlen}", "dev", far)
    _ip(*inside, "link", "set", far, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)
