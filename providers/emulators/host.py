"""Where an emulated cloud's machines run: on this host as systemd machines, or only simulated.

An emulator owns a cloud's contract (envelopes, status words, rate limits, faults); a MachineHost
owns the machines. Every emulator works with every host: a contract test simulates its machines on
a virtual clock, and the demo runs the same contract over real ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable


class HostedState(StrEnum):
    BOOTING = "booting"
    RUNNING = "running"
    """The machine has an address and its init system runs. As on real clouds, sshd may not answer yet."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EmulatedGpu:
    """One card, as the emulated NVML on the machine shows it."""

    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class MachineSpec:
    name: str
    """Unique on the host: at most 63 letters, digits and dashes."""
    user_data: str
    gpus: tuple[EmulatedGpu, ...]


@dataclass(frozen=True, slots=True)
class HostedMachine:
    name: str
    state: HostedState
    address: str | None = None
    ssh_port: int = 22
    why: str | None = None
    """What went wrong when the state is FAILED."""


class MachineHost(Protocol):
    async def boot(self, spec: MachineSpec) -> None:
        """Begin to boot a machine; returns before it runs."""
        ...

    def machines(self) -> dict[str, HostedMachine]:
        """Every machine on this host by its name, without those that were destroyed."""
        ...

    def console(self, name: str) -> str:
        """The end of what a machine has printed on its console; empty for an unknown name."""
        ...

    async def destroy(self, name: str) -> None:
        """Power a machine off and remove it. An unknown name is ignored."""
        ...

    async def close(self) -> None:
        """Destroy every machine."""
        ...


@runtime_checkable
class SwitchesMachines(Protocol):
    """A host whose machines can be switched off and on with everything that is on their disks."""

    async def switch(self, name: str, *, off: bool) -> None:
        """Switch a machine off, or boot it: from being off, or anew."""
        ...


@runtime_checkable
class ScriptsGpus(Protocol):
    """A host on whose machines GPUs can be made to fail while they run."""

    async def script_gpu(self, name: str, step: dict[str, object]) -> None:
        """Have a step of a script happen to a machine's cards (`data_plane/nvml/emulation.py`)."""
        ...


@dataclass
class SimulatedHost:
    """Simulated machines: each runs `boot_seconds` after its boot was asked for, by the given clock."""

    now: Callable[[], datetime]
    boot_seconds: float = 0.0
    boots: dict[str, int] = field(default_factory=dict[str, int])
    """How often each machine booted, of those that were switched."""
    _booted: dict[str, tuple[int, datetime]] = field(default_factory=dict[str, tuple[int, datetime]])
    _counter: int = 0

    async def boot(self, spec: MachineSpec) -> None:
        self._counter += 1
        self._booted[spec.name] = (self._counter, self.now())

    def machines(self) -> dict[str, HostedMachine]:
        return {name: self._machine(name, number, since) for name, (number, since) in self._booted.items()}

    def _machine(self, name: str, number: int, since: datetime) -> HostedMachine:
        if self.now() - since < timedelta(seconds=self.boot_seconds):
            return HostedMachine(name, HostedState.BOOTING)
        return HostedMachine(
            name, HostedState.RUNNING, address=f"10.99.{number // 250 % 250}.{number % 250 + 1}"
        )

    def console(self, name: str) -> str:
        if name not in self._booted:
            return ""
        return f"[    0.000000] Linux version 6.8.0-simulated\n{name} boot {self.boots.get(name, 1)}\n"

    async def switch(self, name: str, *, off: bool) -> None:
        self.boots[name] = self.boots.get(name, 1) + (not off)

    async def destroy(self, name: str) -> None:
        self._booted.pop(name, None)

    async def close(self) -> None:
        self._booted.clear()
