"""Simulated machines, for development without root, scenario tests, demos and benchmarks. No IO, clock or waiting.

A simulated machine takes the same steps as a real one and prints the same documents. Machines are identified by their
address. A script, set before the reconciler connects, says what goes wrong on a machine:

    access = FakeAccess(hardware=lambda target: eight_h100s())
    access.script("10.0.0.7", unreachable=3)                 # three failures, then it works
    access.script("10.0.0.8", host_key_changed=True)         # always
    access.script("10.0.0.9", step_fails={"join mesh": 1})   # once
"""

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from configparser import ConfigParser
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import IPv4Interface, IPv4Network
from uuid import UUID

from data_plane.access.customer import ADMIT_CUSTOMER, END_CUSTOMER
from data_plane.access.line import Frame, Line, LineBroken
from data_plane.access.login import CLOSE_OTHER_LOGINS, TRUST_AUTHORITIES
from data_plane.access.port import HostKeyChanged, LoginRefused, Target, Unreachable
from data_plane.access.revocation import REVOKE
from data_plane.access.step import Answer, Step
from data_plane.documents import protocol, records, strict
from data_plane.documents.agent_config import Config
from data_plane.documents.health import GpuHealth, Health, Recovery, Throttle, Usage
from data_plane.documents.heartbeat import Result
from data_plane.documents.inventory import Inventory
from data_plane.documents.sample import Sample
from data_plane.inspection.agent import FIND_AGENT
from data_plane.inspection.agent_service import INSTALL_AGENT
from data_plane.inspection.boot import READ_BOOT
from data_plane.inspection.boot_journal import READ_BOOT_JOURNAL
from data_plane.inspection.gpus import RUN_AGENT
from data_plane.inspection.health import READ_HEALTH
from data_plane.mesh.firewall import APPLY_FIREWALL, READ_FIREWALL
from data_plane.mesh.machine import JOIN_MESH, MESH_KEY, WARM_MESH
from data_plane.mesh.port import FIRST_PORT, MeshLink, Network, Peer
from data_plane.simulation.hub import FakeHub
from data_plane.simulation.samples import SampleScript

Hook = Callable[[Target, str], Awaitable[None]]
"""Awaited before every step, with the step's name or `connect`. It can be slow or raise to simulate a crash."""
_LONG = timedelta(days=1)


async def _at_once(_target: Target, _step: str) -> None:
    return


@dataclass
class FakeMachine:
    """One machine: what will go wrong on it, and what has been done to it."""

    unreachable: int = 0
    """How many more connections fail."""
    login_refused: int = 0
    host_key_changed: bool = False
    step_fails: dict[str, int] = field(default_factory=dict[str, int])
    """How many more times a step fails, by its name: `trust authorities`, `admit customer`, `make mesh key`,
    `warm mesh`, `join mesh`, `run agent`, `read health`, `find agent` (before the prover starts), `install agent`,
    `end customer`, `read boot id`, `read boot journal`, `apply firewall`, `read firewall`."""
    breaks_in: set[str] = field(default_factory=set[str])
    """Steps, `prove` included, during which the connection breaks once, after the step took effect."""
    inventory: Inventory | None = None
    """What the machine says instead of its true hardware."""
    health: Health | None = None
    """What the machine says about its cards' state, instead of idle and healthy."""

    host_key: str | None = None
    """The host key of the first target that reached it. Another key at the same address belongs to another machine."""
    principal: str | None = None
    """What the certificate of the first login named. The machine accepts no other."""
    authorities: tuple[str, ...] = ()
    """The authorities that it trusts."""
    revoked: tuple[int, ...] = ()
    ended_sessions: str | None = None
    """Which sessions ended with the last revocation: those of `revoked` certificates, or `every` one."""
    """The serials of certificates that it refuses."""
    customer: str | None = None
    """The principal that logs in as the customer; None while nobody can."""
    mesh_key: str | None = None
    link: MeshLink | None = None
    firewall: str | None = None
    """The rules that it was given; None while it has none."""
    agent: Config | None = None
    """What its agent was installed with; None while none is."""
    samples: SampleScript = field(default_factory=SampleScript)
    """What happens to its cards in what its agent samples."""
    agent_sequence: int = 0
    """Of the last heartbeat that the agent delivered."""
    agent_result: Result | None = None
    """What the agent reports next."""
    boots: int = 1
    booted_at: datetime | None = None
    """When it booted last; None for its first boot, long ago."""
    journal: bytes = b"simulated systemd[1]: Reached target multi-user.target.\n"
    """Of its last boot."""
    off: bool = False
    """Nothing answers at its address."""
    hardware: Inventory | None = None
    """What it had when its agent was installed."""
    calls: list[str] = field(default_factory=list[str])

    def sample(self, at_ms: int) -> Sample:
        """What its agent reads at this moment: what its health document and its script say."""
        nothing = Inventory(source="emulated", driver_version="", gpus=())
        return self.samples.sample(self.health or idle(self.inventory or self.hardware or nothing), at_ms)


