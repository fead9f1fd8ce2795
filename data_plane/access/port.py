"""How the reconciler reaches a rented machine, and the laws both sides keep.

  1. The host key is ours: we put it into the machine before it first boots, so there is no first
     contact on trust. A machine that shows another key is not the one we ordered.
  2. Every step may be repeated: the second time changes nothing and answers the same.
  3. What a machine answers is bounded, parsed and believed only as far as it can be checked; no
     answer moves money or placement (a node is hostile).
  4. Nothing but AccessError leaves, and no error text holds a secret.
  5. Access neither retries nor sleeps between attempts: the next activation is the retry. Every
     step has its own time limit, so a hung machine costs a bounded time.

    AccessError
    |-- Unreachable        no connection, or it broke: nothing is known about the step. Try later
    |-- HostKeyChanged     somebody else answers at this address
    |-- LoginRefused       the right machine, and it does not let us in (yet)
    `-- StepFailed         the machine did the step and it failed, hung, or answered nonsense

A machine that is still booting may show any of the first three for a while: its image's own host key
or no user, until cloud-init has run. Whoever calls decides how long that is normal.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from data_plane.access.line import Line


class AccessError(Exception):
    """A machine could not be reached or made to do what we need."""


class Unreachable(AccessError):  # noqa: N818 - the tree above reads as sentences
    """No connection, or it broke midway: the step may or may not have happened. Try again later."""


class HostKeyChanged(AccessError):  # noqa: N818
    """The machine at this address does not hold the host key we gave it. Nothing was sent to it."""


class LoginRefused(AccessError):  # noqa: N818
    """The right machine does not accept our key or user."""


class StepFailed(AccessError):  # noqa: N818
    """A step on the machine failed.

    `exit_status` is None when the machine did not answer in the step's time, died by a signal, or
    answered something we do not accept. `detail` is printable, bounded, and written by the machine:
    show it, never parse it.
    """

    def __init__(self, step: str, exit_status: int | None, detail: str) -> None:
        super().__init__(
            f"{step}: {detail}" if exit_status is None else f"{step} (exit {exit_status}): {detail}"
        )
        self.step = step
        self.exit_status = exit_status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to reach."""

    address: str
    """IPv4 or IPv6 text."""
    port: int
    host_key: str
    """One OpenSSH public key line, known before first contact: `ssh-ed25519 AAAA...`."""


@dataclass(frozen=True, slots=True)
class HostKey:
    """A machine's SSH identity, made by us and given to it in its user data."""

    private_openssh: str
    """A secret: it goes into user data and nowhere else."""
    public: str
    """One OpenSSH public key line without a newline; `Target.host_key`."""

    def __repr__(self) -> str:
        return f"HostKey(public={self.public!r})"  # A traceback or log line must not show the private half.


@dataclass(frozen=True, slots=True)
class AgentBundle:
    """The agent as one zipapp. Its digest is its name on the machine."""

    content: bytes
    sha256: str
    """Lower-case hex of `content`."""


@dataclass(frozen=True, slots=True)
class MeshLink:
    """What a machine needs to join its tenant's network. Everything here is public."""

    address: str
    """The machine's own address inside, such as `10.64.12.7`."""
    network: str
    """The tenant's network, such as `10.64.12.0/22`."""
    hub_address: str
    """The hub's address inside the network."""
    hub_public_key: str
    """WireGuard public key, base64."""
    hub_endpoint: str
    """`host:port` outside, UDP; an IPv6 host in brackets."""


Sharing = Literal["none", "mig", "vgpu", "unknown"]
"""Whether the card looks whole: `mig` when MIG mode is on, `vgpu` inside a vGPU guest. A hint, not proof."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One card as the machine shows it."""

    index: int
    name: str
    """NVML's product name, such as `NVIDIA H100 80GB HBM3`."""
    uuid: str
    memory_mib: int
    """NVML's total, MiB (1,048,576 bytes), rounded down."""
    sharing: Sharing = "none"
    pci_device_id: str | None = None
    """Vendor and device, such as `10de:2330`; None where the machine did not say."""
    compute_capability: str | None = None
    """Such as `9.0`."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """What the machine says its GPUs are. A claim by a hostile node: check it, do not bill by it."""

    source: Literal["nvml", "emulated"]
    """`emulated` readings come from a file, for machines without GPUs; they prove nothing."""
    driver_version: str
    gpus: tuple[GpuReading, ...]
    """By index, ascending."""
    agent_sha256: str
    """The digest of the agent that we pushed, checked on the machine before it ran; not the machine's word."""
    inventory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The agent's whole document, parsed and bounded (`protocol.DOCUMENT_BYTES_MAX`): evidence, not to decide by."""


