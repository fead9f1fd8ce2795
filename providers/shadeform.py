"""Shadeform, API v1: one API over the machines of many clouds. Its traps (official OpenAPI in squat/shadeform-api
@6433b00, docs.shadeform.ai and shadeform/terraform-provider-shadeform @c5e5295, read 2026-11-23; what SkyPilot's
adapter does and what other clients saw is named):

- A type exists once for each cloud below, so that the cloud's name is a part of ours: `hyperstack/A100_80Gx8`.
- Only `deployment_type: vm` is offered. Some clouds start containers, in which neither WireGuard nor K3s runs; a type
  that does not say what it is, is left out. GH200 hosts are ARM, and left out.
- Places with `rental_type: spot` are in the same list (another client); they are not sold as on demand.
- Regions are named by cloud, and no list says in which country one is. Offers are sold in those clouds and regions
  alone whose country we know from the cloud's own documentation.
- Prices are whole cents for the machine. The specification of 2024 says that they are without Shadeform's fee,
  today's documentation does not mention one: compare the first invoice.
- No format of errors is documented. An object with a `message` or an `error` in words is read as one, whatever else
  is in it; anything else is unclear.
- A launch has no idempotency key. The launch key is the name, and a tag. The list cannot be searched.
- The user data is a shell script in base64, run when the machine is active. It is a part of every listing of the
  machine, with the machine's private host key: whoever has the API key can read it. The script is not read by us.
- Without `ssh_key_id` Shadeform puts a key of its own on the machine. Our script ends that: sshd then accepts
  certificates alone.
- SSH may be on another port than 22. The address may be a name instead of an IP address (specification); then the
  machine has no address for us, and is given up at its deadline.
- There is no firewall to set: what is open depends on the cloud below. Whether UDP arrives shows when nodes connect.
- A delete is answered with HTTP 200 and no body (SkyPilot), and some clouds delete only what is active.
- Deleted machines are not listed; `deleting` ones are, and cost nothing any more.
- Starting takes up to an hour for some clouds (Terraform's provider and SkyPilot wait that long).
- `auto_delete` would end a machine at a date or an amount. A lease has no end that is known at its launch, and a date
  that comes while it is in use would end a healthy machine, so it is not used.
- No rate limit is published. The one here is ours.
- There is no word for a machine that is off. What the cloud below shows for one that was shut down from inside may
  come as `error`, so that word does not tell whose doing it is.
- A restart leaves the status at `active`, and no call stops a machine (docs.shadeform.ai, read 2026-11-23).
"""

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import CapacityShape, Shape
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    Capabilities,
    Confidence,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    PowerAction,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, Rule, error_for
from providers.gpu_names import gpu_named
from providers.listings import address_or_name, offered_price, ours, reference_of, sighting
from providers.rest import ErrorContract, Rest, detail_from, ignored
from providers.signing import header

NAME = "shadeform"


@dataclass(frozen=True, slots=True)
class Settings:
    api_key: str = field(repr=False)
    base_url: str = "https://api.shadeform.ai/v1"
    os: str = "ubuntu22.04_cuda12.2_shade_os"
    """The operating system of machines. Types that cannot have it are not offered."""


CAPABILITIES = Capabilities(
    list_lag_seconds=120.0,  # Not documented: a safety margin, for two clouds behind each other.
    boot_seconds_max=3_600.0,
    user_data_bytes_max=16_000,  # Not documented: EC2's limit, which is the smallest of the clouds below.
    user_data_kind=UserDataKind.SHELL_SCRIPT,
    rate_limits=(RateLimit("account", 60, 60.0, frozenset(Verb)),),  # Not published: ours.
    terminate_may_be_refused=True,
    billed_while_booting=True,
    firewall=ProviderFirewall.UNKNOWN,  # That of the cloud below.
    power=frozenset({PowerAction.REBOOT}),
)

REGIONS = {
    ("hyperstack", "canada-1"): "ca-canada-1",
    ("hyperstack", "norway-1"): "no-norway-1",
    ("hyperstack", "us-1"): "us-us-1",
} | {
    ("lambdalabs", word): word
    for word in (
        *("us-east-1", "us-east-2", "us-east-3", "us-midwest-1", "us-midwest-2"),
        *("us-south-1", "us-south-2", "us-south-3", "us-west-1", "us-west-2", "us-west-3"),
    )
}
"""The cloud and its region to our name of it, whose first two letters are the jurisdiction. Others are left out."""

STATES = {
    "creating": ListedState.PROVISIONING,
    "pending_provider": ListedState.PROVISIONING,
    "pending": ListedState.PROVISIONING,
    "active": ListedState.RUNNING,
    "error": ListedState.OFF_OR_FAILED,
    "deleting": ListedState.ENDING,
    "deleted": ListedState.GONE,
}

SOLD = "vm"
ON_DEMAND = frozenset({None, "", "on_demand"})


class Configuration(msgspec.Struct):
    gpu_type: str
    num_gpus: int
    vcpus: int
    memory_in_gb: int
    storage_in_gb: int
    vram_per_gpu_in_gb: int | None = None
    interconnect: str | None = None
    os_options: list[str] | None = None


class Place(msgspec.Struct):
    region: str
    available: bool
    rental_type: str | None = None


class InstanceType(msgspec.Struct):
    cloud: str
    shade_instance_type: str
    hourly_price: Decimal
    configuration: Configuration
    availability: list[Place]
    deployment_type: str | None = None

    @property
    def name(self) -> str:
        return f"{self.cloud}/{self.shade_instance_type}"


