"""An account of the emulated Shadeform: types of several clouds, machines, its bill.

Names are those of the official examples and of the clouds below; prices are examples, and not today's. Billing
follows the documentation: from the order until the status `deleting` (docs.shadeform.ai, read 2026-11-23).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any
from uuid import UUID

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

OS_OPTIONS = ("ubuntu22.04_cuda12.2_shade_os", "ubuntu20.04_cuda12.0_shade_os")
NANO_PER_CENT = 10_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    cloud: str
    shade_instance_type: str
    gpu_type: str
    gpus: int
    vram_gb: int
    interconnect: str
    vcpus: int
    memory_gb: int
    storage_gb: int
    cents: int
    regions: tuple[str, ...]
    model: GpuModel | None = None
    """The GPU that the machine's NVML shows; None for types that no test rents."""
    deployment: str = "vm"
    rental_type: str = "on_demand"
    os_options: tuple[str, ...] = OS_OPTIONS

    @property
    def native_type(self) -> str:
        return f"{self.cloud}/{self.shade_instance_type}"

    def on_wire(self, in_stock: Callable[[str, str], bool]) -> dict[str, Any]:
        availability = [
            {
                "region": region,
                "available": in_stock(self.native_type, region),
                "rental_type": self.rental_type,
            }
            for region in self.regions
        ]
        return {
            "cloud": self.cloud,
            "region": self.regions[0],
            "shade_instance_type": self.shade_instance_type,
            "cloud_instance_type": f"native-{self.shade_instance_type}",
            "configuration": self.configuration() | {"os_options": list(self.os_options)},
            "hourly_price": self.cents,
            "deployment_type": self.deployment,
            "availability": availability,
        }

    def configuration(self) -> dict[str, Any]:
        return {
            "memory_in_gb": self.memory_gb,
            "storage_in_gb": self.storage_gb,
            "vcpus": self.vcpus,
            "num_gpus": self.gpus,
            "gpu_type": self.gpu_type,
            "interconnect": self.interconnect,
            "vram_per_gpu_in_gb": self.vram_gb,
        }


_A100, _H100 = GpuModel.A100_PCIE_80GB, GpuModel.H100_SXM_80GB

# fmt: off
KINDS = {kind.native_type: kind for kind in (
    Kind("hyperstack", "A100_80Gx8", "A100_80G", 8, 80, "pcie", 240, 1440, 100, 1080, ("canada-1", "norway-1"), _A100),
    Kind("hyperstack", "A100_80G", "A100_80G", 1, 80, "pcie", 28, 120, 100, 135, ("canada-1",), _A100),
    Kind("lambdalabs", "H100_sxm5x8", "H100_sxm5", 8, 80, "sxm5", 208, 1800, 22000, 2392, ("us-west-1",), _H100),
    Kind("hyperstack", "H100x8-spot", "H100", 8, 80, "pcie", 252, 1440, 100, 1216, ("canada-1",), rental_type="spot"),
    Kind("runpod", "A100_80G", "A100_80G", 1, 80, "pcie", 8, 117, 50, 189, ("us-1",), deployment="container"),
    Kind("latitude", "H100x8", "H100", 8, 80, "pcie", 64, 768, 3800, 1656, ("dallas",), deployment="baremetal"),
    Kind("datacrunch", "A100_80G", "A100_80G", 1, 80, "sxm4", 22, 120, 100, 129, ("helsinki-1",)),
    Kind("hyperstack", "L40", "L40", 1, 48, "pcie", 28, 58, 100, 100, ("canada-1",)),
    Kind("lambdalabs", "A10", "A10", 1, 24, "pcie", 30, 200, 1400, 75, ("us-east-1",), os_options=("ubuntu20.04",)),
)}
# fmt: on

STATUS = {
    Life.RUNNING: "active",
    Life.FAILED: "error",
    Life.ENDING: "deleting",
    Life.ENDED: "deleted",
}
PENDING_PROVIDER_SECONDS = 30.0
DELETING_SECONDS = 20.0


@dataclass(kw_only=True)
class Instance(Rental):
    name: str
    kind: Kind
    os: str
    tags: list[str]
    launch_configuration: dict[str, Any] | None


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    ssh_port: int = 22
    balance_cents: int = 100_000_000
    """A launch is refused unless it covers an hour of the new machine."""
    instances: Rentals[Instance] = field(init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(101))

    def __post_init__(self) -> None:
        self.instances = Rentals(self.host, self.scenario, self.now, DELETING_SECONDS, 0.0)

    def status(self, instance: Instance) -> str:
        life = self.instances.life(instance)
        if life is Life.ENDING:
            return STATUS[life]
        if instance.unknown_status is not None:
            return instance.unknown_status
        if life is Life.CREATING:
            age = (self.now() - instance.launched_at).total_seconds()
            return "pending_provider" if age < PENDING_PROVIDER_SECONDS else "pending"
        return STATUS[life]

    async def launch(self, made: Callable[[str], Instance], *, user_data: str) -> Instance:
        instance = made(str(UUID(int=next(self._numbers))))
        kind = instance.kind
        return await self.instances.launch(instance, kind.model, kind.gpus, user_data=user_data)

    def cents_due(self) -> int:
        return sum(self._cost_nano(each) for each in self.instances.every.values()) // NANO_PER_CENT

    def bill_nano(self) -> Nano:
        return Nano(sum(self._cost_nano(each) for each in self.instances.every.values()))

    def _cost_nano(self, instance: Instance) -> int:
        """By the second, from the order until its deletion was accepted."""
        until = instance.ended_at or self.now()
        seconds = int((until - instance.launched_at).total_seconds())
        return instance.kind.cents * NANO_PER_CENT * seconds // 3_600
