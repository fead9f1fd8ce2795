"""An account of the emulated Vast.ai: hosts with their asks, contracts, SSH keys, and what it costs.

The figures are examples, and not today's. Billing follows the documentation (vast-ai/docs @c624622): GPUs by the second
while the machine runs, the disk by the second while it exists.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

HOURS_IN_A_MONTH = 720
LOADING_AFTER_SECONDS = 10.0
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class HostMachine:
    """A machine of a host, which is offered whole and in halves."""

    number: int
    gpu_name: str
    gpu_ram: int
    gpus: int
    usd_per_gpu: Decimal
    model: GpuModel | None = None
    """What the NVML of a virtual machine there shows; None where no test rents one."""
    geolocation: str = "Sweden, SE"
    host: int = 55_555
    terms: tuple[tuple[str, Any], ...] = ()
    """What differs from a verified host in a data center with virtual machines."""

    def asks(self) -> "Iterator[Ask]":
        for gpus in sorted({self.gpus, max(1, self.gpus // 2)}):
            yield Ask(self.number * 10 + gpus, self, gpus)


@dataclass(frozen=True, slots=True)
class Ask:
    id: int
    machine: HostMachine
    gpus: int

    def base_usd(self) -> Decimal:
        return self.machine.usd_per_gpu * self.gpus

    def disk_usd(self, gigabytes: Decimal) -> Decimal:
        """For an hour."""
        return (gigabytes * STORAGE_USD_PER_MONTH / HOURS_IN_A_MONTH).quantize(Decimal("0.000001"))

    def on_wire(self, disk: Decimal) -> dict[str, Any]:
        machine = self.machine
        total = self.base_usd() + self.disk_usd(disk)
        return {
            "id": self.id,
            "ask_contract_id": self.id,
            "bundle_id": machine.number,
            "machine_id": machine.number,
            "host_id": machine.host,
            "gpu_name": machine.gpu_name,
            "gpu_ram": machine.gpu_ram,
            "gpu_arch": "nvidia",
            "num_gpus": self.gpus,
            "gpu_frac": self.gpus / machine.gpus,
            "dph_base": float(self.base_usd()),
            "dph_total": float(total),
            "min_bid": float(self.base_usd() / 2),
            "is_bid": False,
            "storage_cost": float(STORAGE_USD_PER_MONTH),
            "storage_total_cost": float(self.disk_usd(disk)),
            "inet_up_cost": 0.004,
            "inet_down_cost": 0.002,
            "cpu_arch": "amd64",
            "cpu_cores": 192,
            "cpu_cores_effective": 192.0 * self.gpus / machine.gpus,
            "cpu_ram": 2_063_000,
            "disk_space": 7_000.5,
            "direct_port_count": 40,
            "static_ip": True,
            "public_ipaddr": "203.0.113.42",
            "geolocation": machine.geolocation,
            "reliability": 0.9971,
            "verification": "verified",
            "hosting_type": 1,
            "vms_enabled": True,
            "external": None,
            "rentable": True,
            "rented": False,
            "duration": 90.5 * DAY_SECONDS,
        } | dict(machine.terms)


STORAGE_USD_PER_MONTH = Decimal("0.15")
_H100 = ("H100 SXM", 81_559, 8, Decimal("2.1345"), GpuModel.H100_SXM_80GB)


def _h100(number: int, **terms: object) -> HostMachine:
    return HostMachine(number, *_H100, terms=tuple(terms.items()))


MACHINES = (
    *(_h100(number) for number in range(410_000, 410_012)),
    HostMachine(
        420_000, "A100 PCIE", 81_920, 1, Decimal("0.9"), GpuModel.A100_PCIE_80GB, geolocation="California, US"
    ),
    HostMachine(430_000, "RTX 3090", 24_576, 2, Decimal("0.2")),
    HostMachine(430_001, "L4", 23_034, 1, Decimal("0.3"), geolocation="Atlantis, AA"),
    _h100(490_000, vms_enabled=False),
    _h100(490_001, verification="unverified"),
    _h100(490_002, hosting_type=0),
    _h100(490_003, static_ip=False),
    _h100(490_004, reliability=0.9),
    _h100(490_005, duration=2.0 * DAY_SECONDS),
    _h100(490_006, cpu_arch="arm64"),
    _h100(490_007, direct_port_count=0),
)
ASKS = {ask.id: ask for machine in MACHINES for ask in machine.asks()}


@dataclass(kw_only=True)
class Instance(Rental):
    ask: Ask
    disk: Decimal
    label: str | None
    onstart: str | None
    image: str
    intended: str = "running"


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    ssh_port: int | None = None
    """Where SSH is mapped to; None is the port of the machine itself."""
    credit: Decimal = Decimal(1_000_000)
    """A launch is refused unless it covers an hour of the new machine."""
    ssh_keys: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    instances: Rentals[Instance] = field(init=False)
    numbers: Iterator[int] = field(default_factory=lambda: count(12_345_678))

    def __post_init__(self) -> None:
        self.instances = Rentals(self.host, self.scenario, self.now, 0.0, 0.0)

    def rentable(self, ask: Ask) -> bool:
        """Whether the machine has as many GPUs left, and it is not scripted to be sold out."""
        rented = sum(
            each.ask.gpus
            for each in self.instances.standing()
            if each.ask.machine.number == ask.machine.number
        )
        return rented + ask.gpus <= ask.machine.gpus and self.scenario.in_stock(*place_of(ask))

    def status(self, instance: Instance) -> str | None:
        if instance.unknown_status is not None:
            return instance.unknown_status
        life = self.instances.life(instance)
        if life is Life.CREATING:
            age = (self.now() - instance.launched_at).total_seconds()
            return None if age < LOADING_AFTER_SECONDS else "loading"
        return "running" if life is Life.RUNNING else "exited"

    async def launch(self, instance: Instance) -> Instance:
        ask = instance.ask
        return await self.instances.launch(
            instance, ask.machine.model, ask.gpus, user_data=instance.onstart or ""
        )

    def bill_nano(self) -> Nano:
        return Nano(sum(map(self._cost_nano, self.instances.every.values())))

    def _cost_nano(self, instance: Instance) -> int:
        existed = int(((instance.ended_at or self.now()) - instance.launched_at).total_seconds())
        gpus = instance.ask.base_usd() * self.instances.seconds_run(instance)
        disk = instance.ask.disk_usd(instance.disk) * existed
        return int((gpus + disk) * NANO_PER_USD / 3_600)


def place_of(ask: Ask) -> tuple[str, str]:
    """The native type and region of an ask, as the adapter names them."""
    return str(ask.id), ask.machine.geolocation.rpartition(", ")[2]
