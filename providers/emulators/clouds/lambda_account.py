"""An account of the emulated Lambda Cloud: the catalogue, its instances, its bill.

Prices, shapes and regions are those of a recorded `/instance-types` answer (from the public test
data of a client library, read 2026-11-20). States follow the official OpenAPI 1.8.3. Billing follows
the billing page: by the minute, from `active` until terminate.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

REGIONS = {
    "asia-northeast-1": "Osaka, Japan",
    "asia-northeast-2": "Tokyo, Japan",
    "asia-south-1": "India",
    "australia-east-1": "Sydney, Australia",
    "europe-central-1": "Germany",
    "me-west-1": "Israel",
    "us-east-1": "Virginia, USA",
    "us-east-2": "Washington DC, USA",
    "us-east-3": "Washington DC, USA",
    "us-midwest-1": "Illinois, USA",
    "us-midwest-2": "Illinois, USA",
    "us-south-1": "Texas, USA",
    "us-south-2": "North Texas, USA",
    "us-south-3": "Central Texas, USA",
    "us-west-1": "California, USA",
    "us-west-2": "Arizona, USA",
    "us-west-3": "Utah, USA",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """An instance type in the catalogue. Memory and storage are in GiB."""

    name: str
    gpu: str
    gpus: int
    cents_per_hour: int
    vcpus: int
    memory: int
    storage: int
    sold_in: tuple[str, ...]
    model: GpuModel | None = None
    """The GPU that the machine's NVML shows; None for types that no test rents."""

    def on_wire(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": f"{self.gpus}x {self.gpu}" if self.gpus else f"{self.vcpus}x CPU",
            "gpu_description": self.gpu,
            "price_cents_per_hour": self.cents_per_hour,
            "specs": {
                "vcpus": self.vcpus,
                "memory_gib": self.memory,
                "storage_gib": self.storage,
                "gpus": self.gpus,
            },
        }


_SOUTH = ("us-south-2", "us-south-3")
_A100_8 = ("us-west-1", "us-east-1", "me-west-1", "asia-northeast-1", "us-west-2", "europe-central-1")
_H100 = GpuModel.H100_SXM_80GB
_H100_TEXT = "H100 (80 GB SXM5)"
_A100_40, _A100_80 = GpuModel.A100_SXM_40GB, GpuModel.A100_SXM_80GB

# fmt: off
KINDS = {kind.name: kind for kind in (
    Kind("gpu_1x_h100_sxm5", _H100_TEXT, 1, 329, 26, 225, 2816, _SOUTH, _H100),
    Kind("gpu_2x_h100_sxm5", _H100_TEXT, 2, 638, 52, 450, 5632, _SOUTH, _H100),
    Kind("gpu_4x_h100_sxm5", _H100_TEXT, 4, 1236, 104, 900, 11264, _SOUTH, _H100),
    Kind("gpu_8x_h100_sxm5", _H100_TEXT, 8, 2392, 208, 1800, 22528, ("us-west-3", *_SOUTH), _H100),
    Kind("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 1, 249, 26, 200, 1024, ("us-west-3",), GpuModel.H100_PCIE_80GB),
    Kind("gpu_8x_b200_sxm6", "B200 (180 GB SXM6)", 8, 3992, 208, 2900, 22528, ("us-east-1",), GpuModel.B200_SXM_180GB),
    Kind("gpu_1x_gh200", "GH200 (96 GB)", 1, 149, 64, 432, 4096, (), GpuModel.GH200_96GB),
    Kind("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 129, 30, 200, 512, ("us-east-1", "asia-south-1"), _A100_40),
    Kind("gpu_8x_a100", "A100 (40 GB SXM4)", 8, 1032, 124, 1800, 6144, _A100_8, _A100_40),
    Kind("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 8, 1432, 240, 1800, 20480, ("us-east-1",), _A100_80),
    Kind("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 75, 30, 200, 1400, ("us-east-1", "us-west-1"), GpuModel.A10_24GB),
    Kind("gpu_1x_a6000", "A6000 (48 GB)", 1, 80, 14, 100, 200, (), GpuModel.A6000_48GB),
    Kind("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 1, 50, 14, 46, 512, ()),
    Kind("gpu_8x_v100", "Tesla V100 (16 GB)", 8, 440, 92, 448, 6041, ("us-south-1",)),
    Kind("cpu_4x_general", "N/A", 0, 20, 4, 16, 100, ("us-east-1",)),
)}
# fmt: on


@dataclass(kw_only=True)
class Instance(Rental):
    kind: Kind
    name: str
    hostname: str | None
    tags: list[dict[str, str]]
    ssh_key_names: list[str]


STATUS = {
    Life.CREATING: "booting",
    Life.RUNNING: "active",
    Life.FAILED: "unhealthy",
    Life.ENDING: "terminating",
    Life.ENDED: "terminated",
}
TERMINATING_SECONDS = 20.0
TERMINATED_VISIBLE_SECONDS = 60.0
"""How long a terminated instance stays listed before it is absent and 404. Not documented."""


class Account:
    """The instances and SSH keys of one account."""

    def __init__(
        self,
        host: MachineHost,
        scenario: Scenario,
        now: Callable[[], datetime],
        *,
        instances_max: int = 1_000,
    ) -> None:
        self.instances = Rentals[Instance](
            host, scenario, now, TERMINATING_SECONDS, TERMINATED_VISIBLE_SECONDS
        )
        self.instances_max = instances_max
        self.ssh_keys: list[dict[str, str]] = []

    def status(self, instance: Instance) -> str:
        """The status word of an instance that the API knows."""
        life = self.instances.life(instance)
        if life in (Life.ENDING, Life.ENDED):
            return STATUS[life]
        return instance.unknown_status or STATUS[life]

    async def launch(
        self,
        kind: Kind,
        region: str,
        *,
        name: str,
        hostname: str | None,
        tags: list[dict[str, str]],
        ssh_key_names: list[str],
        user_data: str,
    ) -> Instance:
        instance = Instance(
            id=secrets.token_hex(16),
            native_type=kind.name,
            native_region=region,
            kind=kind,
            name=name,
            hostname=hostname,
            tags=tags,
            ssh_key_names=ssh_key_names,
        )
        return await self.instances.launch(instance, kind.model, kind.gpus, user_data=user_data)

    def bill_nano(self) -> Nano:
        """What the account owes: started minutes from active until terminate, for every instance that ever existed."""
        return Nano(sum(self._cost(each) for each in self.instances.every.values()))

    def _cost(self, instance: Instance) -> int:
        minutes = -(-self.instances.seconds_run(instance) // 60)
        return instance.kind.cents_per_hour * (NANO_PER_USD // 100) * minutes // 60
