"""Hyperstack (NexGen InfraHub), API v1. Its traps (official OpenAPI in NexGenCloud/hyperstack-sdk-go @5c59538 and
docs.hyperstack.cloud, read 2026-11-20; some from SkyPilot's and dstack's adapters, which are named):

- Every machine and key pair lies in an environment of one region. Ours are called `splitplane-REGION` and are made when
  they are needed; with the key pair that takes up to four calls, which the guard paces through `prepare`.
- A failure may come as HTTP 200 with `"status": false`. `error_reason` says only `bad_request` for a sold-out flavor, a
  low balance and a wrong parameter alike, so that the message has to be read (no list of messages is published).
- A launch has no idempotency key. The launch key travels as label and name; `count` is always 1.
- `enable_port_randomization` is on unless it is switched off, and moves SSH to another port.
- No port is open unless a rule of the machine opens it. SSH and WireGuard are opened with the launch, the ports of
  customers' rules afterwards, one call for each (`hyperstack_firewall.py`).
- A machine without a floating IP has no address that is reachable from outside. The IP is attached some time after the
  machine is ACTIVE.
- A delete while the machine is being created is HTTP 400 with "cannot be deleted yet" (SkyPilot asks 18 times).
- Start, stop and reboot are GET requests, so a GET must never be repeated just because it is one. We send none of them.
- Console logs are requested first (`POST .../logs`) and read with the id of that request; both while the machine is
  ACTIVE. What the second one answers before they are there is not said: no `logs`, as we read it.
- The price book names GPUs and not flavors, per GPU and hour. Spot flavors are GPUs of their own, ending in `-spot`.
- The list comes in pages by number, without a stable order under deletions: a machine may slip to a page that was read.
- 500 requests per minute for each source address. Beyond them 429 without Retry-After until the minute ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import KEPT
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    CountedBy,
    Ingress,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    OrderRefused,
    Page,
    PowerAction,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, Rule, error_for, rules_by_code
from providers.gpu_names import gpu_named
from providers.hyperstack_firewall import apply_ingress, rule_for
from providers.listings import UnreadableAnswer, offered_price, ours, reference_of, sighting, whole_listing
from providers.optional import ConsoleTicket
from providers.registered_keys import key_material, key_name
from providers.rest import ErrorContract, Rest, detail_from, ignored
from providers.signing import header

NAME = "hyperstack"


@dataclass(frozen=True, slots=True)
class Settings:
    api_key: str = field(repr=False)
    base_url: str = "https://infrahub-api.nexgencloud.com/v1"
    image: str = "Ubuntu Server 22.04 LTS R535 CUDA 12.2"
    """The name of an image with an NVIDIA driver, which must exist in every region that machines are bought in."""


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Not documented. Terraform's provider waits 300 s for ACTIVE, without the boot.
    user_data_bytes_max=49_000,  # Not documented: OpenStack's limit of 65,535 bytes after base64.
    rate_limits=(
        RateLimit(
            "requests",
            500,
            60.0,
            frozenset(Verb),
            counted_by=CountedBy.SOURCE_ADDRESS,
            requests={Verb.FIREWALL: 2},
        ),
    ),
    terminate_may_be_refused=True,
    # Prepaid by the minute; transitional states and ERROR are not billed: docs.hyperstack.cloud, billing, 2026-11-20.
    billed_while_booting=False,
    billed_seconds_unit=60,
    power=frozenset(PowerAction),
    firewall=ProviderFirewall.FOLLOWS,
    ingress_max=50,  # Not documented. OpenStack's own default is 100 rules for all groups of a project.
    console=True,
)

REGIONS = {"CANADA-1": "ca-canada-1", "NORWAY-1": "no-norway-1", "US-1": "us-us-1"}
"""Hyperstack's region names to ours, whose first two letters are the jurisdiction. Others are left out."""