class InstanceTypes(msgspec.Struct):
    instance_types: list[InstanceType]


class Launched(msgspec.Struct):
    id: str


class Instance(msgspec.Struct):
    id: str
    name: str
    status: str
    cloud: str | None = None
    shade_instance_type: str | None = None
    ip: str | None = None
    ssh_port: int | None = None
    tags: list[str] | None = None


class Instances(msgspec.Struct):
    instances: list[Instance]


class Failure(msgspec.Struct):
    message: Any = None
    error: Any = None


def _detail(failure: Failure) -> ErrorDetail | None:
    words = next((each for each in (failure.message, failure.error) if isinstance(each, str) and each), None)
    return None if words is None else ErrorDetail("", words)


ERRORS = ErrorContract(
    detail_from(Failure, _detail),
    (
        *(
            Rule(Meaning.NO_CAPACITY, text=phrase, status=status, verb=Verb.LAUNCH)
            for phrase in ("not available", "capacity", "out of stock", "no longer available", "sold out")
            for status in (400, 404, 409, 422)
        ),
        *(
            Rule(Meaning.QUOTA_REACHED, text=phrase, status=400, verb=Verb.LAUNCH, scope=BlockScope.ACCOUNT)
            for phrase in ("balance", "credit", "funds", "quota", "limit")
        ),
        *(Rule(Meaning.NOT_FOUND, status=404, verb=verb) for verb in (Verb.TERMINATE, Verb.POWER)),
    ),
)


class Shadeform:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.base_url,
            sign=header("X-API-KEY", settings.api_key),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )
        self._os = settings.os

    async def offers(self) -> tuple[Listed, ...]:
        return await self._rest.call(
            Verb.OFFERS, "GET", "instances/types", InstanceTypes, lambda listed: _offers(listed, self._os)
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self._rest.call(Verb.INVENTORY, "GET", "instances", Instances, _inventory)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        return await self._rest.call(
            Verb.LAUNCH,
            "POST",
            "instances/create",
            Launched,
            lambda made: reference_of(made.id),
            body=self._body(order),
            private=order.user_data,
        )

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        if action is not PowerAction.REBOOT:
            raise error_for(Verb.POWER, Meaning.REFUSED, f"Shadeform cannot {action} machines")
        path = ("instances", provider_ref, "restart")
        await self._rest.call(Verb.POWER, "POST", path, Launched, ignored, empty_status=200)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        path = ("instances", provider_ref, "delete")
        # A body is not documented. One that shows the machine is a good answer; any other is unclear.
        await self._rest.call(Verb.TERMINATE, "POST", path, Launched, ignored, empty_status=200)

    async def close(self) -> None:
        await self._rest.close()

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        cloud, _, shade_instance_type = order.native_type.partition("/")
        script = {"base64_script": b64encode(order.user_data.encode()).decode()}
        return {
            "cloud": cloud,
            "region": order.native_region,
            "shade_instance_type": shade_instance_type,
            "shade_cloud": True,
            "name": order.launch_key,
            "tags": [order.launch_key],
            "os": self._os,
            "launch_configuration": {"type": "script", "script_configuration": script},
        }


def _offers(listed: InstanceTypes, wanted_os: str) -> tuple[Listed, ...]:
    found = (
        _offer(kind, place)
        for kind in listed.instance_types
        if _sold(kind, wanted_os)
        for place in kind.availability
        if place.rental_type in ON_DEMAND
    )
    return tuple({_place(each): each for each in found}.values())


def _place(each: Listed) -> tuple[str, str]:
    """What may be listed once."""
    if isinstance(each, LeftOut):
        return each.reason, each.name
    return each.native_type, each.native_region


def _sold(kind: InstanceType, wanted_os: str) -> bool:
    has = kind.configuration
    return kind.deployment_type == SOLD and has.num_gpus > 0 and wanted_os in (has.os_options or ())


def _model(has: Configuration) -> GpuModel | None:
    name, _, _ = has.gpu_type.partition("_")
    return gpu_named(f"{name} {has.vram_per_gpu_in_gb or 0}GB {has.interconnect or 'unknown'}")


def _offer(kind: InstanceType, place: Place) -> Listed:
    has, model, region = kind.configuration, _model(kind.configuration), (kind.cloud, place.region)
    if model is None:
        name = f"{has.gpu_type} {has.vram_per_gpu_in_gb or '?'} GB {has.interconnect or ''}"
        return LeftOut(LeftOutFor.UNKNOWN_GPU, name.strip())
    if region not in REGIONS:
        return LeftOut(LeftOutFor.UNKNOWN_REGION, "/".join(region))
    return ListedOffer(
        native_type=kind.name,
        region=REGIONS[region],
        native_region=place.region,
        shape=Shape(model, has.num_gpus, has.vcpus, has.memory_in_gb, disk_gib=has.storage_in_gb),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=offered_price(kind.hourly_price, per_usd=100),
        available=place.available,
        confidence=Confidence.ADVISORY,
    )


def _inventory(listed: Instances) -> tuple[Sighting, ...]:
    return ours(_sighting(each) for each in listed.instances)


def _sighting(instance: Instance) -> Sighting | None:
    marks: Iterable[str | None] = (*(instance.tags or ()), instance.name)
    known = instance.cloud and instance.shade_instance_type
    return sighting(
        instance.id,
        marks,
        instance.status,
        STATES,
        address=address_or_name(instance.ip),
        ssh_port=instance.ssh_port or 22,
        native_type=f"{instance.cloud}/{instance.shade_instance_type}" if known else None,
    )


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Shadeform:
    return Shadeform(settings, transport=transport)
