"""A project of the emulated Crusoe Cloud: types, networks, firewall rules, machines, operations, its bill.

Types are examples in the form of the official specification (gateway v1), and prices those of gpuhunt's table. Only
machines that run are billed, by the second; a machine whose operation failed never exists.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

LOCATIONS = ("us-northcentral1-a", "us-east1-a", "us-southcentral1-a", "eu-iceland1-a")
IMAGES = ("ubuntu22.04-nvidia-sxm-docker:latest", "ubuntu22.04-nvidia-pcie-docker:latest")
DELETING_SECONDS = 20.0
STATUS = {
    Life.CREATING: "STATE_STARTING",
    Life.RUNNING: "STATE_RUNNING",
    Life.STOPPED: "STATE_STOPPED",
    Life.FAILED: "STATE_SHUTOFF",
    Life.ENDING: "STATE_DELETING",
}


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    gpu: str
    gpus: int
    usd_per_gpu_hour: str
    cores: int
    memory: int
    disk: int
    locations: tuple[str, ...]
    model: GpuModel | None = None
    """The GPU that the machine's NVML shows; None for types that no test rents."""

    def on_wire(self) -> dict[str, Any]:
        return {
            "product_name": self.name,
            "description": f"{self.gpus}x {self.gpu}",
            "cpu_cores": self.cores,
            "cpu_type": "amd",
            "memory_gb": self.memory,
            "memory_type": "RAM",
            "disk_gb": self.disk,
            "disk_type": "NVMe",
            "num_gpu": self.gpus,
            "gpu_type": self.gpu,
        }


_US, _EAST_AND_EU = LOCATIONS[:3], (LOCATIONS[1], LOCATIONS[3])
# fmt: off
KINDS = {kind.name: kind for kind in (
    Kind("h100-80gb-sxm-ib.8x", "H100-SXM-80GB", 8, "3.90", 176, 960, 8000, _EAST_AND_EU, GpuModel.H100_SXM_80GB),
    Kind("a100-80gb.1x", "A100-PCIe-80GB", 1, "2.00", 12, 120, 0, _US, GpuModel.A100_PCIE_80GB),
    Kind("l40s-48gb.1x", "L40S-48GB", 1, "1.50", 8, 147, 0, _US, GpuModel.L40S_48GB),
    Kind("a40.1x", "A40-PCIe-48GB", 1, "0.90", 6, 60, 0, _US),
    Kind("b200-180gb-sxm-ib.8x", "B200-SXM-180GB", 8, "0", 176, 1900, 8000, ("us-east1-a",)),
    Kind("c1a.4x", "", 0, "0.16", 4, 16, 0, _US),
)}
# fmt: on


@dataclass(kw_only=True)
class Instance(Rental):
    kind: Kind
    name: str


@dataclass
class Operation:
    id: str
    resource_id: str
    started_at: datetime
    state: str = "SUCCEEDED"
    code: str = ""
    told: bool = False
    """Whether a query showed it as completed; it is not listed after that."""


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    networks: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Name and address range, by id."""
    rules: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    operations: list[Operation] = field(default_factory=list[Operation])
    instances: Rentals[Instance] = field(init=False)

    def __post_init__(self) -> None:
        # A deleted machine is absent and 404.
        self.instances = Rentals(self.host, self.scenario, self.now, DELETING_SECONDS, 0.0)
        self.networks[new_id()] = ("default", "172.27.16.0/20")

    def subnets(self) -> list[dict[str, str]]:
        """One in each location, for every network."""
        return [
            {
                "id": f"{network_id}-{location}",
                "name": f"{name}-{location}",
                "cidr": cidr,
                "location": location,
                "vpc_network_id": network_id,
            }
            for network_id, (name, cidr) in self.networks.items()
            for location in LOCATIONS
        ]

    def status(self, instance: Instance) -> str:
        life = self.instances.life(instance)
        return STATUS[life] if life is Life.ENDING else instance.unknown_status or STATUS[life]

    def listed(self) -> list[Instance]:
        return [each for each in self.instances.listed() if not each.sold_out]

    def known(self, instance_id: str) -> Instance | None:
        found = self.instances.known(instance_id)
        return None if found is None or found.sold_out else found

    def existing(self) -> list[Instance]:
        """The machines that were bought and not ended."""
        return [each for each in self.instances.standing() if not each.sold_out]

    async def launch(self, kind: Kind, location: str, *, name: str, user_data: str) -> Instance:
        made = Instance(id=new_id(), native_type=kind.name, native_region=location, kind=kind, name=name)
        return await self.instances.launch(made, kind.model, kind.gpus, user_data=user_data)

    def operation(self, resource_id: str, *, failed: str = "") -> Operation:
        """A new operation, which will fail with this code; it is shown as in progress when it starts."""
        made = Operation(new_id(), resource_id, self.now(), "FAILED" if failed else "SUCCEEDED", failed)
        self.operations.append(made)
        return made

    def bill_nano(self) -> Nano:
        return Nano(sum(self._cost(each) for each in self.instances.every.values()))

    def _cost(self, instance: Instance) -> int:
        if instance.sold_out:
            return 0
        usd_per_hour = Decimal(instance.kind.usd_per_gpu_hour) * max(1, instance.kind.gpus)
        seconds = self.instances.seconds_run(instance) - self.instances.seconds_off(instance)
        return int(usd_per_hour * NANO_PER_USD) * seconds // 3_600


def new_id() -> str:
    return str(UUID(bytes=secrets.token_bytes(16), version=4))