_SPOT = "-spot"
STATES = {
    "CREATING": ListedState.PROVISIONING,
    "BUILD": ListedState.PROVISIONING,
    "STARTING": ListedState.PROVISIONING,
    "REBOOTING": ListedState.PROVISIONING,
    "HARD_REBOOT": ListedState.PROVISIONING,
    "RESTORING": ListedState.PROVISIONING,
    "ACTIVE": ListedState.RUNNING,
    "STOPPING": ListedState.STOPPED,
    "SHUTOFF": ListedState.STOPPED,
    "HIBERNATING": ListedState.STOPPED,
    "HIBERNATED": ListedState.STOPPED,
    "ERROR": ListedState.FAILED,
    "DELETING": ListedState.ENDING,
}
"""A machine that is stopped costs its full price. We hibernate none, which would cost disk and address alone."""
_POWER = {PowerAction.REBOOT: "hard-reboot", PowerAction.STOP: "stop", PowerAction.START: "start"}
"""A hard reboot is the only one there is."""

PAGE_SIZE = 100
FLOATING_IP_ATTACHED = "ATTACHED"
CONSOLE_LINES_MAX = 2_000
_OURS = {"search": "splitplane-", "page": "1", "pageSize": str(PAGE_SIZE)}
_PREPARE_CALLS_MAX = 6
"""Environments read, made and read again; then key pairs the same."""


class Flavor(msgspec.Struct):
    name: str
    gpu: str
    gpu_count: int
    cpu: int
    ram: Decimal
    disk: int
    region_name: str
    stock_available: bool
    ephemeral: int | None = None
    """GB of local disk."""


class FlavorsOfGpu(msgspec.Struct):
    flavors: list[Flavor]


class Flavors(msgspec.Struct):
    data: list[FlavorsOfGpu]


class Price(msgspec.Struct):
    name: str
    value: Decimal
    """A number by the specification; strings were seen, which are read too."""


class Environment(msgspec.Struct):
    name: str
    region: str


class Environments(msgspec.Struct):
    environments: list[Environment]


class EnvironmentName(msgspec.Struct):
    name: str


class Keypair(msgspec.Struct):
    name: str
    public_key: str
    environment: EnvironmentName


class Keypairs(msgspec.Struct):
    keypairs: list[Keypair]


class FlavorOfInstance(msgspec.Struct):
    name: str | None = None


class Instance(msgspec.Struct):
    id: int
    status: str
    name: str | None = None
    labels: list[str] | None = None
    floating_ip: str | None = None
    floating_ip_status: str | None = None
    flavor: FlavorOfInstance | None = None


class Launched(msgspec.Struct):
    instances: list[Instance]


class Instances(msgspec.Struct):
    instances: list[Instance]
    page: int | None = None
    page_size: int | None = None


class LogsRequested(msgspec.Struct):
    request_id: int


class Logs(msgspec.Struct):
    logs: str | None = None


class Done(msgspec.Struct):
    status: bool


class Failure(msgspec.Struct):
    status: bool
    message: str = ""
    error_reason: str | None = None


def _detail(failure: Failure) -> ErrorDetail | None:
    return None if failure.status else ErrorDetail(failure.error_reason or "", failure.message)


def _launch_refused(meaning: Meaning, *phrases: str, scope: BlockScope | None = None) -> tuple[Rule, ...]:
    return tuple(Rule(meaning, text=phrase, status=400, verb=Verb.LAUNCH, scope=scope) for phrase in phrases)


ERRORS = ErrorContract(
    detail_from(Failure, _detail),
    (
        *_launch_refused(
            Meaning.NO_CAPACITY, "capacity", "out of stock", "not enough", "no longer available"
        ),
        *_launch_refused(Meaning.QUOTA_REACHED, "balance", "credit", scope=BlockScope.ACCOUNT),
        *_launch_refused(Meaning.QUOTA_REACHED, "quota", "limit"),
        Rule(Meaning.NOT_FOUND, status=404, verb=Verb.POWER),
        Rule(Meaning.NOT_FOUND, status=404, verb=Verb.FIREWALL),
        Rule(Meaning.BUSY, status=409, verb=Verb.FIREWALL),
        Rule(Meaning.NOT_FOUND, status=404, verb=Verb.CONSOLE),
        Rule(Meaning.BUSY, text="cannot be deleted", verb=Verb.TERMINATE, status=400),
        Rule(
            Meaning.BUSY, status=409, verb=Verb.PREPARE
        ),  # Another replica was faster: reading again finds it.
        # What this order names is not ours to use; other orders may be fine.
        Rule(Meaning.REFUSED, code="forbidden", verb=Verb.LAUNCH),
        *rules_by_code(
            {
                "unauthorized": Meaning.UNAUTHORIZED,
                "forbidden": Meaning.UNAUTHORIZED,
                "not_found": Meaning.NOT_FOUND,
                "server_error": Meaning.UNCLEAR,
            }
        ),
    ),
    failures_with_success_status=True,
)


