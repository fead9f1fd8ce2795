"""A project of the emulated Verda: types, prices, keys, scripts, volumes, machines, tokens, its bill.

Types and prices are examples in the form of the official OpenAPI document (changelog up to 2026-09-25), and not today's
price list. Which types exist where is ours. A machine costs its price from its launch to its end, and each volume costs
its own from when it was made until it is deleted; in the trash it costs nothing.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

LOCATIONS = ("FIN-01", "FIN-02", "FIN-03", "ICE-01")
IMAGES = (
    "ubuntu-24.04-cuda-12.8-open-docker",
    "ubuntu-22.04-cuda-12.4-docker",
    "ubuntu-24.04",
)
USD_PER_GB_MONTH = Decimal("0.2")
HOURS_PER_MONTH = 730
TOKEN_SECONDS = 3_600
DELETING_SECONDS = 15.0
STATUS = {
    Life.CREATING: "provisioning",
    Life.RUNNING: "running",
    Life.STOPPED: "offline",
    Life.FAILED: "error",
    Life.SOLD_OUT: "no_capacity",
    Life.ENDING: "deleting",
}


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    gpu: str
    gpus: int
    usd_per_hour: str
    cores: int
    memory: int
    gpu_memory: int
    locations: tuple[str, ...]
    model: GpuModel | None = None
    """The GPU that the machine's NVML shows; None for types that no test rents."""
    images: tuple[str, ...] = IMAGES

    def on_wire(self) -> dict[str, Any]:
        return self.of_instance() | {
            "best_for": ["Large model inference"],
            "description": "Dedicated Hardware Instance",
            "display_name": f"NVIDIA {self.gpu}",
            "id": str(UUID(int=sum(self.name.encode()))),
            "instance_type": self.name,
            "manufacturer": "NVIDIA",
            "model": self.gpu.partition(" ")[0],
            "name": self.gpu,
            "p2p": "600 GB/s",
            "price_per_hour": self.usd_per_hour,
            "spot_price": "0.31",
            "max_dynamic_price": "6.34",
            "currency": "usd",
            "supported_os": list(self.images),
        }

    def of_instance(self) -> dict[str, Any]:
        return {
            "cpu": {"description": f"{self.cores} CPU", "number_of_cores": self.cores},
            "gpu": {"description": f"{self.gpus}x {self.gpu}", "number_of_gpus": self.gpus},
            "gpu_memory": {
                "description": f"{self.gpu_memory}GB GPU RAM",
                "size_in_gigabytes": self.gpu_memory,
            },
            "memory": {"description": f"{self.memory}GB RAM", "size_in_gigabytes": self.memory},
            "storage": {"description": "dynamic"},
        }


_H100, _H100_TEXT = GpuModel.H100_SXM_80GB, "H100 SXM5 80GB"
_ALL, _FIN = LOCATIONS, LOCATIONS[:3]
_OLD = ("ubuntu-22.04-cuda-12.4-docker",)

# fmt: off
KINDS = {kind.name: kind for kind in (
    Kind("1H100.80S.30V", _H100_TEXT, 1, "3.17", 30, 120, 80, _FIN, _H100),
    Kind("8H100.80S.176V", _H100_TEXT, 8, "25.36", 176, 1480, 640, _FIN, _H100),
    Kind("1H200.141S.44V", "H200 SXM5 141GB", 1, "3.39", 44, 182, 141, _ALL, GpuModel.H200_SXM_141GB),
    Kind("8B200.240V", "B200 SXM6 180GB", 8, "31.92", 240, 2900, 1440, ("FIN-03", "ICE-01"), GpuModel.B200_SXM_180GB),
    Kind("1A100.22V", "A100 SXM4 80GB", 1, "1.29", 22, 120, 80, _FIN, GpuModel.A100_SXM_80GB),
    Kind("1A6000.10V", "RTX A6000 48GB", 1, "0.49", 10, 60, 48, _FIN, GpuModel.A6000_48GB, _OLD),
    Kind("1V100.6V", "Tesla V100 16GB", 1, "0.14", 6, 23, 16, _FIN),
    Kind("CPU.4V.16G", "", 0, "0.03", 4, 16, 0, _ALL),
)}
# fmt: on


