"""A project of the emulated Nebius: platforms, prices, a network, service accounts, machines, their operations.

Platform and preset names are those of docs.nebius.com; the price of an H200 is that of its page on billing changes
(2025-10-01), and the others are examples of the same form. Machines are billed from their start to a complete stop,
disks from their creation to their deletion (legal/specific-terms/compute, read 2026-11-23).
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count

import jwt
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import NANO_PER_USD, Nano
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life, Rental, Rentals
from providers.emulators.scenario import Scenario
from providers.nebius_api import messages_pb2 as pb

REGION = "eu-north1"
FABRICS = ("fabric-2", "fabric-3")
PROJECT_ID = "project-e00emulated"
TENANT_ID = "tenant-e00emulated"
NETWORK_ID = "vpcnetwork-e00emulated"
SUBNET_ID = "vpcsubnet-e00emulated"
SERVICE_ACCOUNT_ID = "serviceaccount-e00emulated"
PUBLIC_KEY_ID = "publickey-e00emulated"
IMAGE_FAMILIES = ("ubuntu24.04-cuda12", "ubuntu22.04-cuda12", "ubuntu24.04-cuda13.0")
DISK_USD_PER_GIB_HOUR = Decimal("0.0000972602739726")
TOKEN_SECONDS = 43_200
ASSERTION_SECONDS_MAX = 300
RECONCILING_SECONDS = 20.0
"""How long a new machine is listed as STOPPED, before STARTING."""
DELETING_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PresetOnSale:
    platform: str
    name: str
    vcpus: int
    memory_gib: int
    gpus: int
    usd_per_hour: Decimal
    model: GpuModel | None = None

    @property
    def native_type(self) -> str:
        return f"{self.platform}/{self.name}"


def _preset(platform: str, name: str, usd: str, model: GpuModel | None = None) -> PresetOnSale:
    """A preset's name says what it has: `8gpu-128vcpu-1600gb`."""
    parts = {
        part.lstrip("0123456789"): int(part.rstrip("abcdefghijklmnopqrstuvwxyz")) for part in name.split("-")
    }
    return PresetOnSale(platform, name, parts["vcpu"], parts["gb"], parts.get("gpu", 0), Decimal(usd), model)


PRESETS = {
    each.native_type: each
    for each in (
        _preset("gpu-h200-sxm", "1gpu-16vcpu-200gb", "3.50", GpuModel.H200_SXM_141GB),
        _preset("gpu-h200-sxm", "8gpu-128vcpu-1600gb", "28.00", GpuModel.H200_SXM_141GB),
        _preset("gpu-h100-sxm", "1gpu-16vcpu-200gb", "2.95", GpuModel.H100_SXM_80GB),
        _preset("gpu-h100-sxm", "8gpu-128vcpu-1600gb", "23.60", GpuModel.H100_SXM_80GB),
        _preset("gpu-l40s-a", "1gpu-8vcpu-32gb", "1.5475", GpuModel.L40S_48GB),
        _preset("gpu-rtx6000", "1gpu-24vcpu-218gb", "1.80"),
        _preset("cpu-d3", "4vcpu-16gb", "0.0994"),
    )
}


@dataclass(kw_only=True)
class Instance(Rental):
    metadata: pb.ResourceMetadata
    spec: pb.InstanceSpec


