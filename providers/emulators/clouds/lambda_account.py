"""An account of the emulated Lambda Cloud: the catalogue, its instances, its bill.

Prices, shapes and regions are those of a recorded `/instance-types` answer (from the public test
data of a client library, read 2026-11-20). States follow the official OpenAPI 1.8.3. Billing follows
the billing page: by the minute, from `active` until terminate.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from control_plane.domain.gpu import APPEARANCES, GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import EmulatedGpu, HostedState, MachineHost, MachineSpec
from providers.emulators.scenario import FaultKind, Scenario

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


@dataclass
class Instance:
    id: str
    kind: Kind
    region: str
    name: str
    hostname: str | None
    tags: list[dict[str, str]]
    ssh_key_names: list[str]
    launched_at: datetime
    listed_from: datetime
    never_boots: bool = False
    hidden: bool = False
    active_since: datetime | None = None
    ended_at: datetime | None = None
    """When the terminate was accepted; the bill stops there."""
    unknown_status: str | None = None
    """A status word outside the specification, for tests."""


@dataclass
class Account:
    """The instances and SSH keys of one account."""

    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    instances_max: int = 1_000
    terminating_seconds: float = 20.0
    terminated_visible_seconds: float = 60.0
    """How long a terminated instance stays listed before it is absent and 404. Not documented."""
    instances: dict[str, Instance] = field(default_factory=dict[str, Instance])
    """Every instance that ever existed."""
    ssh_keys: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def standing(self) -> list[Instance]:
        return [each for each in self.instances.values() if each.ended_at is None]

    def alive(self, name: str) -> list[Instance]:
        """Instances of this name that cost money or will, including hidden ones."""
        return [each for each in self.standing() if each.name == name]

    def ever(self, name: str) -> int:
        return sum(each.name == name for each in self.instances.values())

    def known(self, instance_id: str) -> Instance | None:
        """An instance that the API still knows; None for any other id."""
        found = self.instances.get(instance_id)
        return found if found is not None and self.status(found) != "absent" else None

    def listed(self) -> list[Instance]:
        now = self.now()
        return [
            each
            for each in self.instances.values()
            if not each.hidden and each.listed_from <= now and self.status(each) != "absent"
        ]

    def status(self, instance: Instance) -> str:
        """The status word now. `absent` is not in the contract: the API no longer knows the instance."""
        if instance.ended_at is not None:
            ended = (self.now() - instance.ended_at).total_seconds()
            if ended < self.terminating_seconds:
                return "terminating"
            visible = ended < self.terminating_seconds + self.terminated_visible_seconds
            return "terminated" if visible else "absent"
        if instance.unknown_status is not None:
            return instance.unknown_status
        machine = self.host.machines().get(instance.id)
        if machine is None or machine.state is HostedState.FAILED:
            return "unhealthy"
        delay = timedelta(seconds=self.scenario.boot_delay_seconds)
        if instance.never_boots or machine.state is HostedState.BOOTING:
            return "booting"
        if self.now() - instance.launched_at < delay:
            return "booting"
        instance.active_since = instance.active_since or self.now()
        return "active"

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
        now = self.now()
        instance = Instance(
            id=secrets.token_hex(16),
            kind=kind,
            region=region,
            name=name,
            hostname=hostname,
            tags=tags,
            ssh_key_names=ssh_key_names,
            launched_at=now,
            listed_from=now + timedelta(seconds=self.scenario.list_lag_seconds),
            never_boots=self.scenario.take("launch", FaultKind.NEVER_BOOTS),
            hidden=self.scenario.take("launch", FaultKind.HIDDEN),
        )
        wrong = self.scenario.take("launch", FaultKind.WRONG_GPU)
        model = GpuModel.A10_24GB if wrong else kind.model
        await self.host.boot(MachineSpec(instance.id, user_data, gpus_of(model, kind.gpus)))
        self.instances[instance.id] = instance
        return instance

    async def terminate(self, instance: Instance) -> None:
        self.status(instance)  # Records when it became active, for the bill.
        instance.ended_at = instance.ended_at or self.now()
        self.scenario.put_back(instance.kind.name, instance.region)
        await self.host.destroy(instance.id)

    def bill_nano(self) -> Nano:
        """What the account owes: started minutes from active until terminate, for every instance that ever existed."""
        return Nano(sum(self._cost(each) for each in self.instances.values()))

    def _cost(self, instance: Instance) -> int:
        self.status(instance)
        if instance.active_since is None:
            return 0
        seconds = ((instance.ended_at or self.now()) - instance.active_since).total_seconds()
        minutes = -(-max(0, int(seconds)) // 60)
        return instance.kind.cents_per_hour * (NANO_PER_USD // 100) * minutes // 60


def gpus_of(model: GpuModel | None, count: int) -> tuple[EmulatedGpu, ...]:
    """The cards that the machine's emulated NVML shows."""
    if model is None:
        return ()
    looks = APPEARANCES[model]
    return (EmulatedGpu(min(looks.nvml_names), looks.memory_mib[0]),) * count