@dataclass(kw_only=True)
class Instance(Rental):
    kind: Kind
    hostname: str
    description: str
    image: str
    tags: list[dict[str, str]]
    ssh_key_ids: list[str]
    startup_script_id: str | None
    os_volume_id: str


@dataclass
class Volume:
    id: str
    name: str
    size: int
    tags: list[dict[str, str]]
    location: str
    made_at: datetime
    instance_id: str | None
    ended_at: datetime | None = None
    """When it was deleted, or moved to the trash."""
    in_trash: bool = False

    @property
    def status(self) -> str:
        return "attached" if self.instance_id else "detached"


@dataclass
class Script:
    id: str
    name: str
    script: str
    made_at: datetime


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    client_id: str
    client_secret: str
    balance_usd: Decimal = Decimal(1_000_000)
    """A launch is refused unless it covers an hour of the new machine and of all that run."""
    scripts_max: int = 100
    instances: Rentals[Instance] = field(init=False)
    scripts: dict[str, Script] = field(default_factory=dict[str, Script])
    ssh_keys: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Name and public key, by id."""
    volumes: dict[str, Volume] = field(default_factory=dict[str, Volume])
    """Every volume that ever existed."""
    tokens: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """Until when each access token is valid."""

    def __post_init__(self) -> None:
        # A deleted machine is absent at once, and 404.
        self.instances = Rentals(self.host, self.scenario, self.now, DELETING_SECONDS, 0.0)

    def new_token(self) -> str:
        token = secrets.token_urlsafe(48)
        self.tokens[token] = self.now() + timedelta(seconds=TOKEN_SECONDS)
        return token

    def admits(self, token: str) -> bool:
        until = self.tokens.get(token)
        return until is not None and self.now() < until

    def status(self, instance: Instance) -> str:
        life = self.instances.life(instance)
        return STATUS[life] if life is Life.ENDING else instance.unknown_status or STATUS[life]

    def covers(self, kind: Kind) -> bool:
        running = sum((Decimal(each.kind.usd_per_hour) for each in self.instances.standing()), Decimal(0))
        return running + Decimal(kind.usd_per_hour) <= self.balance_usd

    def volumes_of(self, instance: Instance) -> list[Volume]:
        return [each for each in self.volumes.values() if each.instance_id == instance.id]

    def visible_volumes(self) -> list[Volume]:
        return [each for each in self.volumes.values() if each.ended_at is None]

    def add_volume(self, name: str, size: int, tags: list[dict[str, str]], location: str) -> Volume:
        volume = Volume(new_id(), name, size, tags, location, self.now(), None)
        self.volumes[volume.id] = volume
        return volume

    async def launch(self, instance: Instance, *, user_data: str) -> Instance:
        self.volumes[instance.os_volume_id].instance_id = instance.id
        kind = instance.kind
        return await self.instances.launch(instance, kind.model, kind.gpus, user_data=user_data)

    async def end(self, instance: Instance, volume_ids: Collection[str] | None, *, permanently: bool) -> None:
        """End a machine. Its volumes are detached, except those that are named; without names, that of its system."""
        named = [instance.os_volume_id] if volume_ids is None else volume_ids
        for volume in self.volumes_of(instance):
            volume.instance_id = None
            if volume.id in named:
                self.delete_volume(volume, permanently=permanently and volume_ids is not None)
        await self.instances.end(instance)

    def delete_volume(self, volume: Volume, *, permanently: bool) -> None:
        volume.ended_at = volume.ended_at or self.now()
        volume.in_trash = not permanently

    def bill_nano(self) -> Nano:
        """What every machine and every volume that ever existed cost until now."""
        machines = sum(
            (self._hours(each.launched_at, each.ended_at) * Decimal(each.kind.usd_per_hour))
            for each in self.instances.every.values()
        )
        volumes = sum(
            self._hours(each.made_at, each.ended_at) * each.size * USD_PER_GB_MONTH / HOURS_PER_MONTH
            for each in self.volumes.values()
        )
        return Nano(int((machines + volumes) * NANO_PER_USD))

    def _hours(self, begun: datetime, ended: datetime | None) -> Decimal:
        return Decimal(int(((ended or self.now()) - begun).total_seconds())) / 3_600


def new_id() -> str:
    return str(UUID(bytes=secrets.token_bytes(16), version=4))
