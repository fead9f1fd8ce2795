"""Simulated members of overlays, for development without root, and for scenario tests.

It checks what the real ones check: a packet passes a tunnel only while both ends list each other.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_plane.access.port import StepFailed, Target
from data_plane.access.turns import OUTDATED
from data_plane.mesh.members import ServerAway
from data_plane.mesh.node import peers_text
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from data_plane.mesh.tunnels import Interface, Tunnel
from data_plane.simulation.faults import Faults

MTU = 1_420


@dataclass
class FakeMember:
    """What has been done to one member."""

    keys_made: int = 0
    key: str | None = None
    next_key: str | None = None
    place: OverlayPlace | None = None
    peers: tuple[OverlayPeer, ...] = ()
    fence: int = 0

    def made_key(self, machine: Target) -> str:
        if self.key is None:
            self.key = self._new_key(machine)
        return self.key

    def made_next_key(self, machine: Target, *, fresh: bool) -> str:
        if self.next_key is None or fresh:
            self.next_key = self._new_key(machine)
        return self.next_key

    def switch_key(self, key: str) -> None:
        if self.key == key:
            return
        if self.next_key != key:
            raise StepFailed("switch node key", 66, "this machine has another next key")
        self.key, self.next_key = key, None

    def lists(self, key: str | None) -> bool:
        """Whether it has a tunnel, with addresses, to the member with this key."""
        return any(peer.public_key == key and peer.allowed for peer in self.peers)

    def is_at(self, address: str) -> bool:
        return self.place is not None and self.place.address == address

    def _new_key(self, machine: Target) -> str:
        self.keys_made += 1
        seed = f"{machine.address} {machine.host_key} {self.keys_made}"
        return base64.b64encode(hashlib.sha256(seed.encode()).digest()).decode()


@dataclass
class FakeMembers:
    """`mesh.members.Members`. The calls that `faults` knows have the names of its methods."""

    faults: Faults = field(default_factory=Faults)
    members: dict[str, FakeMember] = field(default_factory=dict[str, FakeMember])
    """By the addresses of their machines."""
    packets: dict[str, int] = field(default_factory=dict[str, int])
    """The largest packet that a machine's paths carry, by its address, where it is less than 1,420 bytes."""
    deaf: set[str] = field(default_factory=set[str])
    """The addresses of machines whose tunnels carry nothing."""
    behind_nat: set[str] = field(default_factory=set[str])
    """The addresses of machines that nothing reaches from outside."""

    async def make_key(self, member: Target) -> str:
        found = self._of(member)
        return self.faults.call("make_key", member, lambda: found.made_key(member))

    async def apply(
        self, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer], *, fence: int | None = None
    ) -> Interface:
        return self.faults.call("apply", member, lambda: self._apply(member, place, peers, fence))

    async def read(self, member: Target) -> Interface:
        return self.faults.call("read", member, lambda: self._interface("read peers", self._of(member)))

    async def probe(self, member: Target, address: str) -> int | None:
        return self.faults.call("probe", member, lambda: self._probe(member, address))

    async def hears(self, member: Target, server: Target) -> bool:
        if server.address in self.faults.gone:
            raise ServerAway("the cluster's server: no route to host")
        return self.faults.call("hears", member, lambda: member.address not in self.behind_nat)

    async def make_next_key(self, member: Target, *, fresh: bool = False) -> str:
        found = self._of(member)
        return self.faults.call("make_next_key", member, lambda: found.made_next_key(member, fresh=fresh))

    async def switch_key(self, member: Target, key: str) -> None:
        self.faults.call("switch_key", member, lambda: self._of(member).switch_key(key))

    def _of(self, member: Target) -> FakeMember:
        return self.members.setdefault(member.address, FakeMember())

    def _apply(
        self, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer], fence: int | None
    ) -> Interface:
        found = self._of(member)
        if fence is not None and fence < found.fence:
            raise StepFailed("apply peers", OUTDATED, "this machine was set up by a later worker")
        found.fence = found.fence if fence is None else fence
        try:
            peers_text(peers)
        except ValueError as error:
            raise StepFailed("apply peers", None, str(error)) from None
        if found.key is None:
            raise StepFailed("apply peers", 66, "this machine has no node key")
        found.place, found.peers = place, tuple(peers)
        return self._interface("apply peers", found)

    def _probe(self, member: Target, address: str) -> int | None:
        found = self._of(member)
        other = next((each for each in self.members.values() if each.is_at(address)), None)
        passes = other is not None and found.lists(other.key) and other.lists(found.key)
        return self.packets.get(member.address, MTU) if passes else None

    def _interface(self, step: str, member: FakeMember) -> Interface:
        if member.place is None or member.key is None:
            raise StepFailed(step, 66, "there is no interface")
        tunnels = tuple(self._tunnel(member.key, peer) for peer in member.peers)
        return Interface(member.key, member.place.port, tunnels)

    def _tunnel(self, key: str, peer: OverlayPeer) -> Tunnel:
        ends = {other.key: address for address, other in self.members.items() if other.key is not None}
        others = [other for other in self.members.values() if other.key == peer.public_key]
        passes = not {ends.get(key), ends.get(peer.public_key)} & self.deaf
        answers = passes and any(other.lists(key) for other in others)
        handshake = 5 if answers else None
        return Tunnel(peer.public_key, frozenset(peer.allowed), peer.endpoint, peer.keepalive, handshake)
