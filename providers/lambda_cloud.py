"""Lambda Cloud, API v1. The traps, before the code (official OpenAPI 1.8.3 and 1.10.0, read 2026-11-20):

- Launch has no idempotency key and the list has no filter and no `created_at`. The launch key
  travels as name, hostname and tag, and a lost launch is looked for in the whole list.
- "Sold out" is HTTP 400 with code `instance-operations/launch/insufficient-capacity`; so are a full
  quota and a bad parameter. Only `error.code` tells them apart; `message` is free to change.
- Listed capacity is advisory: 3 of 11 launches were refused although listed (a third party's report).
- A launch takes exactly one SSH key by its registered name, so ours is registered first. That is a
  call or two of its own at one request per second; the guard paces them through `prepare`.
- One request per second in all, one launch per 12 seconds; beyond it 429, without Retry-After.
- Terminate answers 200 with the instances "successfully terminated": ours missing there means it
  was refused for now. An unknown id is 404.
- `ip` is missing while booting, and `active` does not mean that sshd answers.
- 5xx codes, also `provider/*`, say nothing about whether a launch happened.
- The old host cloud.lambdalabs.com may redirect; we follow within one origin only, because the key
  travels with the request.
- The list has no pages today. Should an answer carry a page token, it is not the whole list: an error.
- GPU model and memory exist only as text, such as `H100 (80 GB SXM5)`.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LaunchKey, ProviderRef, installation_of
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    InstanceNotFound,
    LaunchOrder,
    ListedOffer,
    ListedState,
    NoCapacity,
    NotYet,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    RateLimit,
    Rejected,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.rest import Body, Rest, decoded, decoded_or_none, fit_to_show, retry_after_seconds, silence

NAME = "lambda_cloud"
KEY_TAG = "sp-launch-key"


@dataclass(frozen=True, slots=True)
class Settings:
    api_key: str = field(repr=False)
    base_url: str = "https://cloud.lambda.ai/api/v1"
    connect_seconds: float = 10.0
    answer_seconds: float = 90.0
    """The guard's patience is shorter; this only keeps a forgotten socket from living for ever."""


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented; a margin.
    boot_seconds_max=1_800.0,  # Measured by others: 165 to 478 s for one GPU, 10 to 15 min for eight.
    user_data_bytes_max=1_000_000,
    rate_limits=(
        RateLimit("all", 1, 1.0, frozenset({"offers", "inventory", "terminate", "prepare", "launch"})),
        RateLimit("launch", 1, 12.0, frozenset({"launch"})),
    ),
    terminate_may_be_refused=True,
    billed_while_booting=False,  # From the health check after boot, by the minute.
)

REGIONS = {
    "europe-central-1": "eu-central-1",  # Germany
    "asia-south-1": "in-south-1",  # India
    "asia-northeast-1": "jp-northeast-1",  # Osaka
    "asia-northeast-2": "jp-northeast-2",  # Tokyo
    "australia-east-1": "au-east-1",  # Sydney
    "me-west-1": "il-west-1",  # Israel
} | {
    word: word
    for word in (
        *("us-east-1", "us-east-2", "us-east-3", "us-midwest-1", "us-midwest-2"),
        *("us-south-1", "us-south-2", "us-south-3", "us-west-1", "us-west-2", "us-west-3"),
    )
}
"""Their word to ours, whose first two letters are the jurisdiction. A customer's "EU" is a promise about law, so
a region that is not in this table is never guessed from its name; its offers are left out until somebody looks."""

GPUS = {
    ("A10", 24, "PCIE"): GpuModel.A10_24GB,
    ("A100", 40, "PCIE"): GpuModel.A100_PCIE_40GB,
    ("A100", 40, "SXM"): GpuModel.A100_SXM_40GB,
    ("A100", 80, "PCIE"): GpuModel.A100_PCIE_80GB,
    ("A100", 80, "SXM"): GpuModel.A100_SXM_80GB,
    ("A6000", 48, ""): GpuModel.A6000_48GB,
    ("B200", 180, "SXM"): GpuModel.B200_SXM_180GB,
    ("GH200", 96, ""): GpuModel.GH200_96GB,
    ("H100", 80, "PCIE"): GpuModel.H100_PCIE_80GB,
    ("H100", 80, "SXM"): GpuModel.H100_SXM_80GB,
    ("H200", 141, "SXM"): GpuModel.H200_SXM_141GB,
}
_GPU_TEXT = re.compile(r"(?:Tesla )?(?P<name>[A-Z0-9 ]+) \((?P<gb>\d+) GB(?: (?P<link>[A-Za-z]+)\d*)?\)")

STATES = {
    "booting": ListedState.PROVISIONING,
    "active": ListedState.RUNNING,
    "unhealthy": ListedState.FAILED,
    "preempted": ListedState.FAILED,
    "terminating": ListedState.ENDING,
    "terminated": ListedState.GONE,
}

