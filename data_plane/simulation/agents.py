"""Simulated K3s agents, for development without root, and for scenario tests."""

from collections.abc import Callable
from dataclasses import dataclass, field

from data_plane.access.port import StepFailed, Target
from data_plane.cluster.agents import AgentOrder, Cleaned, Prepared, Started
from data_plane.simulation.members import FakeMembers
from data_plane.simulation.servers import VERSION

PREPARED = Prepared(
    files={"k3s": "0" * 64, "install.sh": "1" * 64},
    kernel="6.1.0-simulated",
    settings={"vm.overcommit_memory": "1"},
    modules=("br_netfilter", "overlay"),
)
LOOKED_FOR = ("processes", "mounts", "links", "files")


@dataclass
class FakeAgents:
    """`cluster.agents.Agents`. What goes wrong is said to the faults of its `members`, by the names of the methods."""

    members: FakeMembers = field(default_factory=FakeMembers)
    """Their tunnels: an agent needs its address there, and cleaning takes it away."""
    prepared: set[str] = field(default_factory=set[str])
    """The addresses of machines that are prepared."""
    running: dict[str, AgentOrder] = field(default_factory=dict[str, AgentOrder])
    """The agents by the addresses of their machines."""
    tokens: set[str] = field(default_factory=set[str])
    """Addresses of machines that have a bootstrap token."""
    left: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What cleaning does not get off a machine, by its address."""

    async def prepare(self, machine: Target) -> Prepared:
        self._call("prepare", machine, lambda: self.prepared.add(machine.address))
        return PREPARED

    async def start(self, order: AgentOrder) -> Started:
        self._call("start", order.machine, lambda: self._start(order))
        return Started(VERSION)

    async def drop_token(self, machine: Target) -> None:
        self._call("drop_token", machine, lambda: self.tokens.discard(machine.address))

    async def stop(self, machine: Target) -> None:
        self._call("stop", machine, lambda: self._stop(machine.address))

    async def clean(self, machine: Target) -> Cleaned:
        self._call("clean", machine, lambda: self._clean(machine.address))
        return Cleaned(self.left.get(machine.address, ()), LOOKED_FOR)

    def _call(self, name: str, machine: Target, effect: Callable[[], None]) -> None:
        self.members.faults.call(name, machine, effect)

    def _start(self, order: AgentOrder) -> None:
        at = order.machine.address
        member = self.members.members.get(at)
        if at not in self.prepared:
            raise StepFailed("start agent", 66, "this machine is not prepared")
        if member is None or not member.is_at(order.address):
            raise StepFailed("start agent", 66, f"this machine does not have the address {order.address}")
        if self.running.get(at) != order:
            self.tokens.add(at)
        self.running[at] = order

    def _stop(self, address: str) -> None:
        self.running.pop(address, None)
        self.tokens.discard(address)

    def _clean(self, address: str) -> None:
        self._stop(address)
        self.prepared.discard(address)
        self.members.members.pop(address, None)