@dataclass
class FakeAccess:
    """`port.Access` to FakeMachines. Without a script, nothing goes wrong on a machine."""

    hardware: Callable[[Target], Inventory]
    """The true hardware of a machine. `ancestors` may be empty."""
    hub: FakeHub | None = None
    """If given, joining the network checks what the real step checks: that this hub knows the machine."""
    before: Hook = _at_once
    proving: Callable[[Target], Line] | None = None
    """Makes the line to a machine's prover, in this process. Without it, no machine has a prover."""
    machines: dict[str, FakeMachine] = field(default_factory=dict[str, FakeMachine])
    now: Callable[[], datetime] | None = None
    """Without it, machines that boot anew say that they are up for long."""

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
        inventory: Inventory | None = None,
    ) -> FakeMachine:
        """Set what goes wrong from now on at the machine with this address. What has been done to it stays."""
        machine = self.machine(address)
        machine.unreachable = unreachable
        machine.login_refused = login_refused
        machine.host_key_changed = host_key_changed
        machine.step_fails = dict(step_fails or {})
        machine.breaks_in = set(breaks_in or ())
        machine.inventory = inventory
        return machine

    def forget(self, address: str) -> None:
        """Remove the machine. The next machine with this address is a new one."""
        self.machines.pop(address, None)

    def switch(self, before: str, address: str, *, off: bool) -> None:
        """The machine is switched off, or boots with everything that is on its disk and has this address then."""
        machine = self.machine(before)
        machine.off = off
        if not off:
            machine.boots, machine.booted_at = machine.boots + 1, self.now and self.now()
        self.machines[address] = self.machines.pop(before)

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator["FakeSession"]:
        await self.before(target, "connect")
        machine = self.machine(target.address)
        machine.calls.append("connect")
        where = f"{target.address} port {target.port}"
        if machine.off:
            raise Unreachable(f"{where}: no route to host")
        if machine.unreachable > 0:
            machine.unreachable -= 1
            raise Unreachable(f"{where}: connection refused")
        if machine.host_key is None:
            machine.host_key = target.host_key
        if machine.host_key_changed or machine.host_key != target.host_key:
            raise HostKeyChanged(f"{where} shows another host key than the one we gave the machine")
        if machine.login_refused > 0:
            machine.login_refused -= 1
            raise LoginRefused(f"{where} does not accept our certificate")
        if machine.principal is None:
            machine.principal = target.principal
        if machine.principal != target.principal:
            raise LoginRefused(f"{where} does not accept a certificate for {target.principal}")
        yield FakeSession(self, target, machine)


