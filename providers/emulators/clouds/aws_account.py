"""An account of the emulated AWS: its machines, images, prices and bill, on top of moto's EC2.

moto keeps subnets, security groups, instance types and instances, and writes the answers. It differs from EC2 in what
costs money, and this changes that: a machine of moto runs at once, keeps its state for ever, takes any user data, is
never sold out, and is bought twice with the same `ClientToken`. moto has no prices, and shows every type in every
region; only its list of zones is right. Types, zones and GPUs are moto's copies of what AWS listed. Prices are examples
in the form of the price list, and not today's. Billing is by the second while a machine runs, for a minute at least.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any
from unittest.mock import patch

from moto import settings as moto_settings
from moto.core.request import Request
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import InstanceState
from moto.ec2.responses import EC2Response

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.clouds.aws_documents import ScheduledEvent
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario

PRICES = {
    "p4d.24xlarge": "21.9576420000",
    "p4de.24xlarge": "27.4470525000",
    "p5.4xlarge": "6.8800000000",
    "p5.48xlarge": "55.0400000000",
    "p5e.48xlarge": "63.2960000000",
    "p5en.48xlarge": "63.2960000000",
    "p6-b200.48xlarge": "113.9328000000",
    "g5.xlarge": "1.0060000000",
    "g6.xlarge": "0.8048000000",
    "g6.12xlarge": "4.6016000000",
    "g6e.xlarge": "1.8610000000",
    "g6f.large": "0.2020000000",
}
"""USD for an hour of a machine on demand, as text with ten decimals."""
MODELS = {
    "p4d": GpuModel.A100_SXM_40GB,
    "p4de": GpuModel.A100_SXM_80GB,
    "p5": GpuModel.H100_SXM_80GB,
    "p5e": GpuModel.H200_SXM_141GB,
    "p5en": GpuModel.H200_SXM_141GB,
    "p6-b200": GpuModel.B200_SXM_180GB,
    "g6": GpuModel.L4_24GB,
    "g6e": GpuModel.L40S_48GB,
}
"""The GPU that the machine's NVML shows, by the family of its type."""
IMAGES = {
    "ami-0a1111111111111a1": (
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260915",
        "amazon",
    ),
    "ami-0a2222222222222a2": (
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261006",
        "amazon",
    ),
    "ami-0bad33333333333b3": (
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20991231",
        "somebody",
    ),
}
"""Name and owner of each image; the last one is a trap that anybody can set."""
STATUS = {
    Life.CREATING: ("pending", 0),
    Life.RUNNING: ("running", 16),
    Life.STOPPED: ("stopped", 80),
    Life.FAILED: ("terminated", 48),
    Life.ENDING: ("shutting-down", 32),
    Life.ENDED: ("terminated", 48),
}
SHUTTING_DOWN_SECONDS = 30.0
TERMINATED_VISIBLE_SECONDS = 3_600.0
BILLED_SECONDS_MIN = 60
_ACCOUNT_NUMBERS = count(300_000_000_001)
"""moto keeps its accounts in this process by their numbers, so each account has one of its own."""


