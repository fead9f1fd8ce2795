"""A simulated hub, for development without root, scenario tests and benchmarks. It checks what the real one checks."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_plane.access.port import AccessError, StepFailed
from data_plane.access.turns import OUTDATED
from data_plane.mesh.hub_scripts import peers_text
from data_plane.mesh.port import HubIdentity, Network, Peer, ReadAuthorities


@dataclass
class FakeHub:
    """Remembers every network's peers. Each call raises the first entry of `fail_next`, if any, and changes nothing."""

    host: str = "198.51.100.1"
    networks: dict[int, tuple[Peer, ...]] = field(default_factory=dict[int, tuple[Peer, ...]])
    fail_next: list[AccessError] = field(default_factory=list[AccessError])
    calls: int = 0
    authorities: tuple[str, ...] = ()
    """The SSH authorities that it was told to trust."""
    _generations: dict[int, int] = field(default_factory=dict[int, int])
    _fences: dict[int, int] = field(default_factory=dict[int, int])

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        self._call()
        self._keep_fence("sync hub", network, fence)
        try:
            peers_text(network, peers)
        except ValueError as error:
            raise StepFailed("sync hub", None, str(error)) from None
        self.networks[network.number] = tuple(peers)
        return self.identity(network)

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        self._call()
        self._keep_fence("drop network", network, fence)
        if self.networks.pop(network.number, None) is not None:
            self._generations[network.number] = self._generations.get(network.number, 0) + 1

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        self._call()
        self.authorities = tuple(await read())
        return self.authorities

    def rebuild(self) -> None:
        """Lose every network, its key and its fence, as a host that is built anew without its files."""
        for number in self.networks:
            self._generations[number] = self._generations.get(number, 0) + 1
        self.networks.clear()
        self._fences.clear()

    def identity(self, network: Network) -> HubIdentity:
        """The hub's identity in a network. As on the real hub, its key changes only when it is lost."""
        seed = f"{self.host} {network.number} {self._generations.get(network.number, 0)}"
        key = base64.b64encode(hashlib.sha256(seed.encode()).digest()).decode()
        return HubIdentity(key, f"{self.host}:{network.hub_port}")

    def meets(self, network: Network, one: str, other: str) -> bool:
        """Whether the machines with these two addresses can reach each other."""
        addresses = {peer.address for peer in self.networks.get(network.number, ())}
        return one in addresses and other in addresses

    def _keep_fence(self, step: str, network: Network, fence: int | None) -> None:
        if fence is None:
            return
        if fence < self._fences.get(network.number, 0):
            raise StepFailed(step, OUTDATED, "this network was set up by a later worker")
        self._fences[network.number] = fence

    def _call(self) -> None:
        self.calls += 1
        if self.fail_next:
            raise self.fail_next.pop(0)
