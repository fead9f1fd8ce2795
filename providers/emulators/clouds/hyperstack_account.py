"""An account of the emulated Hyperstack: flavors, prices, environments, key pairs, machines, its bill.

Flavor names and prices are examples in the form of the documentation (docs.hyperstack.cloud, read 2026-11-20), and not
today's price list. Billing follows its billing page: by the minute while ACTIVE or SHUTOFF, and nothing in transitional
states or ERROR.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

REGIONS = ("NORWAY-1", "CANADA-1", "US-1")
IMAGES = ("Ubuntu Server 22.04 LTS R535 CUDA 12.2", "Ubuntu 24.04 R570 CUDA 12.8 with Docker")
PRICES = {
    "A100-80G-PCIe": "1.35",
    "H100-80G-PCIe": "1.9",
    "H100-80G-SXM5": "2.4",
    "L40": "1.0",
    "H100-80G-PCIe-spot": "1.52",
}
"""USD for a GPU and an hour."""


@dataclass(frozen=True, slots=True)
class Flavor:
    id: int
    name: str
    gpu: str
    gpus: int
    cpu: int
    ram: float
    disk: int
    ephemeral: int
    regions: tuple[str, ...]
    model: GpuModel | None = None
    """The GPU that the machine's NVML shows; None for flavors that no test rents."""

    def on_wire(self, region: str, *, in_stock: bool) -> dict[str, Any]:
        return self.of_instance() | {
            "region_name": region,
            "display_name": self.name,
            "stock_available": in_stock,
            "created_at": "2026-01-01T00:00:00",
        }

    def of_instance(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "cpu": self.cpu,
            "ram": self.ram,
            "disk": self.disk,
            "ephemeral": self.ephemeral,
            "gpu": self.gpu,
            "gpu_count": self.gpus,
            "features": {},
            "labels": [],
        }


_PCIE, _SXM, _A100 = GpuModel.H100_PCIE_80GB, GpuModel.H100_SXM_80GB, GpuModel.A100_PCIE_80GB
_BOTH = ("NORWAY-1", "CANADA-1")

# fmt: off
FLAVORS = {flavor.name: flavor for flavor in (
    Flavor(1, "n3-H100x1", "H100-80G-PCIe", 1, 28, 180.0, 100, 750, _BOTH, _PCIE),
    Flavor(2, "n3-H100x8", "H100-80G-PCIe", 8, 252, 1440.0, 100, 6000, _BOTH, _PCIE),
    Flavor(3, "n3-H100-SXM5x8", "H100-80G-SXM5", 8, 192, 1800.0, 100, 32000, ("CANADA-1", "US-1"), _SXM),
    Flavor(4, "n3-A100x1", "A100-80G-PCIe", 1, 28, 120.0, 100, 750, _BOTH, _A100),
    Flavor(5, "n3-L40x1", "L40", 1, 28, 58.0, 100, 725, ("NORWAY-1",)),
    Flavor(6, "n3-H100x1-spot", "H100-80G-PCIe-spot", 1, 28, 180.0, 100, 750, ("NORWAY-1",)),
    Flavor(7, "n1-cpu-small", "", 0, 4, 4.0, 100, 0, _BOTH),
)}
# fmt: on

STATUS = {
    Life.CREATING: "BUILD",
    Life.RUNNING: "ACTIVE",
    Life.STOPPED: "SHUTOFF",
    Life.FAILED: "ERROR",
    Life.ENDING: "DELETING",
}
DELETING_SECONDS = 15.0
LOGS_SECONDS = 3.0
"""From the request for logs until they are there."""


@dataclass(kw_only=True)
class Instance(Rental):
    number: int
    name: str
    flavor: Flavor
    environment: str
    image: str
    key_name: str
    labels: list[str]
    security_rules: list[dict[str, Any]]
    floating_ip_wanted: bool


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    balance_usd: Decimal = Decimal(1_000_000)
    """A launch is refused unless it covers an hour of the new machine and of all that run."""
    environments: dict[str, str] = field(default_factory=dict[str, str])
    """The region of each environment."""
    keypairs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The public key, by environment and name."""
    instances: Rentals[Instance] = field(init=False)
    _logs: dict[int, tuple[str, datetime, str]] = field(default_factory=dict[int, tuple[str, datetime, str]])
    """The machine, the time and the lines of each request for logs."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(101))
    _rule_numbers: Iterator[int] = field(default_factory=lambda: count(5_001))

    def __post_init__(self) -> None:
        # A deleted machine is absent at once, and 404.
        self.instances = Rentals(self.host, self.scenario, self.now, DELETING_SECONDS, 0.0)

    def status(self, instance: Instance) -> str:
        life = self.instances.life(instance)
        return STATUS[life] if life is Life.ENDING else instance.unknown_status or STATUS[life]

    def covers(self, flavor: Flavor) -> bool:
        running = sum((_usd_per_hour(each.flavor) for each in self.instances.standing()), Decimal(0))
        return running + _usd_per_hour(flavor) <= self.balance_usd

    def numbered(self, rule: dict[str, Any]) -> dict[str, Any]:
        """A rule of a machine as it is listed."""
        return rule | {"id": next(self._rule_numbers), "status": "SUCCESS"}

    async def launch(self, instance: Callable[[int], Instance], *, user_data: str) -> Instance:
        made = instance(next(self._numbers))
        return await self.instances.launch(made, made.flavor.model, made.flavor.gpus, user_data=user_data)

    def request_logs(self, instance: Instance, lines: int) -> int:
        """The number of a request for the last lines that a machine printed."""
        printed = self.host.console(instance.id).splitlines(keepends=True)
        number = len(self._logs) + 1
        self._logs[number] = instance.id, self.now(), "".join(printed[-lines:])
        return number

    def logs(self, instance: Instance, number: int) -> str | None:
        """What was requested; None before it is there. Raises LookupError for a request of another machine."""
        of, requested_at, printed = self._logs[number]
        if of != instance.id:
            raise LookupError(number)
        return printed if self.now() - requested_at >= timedelta(seconds=LOGS_SECONDS) else None

    def bill_nano(self) -> Nano:
        """Started minutes while ACTIVE, of every machine that ever existed."""
        return Nano(sum(self._cost(each) for each in self.instances.every.values()))

    def _cost(self, instance: Instance) -> int:
        minutes = -(-self.instances.seconds_run(instance) // 60)
        return int(_usd_per_hour(instance.flavor) * NANO_PER_USD) * minutes // 60


def _usd_per_hour(flavor: Flavor) -> Decimal:
    return Decimal(PRICES.get(flavor.gpu, "0")) * flavor.gpus
