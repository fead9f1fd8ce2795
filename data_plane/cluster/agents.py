"""The port to K3s agents on rented machines, and its laws.

The steps of a machine's way into a cluster are, in this order: `prepare`; the tunnels (`mesh/members.py`); `start`;
`drop_token`, once its Node object is there. `stop` and `clean` take it out again.

1. Every step can be repeated, and is right wherever an earlier run of it broke off: what is done stays as it is.
2. A machine gets a bootstrap token of minutes and never a credential of servers. The token is in memory only, never on
   the machine's disk, nor in its process list.
3. Nothing is fetched from the internet.
4. A Node registers with our taint (`objects/node.py`), so that no pod lands there before it was checked.
5. `clean` works from any state, also on a machine that was never prepared.
6. `prepare` sends large files for a bounded time, and raises StillSending when they have not all arrived.
7. Only AccessError is raised, and no error text contains a credential. Whether a machine is gone only its provider can
   tell: `Unreachable` says that nobody answered, and `HostKeyChanged` that another machine has its address.

What a machine tells of itself is its own claim. It is evidence that a step was taken, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from data_plane.access.port import StepFailed, Target


class NodePasswordRejected(StepFailed):
    """The cluster knows another password for this name: the machine was rebuilt, or another one took the name.

    Deleting the password (`node.forget_password`) lets this machine join. That is right only while there is no Node of
    this name: otherwise another machine holds certificates for it, and this one needs another name.
    """


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is on a machine that can become a node."""

    files: Mapping[str, str]
    """The SHA-256 digest of each file, by its name."""
    kernel: str
    """The kernel's release, such as `6.1.0-31-amd64`."""
    settings: Mapping[str, str]
    """The kernel's settings that the kubelet insists on, as they are now."""
    modules: tuple[str, ...]
    """Those kernel modules that pods' networks need and that are there, in the order of the alphabet."""


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """Which node a machine shall be."""

    machine: Target
    node: str
    """The name of its Node."""
    address: str
    """Its address in the overlay."""
    server: str
    """The URL of the server, through the overlay: `https://10.64.16.2:6443`."""
    token: str = field(repr=False)
    """A bootstrap token with the hash of the cluster's authority: `BootstrapToken.text`."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that the Node registers with. The kubelet may change them at any time."""


@dataclass(frozen=True, slots=True)
class Started:
    """What an agent that has joined tells of itself."""

    version: str
    """Of K3s, such as `v1.36.3+k3s1`."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was found on a machine after it was cleaned."""

    left: tuple[str, ...]
    """Each thing of a node that is still there, such as `mount /run/k3s/...`. Empty when nothing is."""
    looked_for: tuple[str, ...]
    """The kinds of things that were looked for."""

    @property
    def nothing_left(self) -> bool:
        return not self.left


class Agents(Protocol):
    """Makes rented machines nodes, and takes everything off them again. Raises AccessError."""

    async def prepare(self, machine: Target) -> Prepared:
        """Put the operator's K3s files and the kernel's settings in place. Runs nothing of them."""
        ...

    async def start(self, order: AgentOrder) -> Started:
        """Start the agent, and wait until it has joined. An agent that runs as ordered is left alone.

        Raises NodePasswordRejected; StepFailed with the agent's last log lines when it has not joined in time.
        """
        ...

    async def drop_token(self, machine: Target) -> None:
        """Remove the bootstrap token. An agent that has joined restarts without one."""
        ...

    async def stop(self, machine: Target) -> None:
        """End the agent and every pod. The machine stays prepared."""
        ...

    async def clean(self, machine: Target) -> Cleaned:
        """Take everything of a node off the machine, pods, keys and the overlay's interface included, then look."""
        ...