@dataclass
class FakeSession:
    """`port.Session` on a simulated machine: does what the scripts of the steps do.

    Simulated machines have every agent from the start, so none is pushed.
    """

    access: FakeAccess
    target: Target
    machine: FakeMachine

    async def run(
        self,
        step: Step,
        arguments: Sequence[str] = (),
        *,
        stdin: bytes = b"",
        private: Sequence[str] = (),  # noqa: ARG002 - the signature of a Session; nothing here fails with secrets
    ) -> Answer:
        effects: dict[str, Callable[[bytes], Answer]] = {
            CLOSE_OTHER_LOGINS.name: lambda _: _printed(b""),
            TRUST_AUTHORITIES.name: self._trust_authorities,
            REVOKE.name: lambda serials: self._revoke(serials, *arguments),
            ADMIT_CUSTOMER.name: lambda _: self._admit_customer(arguments[0]),
            END_CUSTOMER.name: self._end_customer,
            MESH_KEY.name: self._make_mesh_key,
            WARM_MESH.name: self._make_mesh_key,
            JOIN_MESH.name: self._join_mesh,
            FIND_AGENT.name: lambda _: _printed(b""),
            RUN_AGENT.name: self._print_inventory,
            READ_HEALTH.name: self._print_health,
            APPLY_FIREWALL.name: self._apply_firewall,
            READ_FIREWALL.name: self._read_firewall,
            INSTALL_AGENT.name: self._install_agent,
            READ_BOOT.name: self._print_boot,
            READ_BOOT_JOURNAL.name: lambda _: _printed(self.machine.journal),
        }
        await self._begin(step)
        left = self.machine.step_fails.get(step.name, 0)
        if left > 0:
            self.machine.step_fails[step.name] = left - 1
            return _failed(1, "scripted to fail")
        answer = effects[step.name](stdin)
        if answer.exit_status == 0 and self._breaks(step):
            raise Unreachable(f"{step.name}: the connection broke")
        return answer

    @asynccontextmanager
    async def converse(self, step: Step, arguments: Sequence[str] = ()) -> AsyncIterator[Line]:  # noqa: ARG002 - the signature of a Session
        await self._begin(step)
        if self.access.proving is None:
            raise Unreachable(f"{step.name}: this simulated machine has no prover")
        line = self.access.proving(self.target)
        yield _BrokenLine(line) if self._breaks(step) else line

    async def _begin(self, step: Step) -> None:
        await self.access.before(self.target, step.name)
        self.machine.calls.append(step.name)

    def _breaks(self, step: Step) -> bool:
        breaks = step.name in self.machine.breaks_in
        self.machine.breaks_in.discard(step.name)
        return breaks

    def _trust_authorities(self, lines: bytes) -> Answer:
        self.machine.authorities = tuple(lines.decode().splitlines())
        return _printed(b"")

    def _revoke(self, serials: bytes, whose: str) -> Answer:
        self.machine.revoked = tuple(int(line) for line in serials.split())
        self.machine.ended_sessions = whose
        return _printed(b"")

    def _admit_customer(self, principal: str) -> Answer:
        self.machine.customer = principal
        return _printed(b"")

    def _end_customer(self, _: bytes) -> Answer:
        self.machine.customer = None
        return _printed(b"")

    def _make_mesh_key(self, _: bytes) -> Answer:
        if self.machine.mesh_key is None:
            seed = f"{self.target.address} {self.target.host_key}".encode()
            self.machine.mesh_key = base64.b64encode(hashlib.sha256(seed).digest()).decode()
        return _printed(self.machine.mesh_key.encode())

    def _join_mesh(self, config: bytes) -> Answer:
        if self.machine.mesh_key is None:
            return _failed(66, "this machine has no mesh key")
        self.machine.link = link = _link(config.decode())
        if self.access.hub is not None and not _answers(self.access.hub, link, self.machine.mesh_key):
            return _failed(1, "the hub did not answer through the tunnel within 12 s")
        return _printed(b"")

    def _apply_firewall(self, rules: bytes) -> Answer:
        self.machine.firewall = rules.decode()
        return self._read_firewall(b"")

    def _read_firewall(self, _: bytes) -> Answer:
        if self.machine.firewall is None:
            return _printed(b"none")
        return _printed(hashlib.sha256(self.machine.firewall.encode()).hexdigest().encode())

    def _install_agent(self, config: bytes) -> Answer:
        agent = records.read(Config, strict.load(config, len(config)), "configuration")
        if self.machine.link is not None and self.machine.link.address != agent.own:
            return _failed(1, "this machine has another address in its network")
        self.machine.agent, self.machine.hardware = agent, self._inventory()
        return _printed(b"")

    def _print_inventory(self, _: bytes) -> Answer:
        inventory = self._inventory()
        nothing_known = ((None,) * len(inventory.gpus),) * len(inventory.gpus)
        return _printed(protocol.encode(replace(inventory, ancestors=nothing_known)).encode())

    def _print_health(self, _: bytes) -> Answer:
        return _printed(protocol.encode(self.machine.health or idle(self._inventory())).encode())

    def _print_boot(self, _: bytes) -> Answer:
        seed = f"{self.target.host_key} {self.machine.boots}".encode()
        booted_at, now = self.machine.booted_at, self.access.now
        up = _LONG if booted_at is None or now is None else now() - booted_at
        boot_id = UUID(bytes=hashlib.sha256(seed).digest()[:16])
        return _printed(f"{boot_id}\n{up.total_seconds():.2f} 1.00\n".encode())

    def _inventory(self) -> Inventory:
        return self.machine.inventory or self.access.hardware(self.target)


def idle(inventory: Inventory) -> Health:
    """A health document in which these cards are idle and healthy."""
    return Health(
        source=inventory.source,
        at=0,
        gpus=tuple(
            GpuHealth(
                index=gpu.index,
                uuid=gpu.uuid,
                bus_id=None,
                lost=False,
                usage=Usage(
                    memory_used_mib=0, utilisation_percent=0, compute_processes=0, graphics_processes=0
                ),
                throttle=Throttle(reasons=1),
                recovery=Recovery(action=0),
            )
            for gpu in inventory.gpus
        ),
        xids=(),
        xids_dropped=0,
        events=False,
        kernel_log="kmsg",
        readings=(),
    )


@dataclass
class _BrokenLine:
    """Accepts orders, and breaks before the first answer."""

    line: Line

    async def send(self, frame: bytes) -> float:
        return await self.line.send(frame)

    async def receive(self, bytes_max: int, seconds: float) -> Frame:  # noqa: ARG002 - the signature of a Line
        raise LineBroken("the connection broke")


def _printed(output: bytes) -> Answer:
    return Answer(0, output, "")


def _failed(exit_status: int, detail: str) -> Answer:
    return Answer(exit_status, b"", detail)


def _link(config: str) -> MeshLink:
    """The link that a machine's wg-quick file describes."""
    parsed = ConfigParser(interpolation=None)
    parsed.read_string(config)
    network, peer = IPv4Network(parsed["Peer"]["AllowedIPs"]), parsed["Peer"]
    return MeshLink(
        address=str(IPv4Interface(parsed["Interface"]["Address"]).ip),
        network=str(network),
        hub_address=str(network.network_address + 1),
        hub_public_key=peer["PublicKey"],
        hub_endpoint=peer["Endpoint"],
    )


def _answers(hub: FakeHub, link: MeshLink, mesh_key: str) -> bool:
    port = int(link.hub_endpoint.rpartition(":")[2])
    network = Network(port - FIRST_PORT, IPv4Network(link.network))
    right = hub.identity(network)
    known = Peer(link.address, mesh_key) in hub.networks.get(network.number, ())
    return known and (link.hub_public_key, link.hub_endpoint) == (right.public_key, right.endpoint)
