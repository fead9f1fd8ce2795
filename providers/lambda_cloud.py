"""Lambda Cloud, API v1. Its traps (official OpenAPI 1.8.3 and 1.10.0, read 2026-11-20):

- A launch has no idempotency key, and the list has no filter and no `created_at`. The launch key
  travels as name, hostname and tag; a lost launch is looked for in the whole list.
- "Sold out" is HTTP 400 with the code `instance-operations/launch/insufficient-capacity`. A full
  quota and a bad parameter are HTTP 400 too. Only `error.code` distinguishes them; `message` may change.
- Listed capacity is advisory: 3 of 11 launches were refused although listed (a third party's report).
- A launch takes exactly one SSH key by its registered name, so ours is registered first. That takes
  one or two calls at one request per second; the guard paces them through `prepare`.
- The limits are one request per second in all and one launch per 12 seconds. Beyond them the answer
  is 429 without Retry-After.
- Terminate answers 200 with the instances that were "successfully terminated". If ours is not among
  them it was refused for now. An unknown id is 404.
- `ip` is missing while booting, and `active` does not mean that sshd answers.
- 5xx answers, and codes `provider/*` of any status, do not say whether a launch happened.
- The old host cloud.lambdalabs.com may redirect to the new one. `rest.py` follows redirects within
  one origin only, so the base URL must name the new host.
- `unhealthy` is not explained. Nothing can be stopped there, so a machine that was shut down from inside has no other
  word than that or `active`: it does not tell a failure of theirs from a customer's `poweroff`. `preempted` does.
- The list has no pages today. An answer with a page token is not the whole list, so it is an error.
- GPU model and memory are given only as text, such as `H100 (80 GB SXM5)`. Hosts of GH200 have ARM CPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.cpu import Architecture
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    OrderRefused,
    PowerAction,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, Rule, error_for, rules_by_code
from providers.gpu_names import gpu_named
from providers.listings import LAUNCH_KEY_TAG, UnreadableAnswer, offered_price, ours, reference_of, sighting
from providers.registered_keys import key_material, key_name
from providers.rest import ErrorContract, Rest, detail_from, ignored
from providers.signing import bearer

NAME = "lambda_cloud"


@dataclass(frozen=True, slots=True)
class Settings:
    api_key: str = field(repr=False)
    base_url: str = "https://cloud.lambda.ai/api/v1"


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Others measured 165 to 478 s for one GPU, and 10 to 15 min for eight.
    user_data_bytes_max=1_000_000,
    rate_limits=(
        RateLimit("all", 1, 1.0, frozenset(Verb)),
        RateLimit("launch", 1, 12.0, frozenset({Verb.LAUNCH})),
    ),
    terminate_may_be_refused=True,
    # By the minute, from the health check after the boot: docs.lambda.ai, billing, 2026-11-20.
    billed_while_booting=False,
    billed_seconds_unit=60,
    power=frozenset({PowerAction.REBOOT}),  # Lambda stops no machine.
    firewall=ProviderFirewall.UNKNOWN,  # Rules of the account, which we do not touch.
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
"""Lambda's region names to ours, whose first two letters are the jurisdiction. A customer who asks for "EU" relies on
its law, so the jurisdiction is never guessed from a name: offers in a region that is missing here are left out."""

STATES = {
    "booting": ListedState.PROVISIONING,
    "active": ListedState.RUNNING,
    "unhealthy": ListedState.OFF_OR_FAILED,
    "preempted": ListedState.FAILED,
    "terminating": ListedState.ENDING,
    "terminated": ListedState.GONE,
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


class TypeOfInstance(msgspec.Struct):
    name: str | None = None


class Instance(msgspec.Struct):
    """The part of the instance object that we read. Jupyter tokens and the like stay unread."""

    id: str
    status: str
    name: str | None = None
    ip: str | None = None
    tags: list[Tag] | None = None
    instance_type: TypeOfInstance | None = None


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


class _Restarted(msgspec.Struct):
    restarted_instances: list[Instance]


class Restarted(msgspec.Struct):
    data: _Restarted


class _Error(msgspec.Struct):
    code: str
    message: str = ""


class Failure(msgspec.Struct):
    error: _Error


ERRORS = ErrorContract(
    detail_from(Failure, lambda failure: ErrorDetail(failure.error.code, failure.error.message)),
    (
        # Quotas are the account's, whatever the region.
        Rule(Meaning.QUOTA_REACHED, code="global/quota-exceeded", scope=BlockScope.ACCOUNT),
        *rules_by_code(
            {
                "global/invalid-api-key": Meaning.UNAUTHORIZED,
                "global/account-inactive": Meaning.UNAUTHORIZED,
                "global/invalid-address": Meaning.UNAUTHORIZED,
                "global/object-does-not-exist": Meaning.NOT_FOUND,
                "instance-operations/launch/insufficient-capacity": Meaning.NO_CAPACITY,
                "provider/*": Meaning.UNCLEAR,
            }
        ),
    ),
)


class LambdaCloud:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.base_url,
            sign=bearer(settings.api_key),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )
        self._key_names: dict[str, str] = {}
        self._keys_read = False

    async def offers(self) -> tuple[Listed, ...]:
        return await self._rest.call(
            Verb.OFFERS, "GET", "instance-types", Types, lambda listed: tuple(_offers(listed))
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self._rest.call(Verb.INVENTORY, "GET", "instances", Instances, _sightings)

    def prepared(self, order: LaunchOrder) -> bool:
        return key_material(order.ssh_public_key) in self._key_names

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step towards a registered key: read the registry, or add our key to it. It may be repeated."""
        if not self._keys_read:
            keys = await self._rest.call(Verb.PREPARE, "GET", "ssh-keys", SshKeys, lambda listed: listed.data)
            self._key_names = {key_material(key.public_key): key.name for key in keys}
            self._keys_read = True
            return
        # Unless we learn that the key was added, read the registry again next time: a lost answer may
        # have added it, and "duplicate" may mean that another replica was faster.
        self._keys_read = False
        material = key_material(order.ssh_public_key)
        name = key_name("splitplane", material)
        body = {"name": name, "public_key": material}
        try:
            await self._rest.call(Verb.PREPARE, "POST", "ssh-keys", bytes, ignored, body=body)
        except OrderRefused as refusal:
            if refusal.code == "global/duplicate":
                return
            raise
        self._key_names[material] = name
        self._keys_read = True

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(_PREPARE_CALLS_MAX):
            if self.prepared(order):
                break
            await self.prepare(order)
        else:
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "our SSH key could not be registered")
        path, body = "instance-operations/launch", self._body(order)
        try:
            return await self._rest.call(
                Verb.LAUNCH, "POST", path, Launched, _only_id, body=body, private=order.user_data
            )
        except OrderRefused:
            self._keys_read, self._key_names = False, {}  # Somebody may have deleted our key.
            raise

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        if action is not PowerAction.REBOOT:
            raise error_for(Verb.POWER, Meaning.REFUSED, f"Lambda cannot {action} machines")

        def check(answer: Restarted) -> None:
            if provider_ref not in {each.id for each in answer.data.restarted_instances}:
                raise error_for(Verb.POWER, Meaning.BUSY, "it is not among the restarted instances")

        path, body = "instance-operations/restart", {"instance_ids": [provider_ref]}
        await self._rest.call(Verb.POWER, "POST", path, Restarted, check, body=body)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        def check(answer: Terminated) -> None:
            if provider_ref not in {each.id for each in answer.data.terminated_instances}:
                raise error_for(Verb.TERMINATE, Meaning.BUSY, "it is not among the terminated instances")

        path, body = "instance-operations/terminate", {"instance_ids": [provider_ref]}
        await self._rest.call(Verb.TERMINATE, "POST", path, Terminated, check, body=body)

    async def close(self) -> None:
        await self._rest.close()

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        return {
            "region_name": order.native_region,
            "instance_type_name": order.native_type,
            "ssh_key_names": [self._key_names[key_material(order.ssh_public_key)]],
            "name": order.launch_key,
            "hostname": order.launch_key,
            "tags": [{"key": LAUNCH_KEY_TAG, "value": order.launch_key}],
            "user_data": order.user_data,
        }