def environment_of(native_region: str) -> str:
    return f"splitplane-{native_region}"


class Hyperstack:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.base_url,
            sign=header("api_key", settings.api_key),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )
        self._image = settings.image
        self._environments: frozenset[str] | None = None
        """Those of ours that exist; None before they were read."""
        self._keys: frozenset[tuple[str, str]] | None = None
        """The environment and the material of each key pair of ours; None before they were read."""

    async def offers(self) -> tuple[Listed, ...]:
        prices = await self._rest.call(Verb.OFFERS, "GET", "pricebook", list[Price], _prices)
        return await self._rest.call(
            Verb.OFFERS, "GET", "core/flavors", Flavors, lambda listed: _offers(listed, prices)
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        number = 1 if cursor is None else int(cursor)
        query = {"page": str(number), "pageSize": str(PAGE_SIZE)}
        return await self._rest.call(
            Verb.INVENTORY,
            "GET",
            "core/virtual-machines",
            Instances,
            lambda listed: _page(listed, number),
            query=query,
        )

    def prepared(self, order: LaunchOrder) -> bool:
        environment, material = environment_of(order.native_region), key_material(order.ssh_public_key)
        return (environment, material) in (self._keys or ())

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step towards an environment and a key pair in it: read or make one of the two."""
        environment = environment_of(order.native_region)
        if self._environments is None:
            self._environments = await self._rest.call(
                Verb.PREPARE, "GET", "core/environments", Environments, _environment_names, query=_OURS
            )
        elif environment not in self._environments:
            body = {"name": environment, "region": order.native_region}
            self._environments = None  # Read again: a lost answer, or another replica, may have made it.
            await self._rest.call(Verb.PREPARE, "POST", "core/environments", bytes, ignored, body=body)
        elif self._keys is None:
            self._keys = await self._rest.call(
                Verb.PREPARE, "GET", "core/keypairs", Keypairs, _key_materials, query=_OURS
            )
        else:
            material = key_material(order.ssh_public_key)
            name = key_name(environment, material)
            body = {"name": name, "environment_name": environment, "public_key": material}
            self._keys = None
            await self._rest.call(Verb.PREPARE, "POST", "core/keypairs", bytes, ignored, body=body)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(_PREPARE_CALLS_MAX):
            if not self.prepared(order):
                await self.prepare(order)
        if not self.prepared(order):
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "an environment or a key pair could not be made")
        try:
            return await self._rest.call(
                Verb.LAUNCH,
                "POST",
                "core/virtual-machines",
                Launched,
                _only_id,
                body=self._body(order),
                private=order.user_data,
            )
        except OrderRefused:
            self._environments = self._keys = None  # Somebody may have deleted one of them.
            raise

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        # These are GET requests that change something. They go out as writes, which are never sent twice.
        path = ("core/virtual-machines", provider_ref, _POWER[action])
        await self._rest.call(Verb.POWER, "GET", path, Done, ignored)

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        del launch_key  # The rules belong to the machine.
        return await apply_ingress(self._rest, provider_ref, wanted | KEPT)

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str | ConsoleTicket:
        path = ("core/virtual-machines", provider_ref, "logs")
        if ticket is None:
            body = {"length": CONSOLE_LINES_MAX}
            return await self._rest.call(Verb.CONSOLE, "POST", path, LogsRequested, _ticket, body=body)
        query = {"request_id": ticket}
        found = await self._rest.call(
            Verb.CONSOLE, "GET", path, Logs, lambda answer: answer.logs, query=query
        )
        return ConsoleTicket(ticket) if found is None else found

    async def terminate(self, provider_ref: ProviderRef) -> None:
        path = ("core/virtual-machines", provider_ref)
        await self._rest.call(Verb.TERMINATE, "DELETE", path, Done, ignored)

    async def close(self) -> None:
        await self._rest.close()

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        environment = environment_of(order.native_region)
        return {
            "name": order.launch_key,
            "labels": [order.launch_key],
            "environment_name": environment,
            "flavor_name": order.native_type,
            "image_name": self._image,
            "key_name": key_name(environment, key_material(order.ssh_public_key)),
            "count": 1,
            "assign_floating_ip": True,
            "enable_port_randomization": False,
            "user_data": order.user_data,
            "security_rules": [rule_for(opened) for opened in sorted(KEPT)],
        }


def _environment_names(listed: Environments) -> frozenset[str]:
    return frozenset(each.name for each in listed.environments)


def _key_materials(listed: Keypairs) -> frozenset[tuple[str, str]]:
    return frozenset((each.environment.name, key_material(each.public_key)) for each in listed.keypairs)


def _prices(listed: list[Price]) -> Mapping[str, Decimal]:
    return {price.name: price.value for price in listed}


def _ticket(answer: LogsRequested) -> ConsoleTicket:
    return ConsoleTicket(str(answer.request_id))


def _offers(listed: Flavors, prices: Mapping[str, Decimal]) -> tuple[Listed, ...]:
    flavors = (flavor for group in listed.data for flavor in group.flavors)
    return tuple(_offer(each, prices) for each in flavors if each.gpu_count > 0)


def _offer(flavor: Flavor, prices: Mapping[str, Decimal]) -> Listed:
    model = gpu_named(flavor.gpu.removesuffix(_SPOT))
    if model is None:
        return LeftOut(LeftOutFor.UNKNOWN_GPU, flavor.gpu)
    if flavor.region_name not in REGIONS:
        return LeftOut(LeftOutFor.UNKNOWN_REGION, flavor.region_name)
    if flavor.gpu not in prices:
        return LeftOut(LeftOutFor.NO_PRICE, flavor.name)
    return ListedOffer(
        native_type=flavor.name,
        region=REGIONS[flavor.region_name],
        native_region=flavor.region_name,
        shape=Shape(model, flavor.gpu_count, flavor.cpu, int(flavor.ram), disk_gib=flavor.disk),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=offered_price(prices[flavor.gpu], units=flavor.gpu_count),
        available=flavor.stock_available,
        confidence=Confidence.ADVISORY,
        spot=flavor.gpu.endswith(_SPOT),
        ephemeral_gib=flavor.ephemeral,
    )


def _page(listed: Instances, asked: int) -> Page[Sighting]:
    """A page that is full is not the last one: whether `count` is that of the page or of the whole list is not said."""
    if listed.page not in (None, asked):
        raise UnreadableAnswer("the answer is another page than was asked for")
    full = len(listed.instances) >= (listed.page_size or PAGE_SIZE)
    found = ours(_sighting(each) for each in listed.instances)
    return Page(found, str(asked + 1) if full else None, listed=len(listed.instances))


def _sighting(instance: Instance) -> Sighting | None:
    attached = instance.floating_ip_status == FLOATING_IP_ATTACHED
    marks: Iterable[str | None] = (*(instance.labels or ()), instance.name)
    address = instance.floating_ip if attached else None
    flavor = instance.flavor.name if instance.flavor else None
    return sighting(instance.id, marks, instance.status, STATES, address=address, native_type=flavor)


def _only_id(answer: Launched) -> ProviderRef:
    if len(answer.instances) != 1:
        raise UnreadableAnswer(f"{len(answer.instances)} instances for one machine")
    return reference_of(answer.instances[0].id)


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Hyperstack:
    return Hyperstack(settings, transport=transport)