@dataclass(frozen=True, slots=True)
class SeenXid:
    """An error that a driver reported. It speaks against its machine, so it may be believed."""

    number: int
    at: int
    """Unix seconds by the machine's clock."""
    bus_id: str | None
    """`0000:3b:00.0`; None where the card could no longer say."""
    of_switch: bool
    """An SXid: the NVSwitch reported it, and `bus_id` is the switch's."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """One card now. None where the driver does not say."""

    index: int
    uuid: str | None
    """None when the card was lost before it could say."""
    lost: bool
    """Off the bus, or mute until it is reset."""
    processes: int | None
    """Compute and graphics processes together; None where compute processes were not counted."""
    utilisation_percent: int | None
    """None under MIG, where NVML does not count it."""
    memory_used_mib: int | None
    recovery_action: int | None
    """NVML's advice: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX domain, 6 bus reset,
    7 system reboot."""
    throttle: int | None
    """NVML's clocks-event reason bits: 1 is idle; 8, 64 and 128 (hardware, thermal, power brake) are bad news."""
    xids: tuple[int, ...]
    """Numbers of the errors this card reported, oldest first."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """How the machine says its GPUs are. Good news is a claim; bad news may be believed."""

    source: Literal["nvml", "emulated"]
    gpus: tuple[GpuHealth, ...]
    """By index, ascending."""
    xids: tuple[SeenXid, ...]
    """Every error, oldest first: those of cards that could not be told, and of switches, are only here."""
    kernel_log_read: bool
    """False: nobody could look for earlier errors, so that there are none means nothing."""
    agent_sha256: str
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The agent's whole document, parsed and bounded: evidence."""


class Session(Protocol):
    """A logged-in connection to one machine. Every method may raise Unreachable and StepFailed."""

    async def install_keys(self, authorized_keys: Sequence[str]) -> None:
        """Let exactly these keys log in as the customer (`ubuntu`); an empty list lets nobody in.

        A key is one OpenSSH public key line without options; anything else is StepFailed and changes nothing.
        """
        ...

    async def mesh_public_key(self) -> str:
        """The machine's WireGuard public key, base64.

        Made on the machine at the first call; the private half never leaves it. The key survives a reboot.
        """
        ...

    async def join_mesh(self, link: MeshLink) -> None:
        """Join the tenant's network and prove that the hub answers through the tunnel.

        The hub must know this machine already: `mesh_public_key`, then `Hub.sync`, then this. A hub that
        does not answer within about 15 s is StepFailed. The link comes back after a reboot.
        """
        ...

    async def read_gpus(self, agent: AgentBundle) -> GpuReport:
        """Run the agent and read its GPUs. Pushes the agent unless a file with that digest is there."""
        ...

    async def read_health(self, agent: AgentBundle) -> HealthReport:
        """Run the agent once and read how the GPUs are. Pushes the agent as `read_gpus` does."""
        ...

    async def end_customer(self) -> None:
        """Let the customer in no more, and end what the customer runs and whoever else holds a GPU.

        A customer who took root may prevent it: what follows has to be proven, not believed.
        """
        ...

    def prover(self, agent: AgentBundle) -> AbstractAsyncContextManager[Line]:
        """Start the agent's prover and speak with it; leaving ends it, whatever the machine does.

        Pushes the agent as `read_gpus` does. Entering raises as every method here; from then on only what a
        Line raises comes from the machine. It ends its prover by itself after `bootstrap.PROVE.seconds`.
        """
        ...


class Access(Protocol):
    """The way in."""

    def connect(self, target: Target) -> AbstractAsyncContextManager[Session]:
        """Log in. Entering raises Unreachable (within about 10 s), HostKeyChanged or LoginRefused."""
        ...
