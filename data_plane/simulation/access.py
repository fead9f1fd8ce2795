"""Machines on paper, for scenarios, benchmarks and demos without root. No IO, no clock, no waiting.

Machines are known by address. What one does wrong is a script, set before the reconciler calls:

    access = FakeAccess(hardware=lambda target: eight_h100s())
    access.script("10.0.0.7", unreachable=3)                 # three refusals, then fine
    access.script("10.0.0.8", host_key_changed=True)         # for good
    access.script("10.0.0.9", step_fails={"join mesh": 1})   # once
"""

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network

from data_plane.access import bootstrap
from data_plane.access.line import Frame, Line, LineBroken
from data_plane.access.port import (
    AgentBundle,
    GpuHealth,
    GpuReport,
    HealthReport,
    HostKeyChanged,
    LoginRefused,
    MeshLink,
    StepFailed,
    Target,
    Unreachable,
)
from data_plane.mesh.port import NETWORK_PREFIX, RANGE, Network, Peer
from data_plane.simulation.hub import FakeHub

Hook = Callable[[Target, str], Awaitable[None]]
"""Awaited before every step with the step's name, `connect` included: the place to be slow, or to crash."""


async def _at_once(_target: Target, _step: str) -> None:
    return


@dataclass
class FakeMachine:
    """One machine: what it will do wrong, and what was done to it."""

    unreachable: int = 0
    """How many more connections find nobody."""
    login_refused: int = 0
    host_key_changed: bool = False
    step_fails: dict[str, int] = field(default_factory=dict[str, int])
    """How many more times a step fails, by name: `install keys`, `make mesh key`, `join mesh`, `run agent`,
    `read health`, `prove`."""
    breaks_in: set[str] = field(default_factory=set[str])
    """Steps during which the connection breaks once, after the step took effect."""
    report: GpuReport | None = None
    """What it says instead of the truth."""
    health: HealthReport | None = None
    """How it says its cards are, instead of idle and well."""

    host_key: str | None = None
    """The key of the first target that reached it; another key at the same address is another machine."""
    authorized_keys: tuple[str, ...] = ()
    mesh_key: str | None = None
    link: MeshLink | None = None
    calls: list[str] = field(default_factory=list[str])


@dataclass
class FakeAccess:
    """`port.Access` over FakeMachines. Without a script a machine does everything right."""

    hardware: Callable[[Target], GpuReport]
    """What a machine truly is; its `agent_sha256` is filled in with the agent's that asked."""
    hub: FakeHub | None = None
    """If given, joining proves what the real step proves: that this hub knows this machine."""
    before: Hook = _at_once
    proving: Callable[[Target], Line] | None = None
    """Makes the line to a machine's prover, in this process. Without it, no machine can prove anything."""
    machines: dict[str, FakeMachine] = field(default_factory=dict[str, FakeMachine])

    def machine(self, address: str) -> FakeMachine:
        return self.machines.setdefault(address, FakeMachine())

    def script(
        self,
        address: str,
        *,
        unreachable: int = 0,
        login_refused: int = 0,
        host_key_changed: bool = False,
        step_fails: dict[str, int] | None = None,
        breaks_in: set[str] | None = None,
        report: GpuReport | None = None,
    ) -> FakeMachine:
        """Say what the machine at `address` does wrong from now on; what was done to it stays."""
        machine = self.machine(address)
        machine.unreachable = unreachable
        machine.login_refused = login_refused
        machine.host_key_changed = host_key_changed
        machine.step_fails = dict(step_fails or {})
        machine.breaks_in = set(breaks_in or ())
        machine.report = report
        return machine

    def forget(self, address: str) -> None:
        """The machine is gone; whoever gets the address next is a new one."""
        self.machines.pop(address, None)

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator["FakeSession"]:
        await self.before(target, "connect")
        machine = self.machine(target.address)
        machine.calls.append("connect")
        where = f"{target.address} port {target.port}"
        if machine.unreachable > 0:
            machine.unreachable -= 1
            raise Unreachable(f"{where}: connection refused")
        if machine.host_key is None:
            machine.host_key = target.host_key
        if machine.host_key_changed or machine.host_key != target.host_key:
            raise HostKeyChanged(f"{where} shows another host key than the one we gave the machine")
        if machine.login_refused > 0:
            machine.login_refused -= 1
            raise LoginRefused(f"{where} does not accept our key")
        yield FakeSession(self, target, machine)