@dataclass
class Account:
    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    public_keys: dict[str, str]
    """The service account's authorized keys in PEM, by their ids."""
    gpus_max: int = 64
    groups: dict[str, pb.SecurityGroup] = field(default_factory=dict[str, pb.SecurityGroup])
    rules: dict[str, dict[str, pb.SecurityRule]] = field(
        default_factory=dict[str, dict[str, pb.SecurityRule]]
    )
    """By the id of the group, and by name."""
    failed: list[pb.Operation] = field(default_factory=list[pb.Operation])
    """The operations that failed after they were accepted."""
    answered: dict[str, pb.Operation] = field(default_factory=dict[str, pb.Operation])
    """The operation of each idempotency key."""
    maintenance: dict[str, pb.MaintenanceEvent] = field(default_factory=dict[str, pb.MaintenanceEvent])
    """The maintenance that is announced, by the ids of its events."""
    named_events: dict[str, str] = field(default_factory=dict[str, str])
    """The event that each machine names, by the machines' ids."""
    instances: Rentals[Instance] = field(init=False)
    _tokens: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.instances = Rentals(self.host, self.scenario, self.now, DELETING_SECONDS, 0.0)

    def new_id(self, kind: str) -> str:
        return f"{kind}-e00{next(self._numbers):08d}"

    def operation(self, resource_id: str) -> pb.Operation:
        """One that goes on."""
        made = pb.Operation(id=self.new_id("computeoperation"), resource_id=resource_id)
        made.created_at.FromDatetime(self.now())
        return made

    def finished(self, resource_id: str) -> pb.Operation:
        made = self.operation(resource_id)
        made.finished_at.FromDatetime(self.now())
        made.status.SetInParent()
        return made

    def token_for(self, assertion: str) -> str | None:
        """A new access token; None for an assertion that proves nothing."""
        try:
            key = self.public_keys[jwt.get_unverified_header(assertion)["kid"]]
            loaded = load_pem_public_key(key.encode())
            unchecked = {"verify_exp": False, "verify_iat": False}  # By this clock, below.
            claims = jwt.decode(assertion, loaded, algorithms=["RS256"], options=unchecked)  # type: ignore[arg-type]  # PyJWT's union of keys is narrower
        except (jwt.PyJWTError, KeyError):
            return None
        left = float(claims.get("exp", 0)) - self.now().timestamp()
        if {claims.get("iss"), claims.get("sub")} != {
            SERVICE_ACCOUNT_ID
        } or not 0 < left <= ASSERTION_SECONDS_MAX:
            return None
        token = secrets.token_urlsafe(32)
        self._tokens[token] = self.now() + timedelta(seconds=TOKEN_SECONDS)
        return token

    def knows(self, token: str) -> bool:
        return token in self._tokens and self.now() < self._tokens[token]

    def gpus_held(self) -> int:
        return sum(PRESETS[each.native_type].gpus for each in self.instances.standing())

    def named(self, name: str) -> Instance | None:
        every = (each for each in self.instances.every.values() if each.metadata.name == name)
        return next((each for each in every if self.instances.life(each) is not Life.FORGOTTEN), None)

    async def launch(self, request: pb.CreateInstanceRequest, preset: PresetOnSale) -> Instance:
        made = Instance(
            id=self.new_id("computeinstance"),
            native_type=preset.native_type,
            native_region=REGION,
            metadata=request.metadata,
            spec=request.spec,
        )
        made.metadata.id = made.id
        data = request.spec.cloud_init_user_data
        return await self.instances.launch(made, preset.model, preset.gpus, user_data=data)

    def status(self, instance: Instance) -> pb.InstanceStatus:
        status = self._status(instance)
        status.maintenance_event_id = self.named_events.get(instance.id, "")
        return status

    def plan_maintenance(self, instance_id: str, event: str, at: datetime) -> None:
        """Announce that a machine is stopped by force at this time. Another time for the same event takes its place."""
        made = pb.MaintenanceEvent(id=event)
        made.status.sla_deadline_ts.FromDatetime(at)
        self.maintenance[event], self.named_events[instance_id] = made, event

    def end_maintenance(self, event: str) -> None:
        del self.maintenance[event]
        self.named_events = {ref: named for ref, named in self.named_events.items() if named != event}

    def _status(self, instance: Instance) -> pb.InstanceStatus:
        if instance.unknown_status is not None:
            return _status(int(instance.unknown_status))
        states = pb.InstanceStatus
        first = (self.now() - instance.launched_at).total_seconds() < RECONCILING_SECONDS
        match self.instances.life(instance):
            case Life.ENDING:
                return _status(states.DELETING, reconciling=True)
            case Life.SOLD_OUT:  # Its operation failed. It stays listed, and its disk exists.
                return _status(states.STOPPED, reconciling=first)
            case Life.RUNNING:
                return _running(self.instances.address(instance))
            case Life.STOPPED:
                return _status(states.STOPPED)
            case Life.CREATING:
                return _status(states.STOPPED if first else states.STARTING, reconciling=True)
            case _:
                return _status(states.ERROR)

    def bill_nano(self) -> Nano:
        """Machines while they run, and their disks while they exist, by the second."""
        return Nano(sum(self._cost(each) for each in self.instances.every.values()))

    def _cost(self, instance: Instance) -> int:
        seconds = self.instances.seconds_run(instance) - self.instances.seconds_off(instance)
        existed = int(((instance.ended_at or self.now()) - instance.launched_at).total_seconds())
        machine = PRESETS[instance.native_type].usd_per_hour * seconds
        return int(
            (machine + disk_usd_per_hour(instance.spec.boot_disk.managed_disk.spec) * existed)
            * NANO_PER_USD
            / 3_600
        )


def disk_usd_per_hour(disk: pb.DiskSpec) -> Decimal:
    return disk.size_gibibytes * DISK_USD_PER_GIB_HOUR


def _status(state: int, *, reconciling: bool = False) -> pb.InstanceStatus:
    made = pb.InstanceStatus(reconciling=reconciling)
    made.state = state  # type: ignore[assignment]  # The enum is open: a state of tomorrow is a number.
    return made


def _running(address: str | None) -> pb.InstanceStatus:
    made = _status(pb.InstanceStatus.RUNNING)
    interface = made.network_interfaces.add()
    interface.ip_address.address = "10.0.0.7/32"
    if address is not None:
        interface.public_ip_address.address = f"{address}/32"
    return made
