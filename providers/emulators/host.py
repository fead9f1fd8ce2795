"""Where an emulated cloud's machines really run: on this host as systemd machines, or only on paper.

An emulator owns a cloud's contract (envelopes, status words, rate limits, faults); a MachineHost
owns the machines. The local cloud and the Lambda emulator share hosts, so a contract test runs on
paper with a virtual clock and the demo runs the same contract over real machines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol


class HostedState(StrEnum):
    BOOTING = "booting"
    RUNNING = "running"
    """The machine has an address and its init runs. sshd may still lag, as on real clouds."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EmulatedGpu:
    """What the emulated NVML on the machine shows for one card."""

    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class MachineSpec:
    name: str
    """Unique on the host; letters, digits and dashes, at most 63."""
    user_data: str
    gpus: tuple[EmulatedGpu, ...]


@dataclass(frozen=True, slots=True)
class HostedMachine:
    name: str
    state: HostedState
    address: str | None = None
    ssh_port: int = 22
    why: str | None = None
    """What went wrong, for FAILED."""


class MachineHost(Protocol):
    async def boot(self, spec: MachineSpec) -> None:
        """Begin to boot a machine; answers before it runs."""
        ...

    def machines(self) -> dict[str, HostedMachine]:
        """Every machine that exists here, by name. One that was destroyed is absent."""
        ...

    async def destroy(self, name: str) -> None:
        """Power off and forget; a name unknown here is no error."""
        ...

    async def close(self) -> None:
        """Destroy everything."""
        ...


@dataclass
class PaperHost:
    """Machines on paper: they run `boot_seconds` after they were asked for, by the given clock."""

    now: Callable[[], datetime]
    boot_seconds: float = 0.0
    _booted: dict[str, tuple[int, datetime]] = field(default_factory=dict[str, tuple[int, datetime]])
    _counter: int = 0

    async def boot(self, spec: MachineSpec) -> None:
        self._counter += 1
        self._booted[spec.name] = (self._counter, self.now())

    def machines(self) -> dict[str, HostedMachine]:
        return {name: self._look(name, number, since) for name, (number, since) in self._booted.items()}

    def _look(self, name: str, number: int, since: datetime) -> HostedMachine:
        if self.now() - since < timedelta(seconds=self.boot_seconds):
            return HostedMachine(name, HostedState.BOOTING)
        return HostedMachine(
            name, HostedState.RUNNING, address=f"10.99.{number // 250 % 250}.{number % 250 + 1}"
        )

    async def destroy(self, name: str) -> None:
        self._booted.pop(name, None)

    async def close(self) -> None:
        self._booted.clear()