@dataclass
class FakeSession:
    access: FakeAccess
    target: Target
    machine: FakeMachine

    async def install_keys(self, authorized_keys: Sequence[str]) -> None:
        step = bootstrap.INSTALL_KEYS.name
        await self._begin(step)
        try:
            text = bootstrap.authorized_keys_text(authorized_keys)
        except ValueError as error:
            raise StepFailed(step, None, str(error)) from None
        self.machine.authorized_keys = tuple(text.splitlines())
        self._end(step)

    async def mesh_public_key(self) -> str:
        step = bootstrap.MESH_KEY.name
        await self._begin(step)
        if self.machine.mesh_key is None:
            seed = f"{self.target.address} {self.target.host_key}".encode()
            self.machine.mesh_key = base64.b64encode(hashlib.sha256(seed).digest()).decode()
        self._end(step)
        return self.machine.mesh_key

    async def join_mesh(self, link: MeshLink) -> None:
        step = bootstrap.JOIN_MESH.name
        await self._begin(step)
        try:
            bootstrap.machine_config(link)
        except ValueError as error:
            raise StepFailed(step, None, str(error)) from None
        if self.machine.mesh_key is None:
            raise StepFailed(step, 66, "this machine has no mesh key")
        self.machine.link = link
        if self.access.hub is not None and not _answers(self.access.hub, link, self.machine.mesh_key):
            raise StepFailed(step, 1, "the hub did not answer through the tunnel within 12 s")
        self._end(step)

    async def read_gpus(self, agent: AgentBundle) -> GpuReport:
        step = bootstrap.RUN_AGENT.name
        await self._begin(step)
        report = self.machine.report or self.access.hardware(self.target)
        self._end(step)
        return replace(report, agent_sha256=agent.sha256)

    async def read_health(self, agent: AgentBundle) -> HealthReport:
        step = bootstrap.READ_HEALTH.name
        await self._begin(step)
        health = self.machine.health or idle(self.machine.report or self.access.hardware(self.target))
        self._end(step)
        return replace(health, agent_sha256=agent.sha256)

    @asynccontextmanager
    async def prover(self, agent: AgentBundle) -> AsyncIterator[Line]:  # noqa: ARG002 - nothing to push on paper
        step = bootstrap.PROVE.name
        await self._begin(step)
        if self.access.proving is None:
            raise StepFailed(step, None, "nobody on paper can prove anything here")
        line = self.access.proving(self.target)
        if step in self.machine.breaks_in:
            self.machine.breaks_in.discard(step)
            line = _BrokenLine(line)
        yield line

    async def end_customer(self) -> None:
        step = bootstrap.END_CUSTOMER.name
        await self._begin(step)
        self.machine.authorized_keys = ()
        self._end(step)

    async def _begin(self, step: str) -> None:
        await self.access.before(self.target, step)
        self.machine.calls.append(step)
        left = self.machine.step_fails.get(step, 0)
        if left > 0:
            self.machine.step_fails[step] = left - 1
            raise StepFailed(step, 1, "scripted to fail")

    def _end(self, step: str) -> None:
        if step in self.machine.breaks_in:
            self.machine.breaks_in.discard(step)
            raise Unreachable(f"{step}: the connection broke")


def idle(report: GpuReport) -> HealthReport:
    """These cards with nothing to do and nothing wrong."""
    return HealthReport(
        source=report.source,
        gpus=tuple(
            GpuHealth(
                index=gpu.index,
                uuid=gpu.uuid,
                lost=False,
                processes=0,
                utilisation_percent=0,
                memory_used_mib=0,
                recovery_action=0,
                throttle=1,
                xids=(),
            )
            for gpu in report.gpus
        ),
        xids=(),
        kernel_log_read=True,
        agent_sha256=report.agent_sha256,
    )


@dataclass
class _BrokenLine:
    """Takes one order, and is gone before the answer."""

    line: Line

    async def send(self, frame: bytes) -> float:
        return await self.line.send(frame)

    async def receive(self, bytes_max: int, seconds: float) -> Frame:  # noqa: ARG002 - as a Line has it
        raise LineBroken("the connection broke")


def _answers(hub: FakeHub, link: MeshLink, mesh_key: str) -> bool:
    start = int(IPv4Network(link.network).network_address) - int(RANGE.network_address)
    network = Network(start >> (32 - NETWORK_PREFIX))
    right = hub.identity(network)
    known = Peer(link.address, mesh_key) in hub.networks.get(network.number, ())
    return known and (link.hub_public_key, link.hub_endpoint) == (right.public_key, right.endpoint)