_REFUSALS: dict[str, type[Rejected]] = {
    "global/invalid-api-key": Unauthorized,
    "global/account-inactive": Unauthorized,
    "global/invalid-address": Unauthorized,
    "global/quota-exceeded": QuotaReached,
    "global/invalid-parameters": OrderRefused,
    "global/object-does-not-exist": OrderRefused,
    "global/duplicate": OrderRefused,
    "instance-operations/launch/insufficient-capacity": NoCapacity,
    "instance-operations/launch/file-system-in-wrong-region": OrderRefused,
}
_PREPARE_CALLS_MAX = 4


class Specs(msgspec.Struct):
    vcpus: int
    memory_gib: int
    storage_gib: int
    gpus: int


class InstanceType(msgspec.Struct):
    name: str
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs


class Region(msgspec.Struct):
    name: str


class TypeOnOffer(msgspec.Struct):
    instance_type: InstanceType
    regions_with_capacity_available: list[Region]


class Tag(msgspec.Struct):
    key: str
    value: str


class Instance(msgspec.Struct):
    """Of the instance object we read only this; jupyter tokens and the like stay unread."""

    id: str
    status: str
    name: str | None = None
    ip: str | None = None
    tags: list[Tag] | None = None


class SshKey(msgspec.Struct):
    name: str
    public_key: str


class Types(msgspec.Struct):
    data: dict[str, TypeOnOffer]


class Instances(msgspec.Struct):
    data: list[Instance]
    page_token: str | None = None
    next_page_token: str | None = None


class SshKeys(msgspec.Struct):
    data: list[SshKey]


class _Launched(msgspec.Struct):
    instance_ids: list[str]


class Launched(msgspec.Struct):
    data: _Launched


class _Terminated(msgspec.Struct):
    terminated_instances: list[Instance]


class Terminated(msgspec.Struct):
    data: _Terminated


class _Error(msgspec.Struct):
    code: str
    message: str = ""


class Failure(msgspec.Struct):
    error: _Error


def gpu_of(description: str) -> GpuModel | None:
    """The model that a description names; None for one we do not sell.

    >>> gpu_of("H100 (80 GB SXM5)")
    <GpuModel.H100_SXM_80GB: 'h100-sxm-80gb'>
    """
    match = _GPU_TEXT.fullmatch(description)
    if match is None:
        return None
    return GPUS.get((match["name"], int(match["gb"]), (match["link"] or "").upper()))


def key_material(public_key: str) -> str:
    """A public key without its comment, which providers and people change freely."""
    return " ".join(public_key.split()[:2])