@dataclass(kw_only=True)
class Machine(Rental):
    region: str
    client_token: str
    spot: bool = False

    @property
    def stock_name(self) -> str:
        return stock_name(self.native_type, spot=self.spot)


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    vcpus_max: int = 4_000
    """How many vCPUs may run on demand in one region, and how many as spot."""
    protected: set[str] = field(default_factory=set[str])
    """The ids of machines that somebody protected from termination."""
    events: dict[str, list[ScheduledEvent]] = field(default_factory=dict[str, list[ScheduledEvent]])
    """The work that is scheduled on machines, by their ids."""
    machines: Rentals[Machine] = field(init=False)
    launches: dict[tuple[str, str], tuple[Mapping[str, str], Machine, bytes]] = field(
        default_factory=dict[tuple[str, str], tuple[Mapping[str, str], Machine, bytes]]
    )
    """Parameters, machine and answer of each launch, by region and `ClientToken`."""
    number: str = field(default_factory=lambda: str(next(_ACCOUNT_NUMBERS)))

    def __post_init__(self) -> None:
        self.machines = Rentals(
            self.host, self.scenario, self.now, SHUTTING_DOWN_SECONDS, TERMINATED_VISIBLE_SECONDS
        )

    def backend(self, region: str) -> Any:
        """The EC2 of moto in a region, with our images."""
        with patch.object(moto_settings, "ec2_load_default_amis", return_value=False):
            found = ec2_backends[self.number][region]
        if not found.amis:
            found.amis.update({image: _image(found, image, *about) for image, about in IMAGES.items()})
        return found

    def ask(self, region: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """What moto answers, about machines as they are now: status and document."""
        with self._machines_as_they_are(self.backend(region)):
            request = Request.from_primitives(
                "POST", url, {**headers, "x-moto-account-id": self.number}, body
            )
            status, _, document = EC2Response.dispatch(request, url, request.headers)
        return int(status), document if isinstance(document, bytes) else document.encode()

    def vcpus(self, region: str, *, spot: bool) -> int:
        """How many run or will run in a region, of one kind."""
        standing = (each for each in self.machines.standing() if (each.region, each.spot) == (region, spot))
        return sum(vcpus_of(each.native_type) for each in standing)

    def bill_nano(self) -> Nano:
        """Seconds while it ran, of every machine that ever existed. Not those while it was stopped, nor its disk."""
        return Nano(sum(self._cost(each) for each in self.machines.every.values()))

    def _cost(self, machine: Machine) -> int:
        seconds = self.machines.seconds_run(machine) - self.machines.seconds_off(machine)
        billed = max(seconds, BILLED_SECONDS_MIN) if machine.running_since else 0
        return int(Decimal(PRICES[machine.native_type]) * NANO_PER_USD) * billed // 3_600

    @contextmanager
    def _machines_as_they_are(self, backend: Any) -> Iterator[None]:
        """Have moto show its machines in their present state, and none that is not listed."""
        listed = {each.id: each for each in self.machines.listed()}
        every = backend.reservations
        for reservation in every.values():
            for instance in reservation.instances:
                if instance.id in listed:
                    self._show(instance, listed[instance.id])
        backend.reservations = type(every)(
            (name, each) for name, each in every.items() if each.instances[0].id in listed
        )
        try:
            yield
        finally:
            made = backend.reservations
            backend.reservations = type(every)({**every, **made})

    def status(self, machine: Machine) -> tuple[str, int]:
        """Name and code of its state."""
        life = self.machines.life(machine)
        name, code = STATUS[life]
        standing = life in (Life.CREATING, Life.RUNNING, Life.STOPPED)
        return (machine.unknown_status or name if standing else name), code

    def _show(self, instance: Any, machine: Machine) -> None:
        instance._state = InstanceState(*self.status(machine))  # noqa: SLF001 - moto has no other way to set a state
        for nic in instance.nics.values():
            nic.public_ip = self.machines.address(machine)


def stock_name(native_type: str, *, spot: bool) -> str:
    """The name of a type in the stock of a scenario: spot and on demand sell out one by one."""
    return f"{native_type}:spot" if spot else native_type


def vcpus_of(native_type: str) -> int:
    return int(INSTANCE_TYPES[native_type]["VCpuInfo"]["DefaultVCpus"])


def gpus_of(native_type: str) -> tuple[GpuModel | None, int]:
    gpus = INSTANCE_TYPES[native_type].get("GpuInfo", {}).get("Gpus", [])
    return MODELS.get(native_type.partition(".")[0]), sum(each["Count"] for each in gpus)


def zones_of(native_type: str, region: str) -> frozenset[str]:
    """The zones of a region that have a type."""
    offerings = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ())
    return frozenset(each["Location"] for each in offerings if each["InstanceType"] == native_type)


def _image(backend: Any, image: str, name: str, owner: str) -> Ami:
    day = datetime.strptime(f"{name.rpartition(' ')[2]} +0000", "%Y%m%d %z")
    return Ami(
        backend,
        image,
        name=name,
        owner_id="898082745236" if owner == "amazon" else "666666666666",
        owner_alias=owner if owner == "amazon" else None,
        public=True,
        virtualization_type="hvm",
        architecture="x86_64",
        root_device_type="ebs",
        root_device_name="/dev/sda1",
        creation_date=day,
        region_name=f"{backend.region_name}a",
    )