def _offers(listed: Types) -> Iterator[Listed]:
    for each in listed.data.values():
        model = gpu_named(each.instance_type.gpu_description)
        if model is not None:
            yield from (_offer(each, model, native_region) for native_region in REGIONS)
        elif each.instance_type.specs.gpus > 0:
            yield LeftOut(LeftOutFor.UNKNOWN_GPU, each.instance_type.gpu_description)
    regions = {
        region.name for each in listed.data.values() for region in each.regions_with_capacity_available
    }
    yield from (LeftOut(LeftOutFor.UNKNOWN_REGION, name) for name in sorted(regions - REGIONS.keys()))


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
        cost_nano_per_hour=offered_price(kind.price_cents_per_hour, per_usd=100),
        available=any(region.name == native_region for region in listed.regions_with_capacity_available),
        confidence=Confidence.ADVISORY,
        architecture=Architecture.ARM64 if model is GpuModel.GH200_96GB else Architecture.X86_64,
    )


def _sightings(listed: Instances) -> tuple[Sighting, ...]:
    if listed.page_token or listed.next_page_token:
        raise UnreadableAnswer("the list has more pages, and we know no way to read them")
    return ours(_sighting(each) for each in listed.data)


def _sighting(instance: Instance) -> Sighting | None:
    kind = instance.instance_type.name if instance.instance_type else None
    return sighting(
        instance.id, _marks(instance), instance.status, STATES, address=instance.ip, native_type=kind
    )


def _marks(instance: Instance) -> list[str | None]:
    return [*(tag.value for tag in instance.tags or () if tag.key == LAUNCH_KEY_TAG), instance.name]


def _only_id(answer: Launched) -> ProviderRef:
    ids = answer.data.instance_ids
    if len(ids) != 1:
        raise UnreadableAnswer(f"{len(ids)} instance ids for one machine")
    return reference_of(ids[0])


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> LambdaCloud:
    return LambdaCloud(settings, transport=transport)