class LambdaCloud:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._secret = settings.api_key
        self._rest = Rest(
            settings.base_url,
            headers={"Authorization": f"Bearer {settings.api_key}"},
            connect_seconds=settings.connect_seconds,
            answer_seconds=settings.answer_seconds,
            transport=transport,
        )
        self._key_names: dict[str, str] = {}
        self._keys_read = False
        self.types_left_out: frozenset[str] = frozenset()
        """Native types of the last listing that we cannot name, for the operator."""
        self.regions_left_out: frozenset[str] = frozenset()

    async def offers(self) -> tuple[ListedOffer, ...]:
        types = (await self._read("offers", "instance-types", Types)).data.values()
        self._note_what_is_left_out(types)
        return tuple(
            _offer(each, model, native_region)
            for each in types
            if (model := gpu_of(each.instance_type.gpu_description)) is not None
            for native_region in REGIONS
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        listed = await self._read("inventory", "instances", Instances)
        if listed.page_token or listed.next_page_token:
            raise Unavailable("inventory: the list has more pages, and an incomplete list is no list")
        return tuple(
            Sighting(
                ProviderRef(each.id),
                key,
                STATES.get(each.status, ListedState.UNKNOWN),
                native_status=each.status,
                address=each.ip or None,
            )
            for each in listed.data
            if (key := _launch_key(each)) is not None
        )

    def prepared(self, order: LaunchOrder) -> bool:
        return key_material(order.ssh_public_key) in self._key_names

    async def prepare(self, order: LaunchOrder) -> None:
        """One step towards a registered key: read the registry, or add ours to it. Repeating it is harmless."""
        if not self._keys_read:
            keys = (await self._read("prepare", "ssh-keys", SshKeys)).data
            self._key_names = {key_material(key.public_key): key.name for key in keys}
            self._keys_read = True
            return
        # Whatever becomes of it, the registry is worth another look unless we hear that it worked:
        # a lost answer may have registered the key, and "duplicate" may mean that another replica has.
        self._keys_read = False
        material = key_material(order.ssh_public_key)
        name = f"splitplane-{hashlib.sha256(material.encode()).hexdigest()[:16]}"
        response = await self._rest.send(
            "prepare", "POST", "ssh-keys", {"name": name, "public_key": material}
        )
        if _code(response) == "global/duplicate":
            return
        self._accepted("prepare", response)
        self._key_names[material] = name
        self._keys_read = True

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(_PREPARE_CALLS_MAX):
            if self.prepared(order):
                break
            await self.prepare(order)
        else:
            raise OrderRefused("launch: our SSH key could not be registered")
        response = await self._rest.send("launch", "POST", "instance-operations/launch", self._body(order))
        try:
            self._accepted("launch", response, private=order.user_data)
        except OrderRefused:
            self._keys_read, self._key_names = False, {}  # Somebody may have deleted our key.
            raise
        ids = decoded("launch", response, Launched).data.instance_ids
        if len(ids) != 1:
            raise OutcomeUnknown(f"launch: {len(ids)} instance ids for one machine")
        return ProviderRef(ids[0])

    async def terminate(self, provider_ref: ProviderRef) -> None:
        wanted = {"instance_ids": [provider_ref]}
        response = await self._rest.send("terminate", "POST", "instance-operations/terminate", wanted)
        self._accepted("terminate", response)
        ended = decoded("terminate", response, Terminated).data.terminated_instances
        if provider_ref not in {each.id for each in ended}:
            raise NotYet(f"terminate: {provider_ref[:60]} is not among the terminated instances")

    async def close(self) -> None:
        await self._rest.close()

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        return {
            "region_name": order.native_region,
            "instance_type_name": order.native_type,
            "ssh_key_names": [self._key_names[key_material(order.ssh_public_key)]],
            "name": order.launch_key,
            "hostname": order.launch_key,
            "tags": [{"key": KEY_TAG, "value": order.launch_key}],
            "user_data": order.user_data,
        }

    async def _read(self, verb: str, path: str, kind: type[Body]) -> Body:
        response = await self._rest.send(verb, "GET", path)
        self._accepted(verb, response)
        return decoded(verb, response, kind)

    def _accepted(self, verb: str, response: httpx.Response, *, private: str = "") -> None:
        """Raise what a response that is no success means for this verb. `private` never shows in an error."""
        if response.is_success:
            return
        status, failure = response.status_code, decoded_or_none(response, Failure)
        if status == 429:
            wait = retry_after_seconds(response, otherwise=12.0 if verb == "launch" else 1.0)
            raise Throttled(f"{verb}: too many requests", retry_after_seconds=wait)
        if status == 401:
            raise Unauthorized(f"{verb}: HTTP 401")
        code = failure.error.code if failure else "no code"
        if failure is None or status >= 500 or status == 408 or code.startswith("provider/"):
            raise silence(verb, f"HTTP {status}, {code}")
        said = fit_to_show(failure.error.message, (self._secret, private))
        kind = _REFUSALS.get(code, Unauthorized if status == 403 else OrderRefused)
        raise _refusal(verb, code, kind, f"{verb}: {code}{f' ({said})' if said else ''}")

    def _note_what_is_left_out(self, types: Iterable[TypeOnOffer]) -> None:
        with_gpu = [each for each in types if each.instance_type.specs.gpus > 0]
        self.types_left_out = frozenset(
            each.instance_type.name for each in with_gpu if gpu_of(each.instance_type.gpu_description) is None
        )
        regions = {region.name for each in with_gpu for region in each.regions_with_capacity_available}
        self.regions_left_out = frozenset(regions - REGIONS.keys())


def _offer(listed: TypeOnOffer, model: GpuModel, native_region: str) -> ListedOffer:
    kind = listed.instance_type
    return ListedOffer(
        native_type=kind.name,
        region=REGIONS[native_region],
        native_region=native_region,
        shape=Shape(
            model, kind.specs.gpus, kind.specs.vcpus, kind.specs.memory_gib, disk_gib=kind.specs.storage_gib
        ),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=Nano(kind.price_cents_per_hour * (NANO_PER_USD // 100)),
        available=any(region.name == native_region for region in listed.regions_with_capacity_available),
        confidence=Confidence.ADVISORY,
    )


def _launch_key(instance: Instance) -> LaunchKey | None:
    """Our mark: the tag, or the name where the tag was lost. The name can be changed in their console."""
    marks = [tag.value for tag in instance.tags or () if tag.key == KEY_TAG] + [instance.name or ""]
    return next((LaunchKey(mark) for mark in marks if installation_of(mark)), None)


def _refusal(verb: str, code: str, kind: type[Rejected], text: str) -> ProviderError:
    """What a definite no means for each verb."""
    if kind is Unauthorized or verb in ("launch", "prepare"):
        return kind(text)
    if verb == "terminate":
        return InstanceNotFound(text) if code == "global/object-does-not-exist" else NotYet(text)
    return Unavailable(text)


def _code(response: httpx.Response) -> str | None:
    failure = None if response.is_success else decoded_or_none(response, Failure)
    return failure.error.code if failure else None


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> LambdaCloud:
    return LambdaCloud(settings, transport=transport)
