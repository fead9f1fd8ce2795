"""Crusoe Cloud, API v1. Its traps (official specification of its gateway v1, its Terraform provider @59ef69c and
docs.crusoecloud.com, read 2026-11-23; what comes from dstack's and gpuhunt's adapters is marked so):

- Requests are signed with HMAC-SHA256 over path, sorted query, method and time. The secret is base64 without padding.
- A launch is accepted with an operation, which may fail later, with `out_of_stock` for what is sold out (dstack). Its
  machine is never listed then, so failed operations are listed too. They may be told only once.
- A launch has no idempotency key. The launch key travels as the name.
- There is no API for prices: they are a table in this file, with its source.
- Status words come with and without the prefix `STATE_`.
- The start-up script is run at every boot. Ours does nothing from the second time on.
- Network rules admit SSH, and nothing else from outside. SSH and WireGuard are opened for the whole network.
- A launch names no network but a subnet, which is in one location. Without one, the machine is in the default network.
- A stopped machine costs its disk. What is on its local disks is erased by a stop, and its public address changes. An
  action's operation may fail later; the lists then show that nothing happened.
- A delete is accepted with an operation, too. That an unknown machine is 404 is not documented (dstack).
- An agent of Crusoe's is installed on machines unless a launch says otherwise, and a reservation is used up.
- Images differ by form factor: one for SXM, another for PCIe (dstack).
- Spot machines cannot be asked for, and GPUs of AMD, GB200 (ARM) and what has no published price are left out.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.ids import ProviderRef
from control_plane.domain.sku import CapacityShape, Shape
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    Capabilities,
    Confidence,
    LateRefusal,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    Page,
    PowerAction,
    PriceSource,
    ProviderFirewall,
    RateLimit,
    Sighting,
    Verb,
)
from providers.clock import utc_now
from providers.crusoe_network import (
    OPEN,
    FirewallRules,
    Network,
    Networks,
    Subnets,
    by_location,
    interface,
    rule,
    rule_names,
)
from providers.error_law import ErrorDetail, Failure, Meaning, Rule, error_for, error_of, redacted
from providers.gpu_names import gpu_named
from providers.listings import offered_price, ours, reference_of, sighting, whole_listing
from providers.registered_keys import key_material
from providers.rest import ErrorContract, Rest, detail_from, ignored

NAME = "crusoe"


@dataclass(frozen=True, slots=True)
class Settings:
    access_key_id: str = field(repr=False)
    secret_key: str = field(repr=False)
    project_id: str
    base_url: str = "https://api.cloud.crusoe.ai/v1"
    image_sxm: str = "ubuntu22.04-nvidia-sxm-docker:latest"
    image_pcie: str = "ubuntu22.04-nvidia-pcie-docker:latest"
    network: str | None = None
    """The name of the network that machines get. Needed where the project has several."""

    def __post_init__(self) -> None:
        try:
            _decoded(self.secret_key)
        except ValueError:
            raise ValueError("secret_key is not in base64") from None


CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Not documented. dstack waits 120 s for the operation, without the boot.
    user_data_bytes_max=16_384,  # Not documented: many times what our script needs.
    user_data_kind=UserDataKind.SHELL_SCRIPT,
    # 429 is documented, the limit is not.
    rate_limits=(RateLimit("requests", 60, 60.0, frozenset(Verb), requests={Verb.OFFERS: 2}),),
    billed_while_booting=False,  # Only machines that run are billed.
    power=frozenset(PowerAction),
    firewall=ProviderFirewall.FIXED,
)

REGIONS = {
    "us-northcentral1-a": "us-northcentral1-a",
    "us-southcentral1-a": "us-southcentral1-a",
    "us-east1-a": "us-east1-a",
    "us-west1-a": "us-west1-a",
    "eu-iceland1-a": "is-iceland1-a",
    "eu-norway1-a": "no-norway1-a",
}
"""Crusoe's locations to our regions, whose first two letters are the jurisdiction. Neither Iceland nor Norway is in the
EU, whatever their locations are called. Others are left out."""

USD_PER_GPU_HOUR = {
    "A100-PCIe-80GB": Decimal("2.00"),
    "A100-SXM-80GB": Decimal("2.30"),
    "H100-SXM-80GB": Decimal("3.90"),
    "H200-SXM-141GB": Decimal("4.29"),
    "L40S-48GB": Decimal("1.50"),
}
"""On demand, without the disks. From crusoe.ai/cloud/pricing, as api-evangelist/crusoe copied it on 2026-09-20. gpuhunt
@2449039 has lower ones for three of them and is older; nobody has compared an invoice."""

OS_DISK_GIB = 128
USD_PER_GIB_MONTH = Decimal("0.08")
"""Of a persistent disk, which the operating system is on, and which is paid for also while the machine is stopped. The
size is from docs.crusoecloud.com/storage/disks/overview, read 2026-11-23; the price from crusoe.ai/cloud/pricing, as
api-evangelist/crusoe copied it on 2026-09-20."""
_HOURS_PER_MONTH = 730
_POWER = {PowerAction.REBOOT: "RESET", PowerAction.STOP: "STOP", PowerAction.START: "START"}

_WORDS = {
    "INITIALIZING": ListedState.PROVISIONING,
    "STARTING": ListedState.PROVISIONING,
    "RUNNING": ListedState.RUNNING,
    "STOPPED": ListedState.STOPPED,
    "SHUTOFF": ListedState.STOPPED,
    "DELETING": ListedState.ENDING,
    "DELETED": ListedState.GONE,
}
STATES = {f"{prefix}{word}": state for word, state in _WORDS.items() for prefix in ("", "STATE_")}

OUT_OF_STOCK = "out_of_stock"
_PAGE_SIZE = 100
_PREPARE_CALLS_MAX = 5
"""Networks read, rules read, two rules made."""
_REFUSED_REMEMBERED_MAX = 256


class Type(msgspec.Struct):
    product_name: str
    cpu_cores: int
    memory_gb: int
    disk_gb: int
    num_gpu: int
    gpu_type: str


class Types(msgspec.Struct):
    items: list[Type]


class Capacity(msgspec.Struct):
    location: str
    quantity: int
    type: str | None = None


class Capacities(msgspec.Struct):
    items: list[Capacity]


class Address(msgspec.Struct):
    address: str | None = None


class Addresses(msgspec.Struct):
    public_ipv4: Address | None = None


class Interface(msgspec.Struct):
    ips: list[Addresses] | None = None


class Instance(msgspec.Struct):
    id: str
    name: str
    state: str
    type: str | None = None
    network_interfaces: list[Interface] | None = None


class Instances(msgspec.Struct):
    items: list[Instance]
    next_page_token: str | None = None


class Operation(msgspec.Struct):
    operation_id: str
    state: str
    metadata: Any = None
    """By the specification anything; an object with the id of the machine (dstack)."""
    result: Any = None


class Started(msgspec.Struct):
    operation: Operation


class Operations(msgspec.Struct):
    items: list[Operation]


class Refusal(msgspec.Struct):
    code: str
    message: str = ""


ERRORS = ErrorContract(
    detail_from(Refusal, lambda refusal: ErrorDetail(refusal.code, refusal.message)),
    (
        Rule(Meaning.NO_CAPACITY, code=OUT_OF_STOCK, verb=Verb.LAUNCH),
        Rule(Meaning.NO_CAPACITY, text="out of stock", verb=Verb.LAUNCH),
        # Quotas are counted per type, in all locations together: a project lists them without places.
        Rule(Meaning.QUOTA_REACHED, text="quota", status=400, verb=Verb.LAUNCH, scope=BlockScope.TYPE),
        Rule(Meaning.UNAUTHORIZED, text="unauthorized", status=403),
        *(Rule(Meaning.NOT_FOUND, status=404, verb=verb) for verb in (Verb.TERMINATE, Verb.POWER)),
        Rule(Meaning.BUSY, status=409, verb=Verb.PREPARE),  # Another replica was faster: reading finds it.
        Rule(Meaning.BUSY, status=409, verb=Verb.POWER),  # Another operation is under way.
    ),
)


class Signature:
    """Signs a request with an access key of a user, by version 1.0 of Crusoe's scheme. The body is not signed."""

    def __init__(self, settings: Settings, now: Callable[[], datetime]) -> None:
        self._key_id = settings.access_key_id
        self._secret = _decoded(settings.secret_key)
        self._now = now

    async def __call__(self, request: httpx.Request) -> None:
        at = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = signed_message(request.method, request.url.path, request.url.query.decode(), at)
        digest = hmac.digest(self._secret, message.encode(), hashlib.sha256)
        signature = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        request.headers["X-Crusoe-Timestamp"] = at
        request.headers["Authorization"] = f"Bearer 1.0:{self._key_id}:{signature}"


def signed_message(method: str, path: str, query: str, at: str) -> str:
    """What is signed. Parameters are sorted by name; those of one name keep their order."""
    parameters = sorted(parse_qsl(query, keep_blank_values=True), key=lambda pair: pair[0])
    return f"{path}\n{urlencode(parameters)}\n{method}\n{at}\n"


class Crusoe:
    capabilities = CAPABILITIES

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], datetime] = utc_now,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._rest = Rest(
            settings.base_url,
            sign=Signature(settings, now),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )
        self._network: Network | None = None
        self._subnets: dict[str, str] | None = None
        """By location, those of the network that the settings name; None before they were read."""
        self._rules: frozenset[str] | None = None
        """The names of the rules of our network; None before they were read."""
        self._refused: dict[str, LateRefusal] = {}
        """The latest by reference: an operation may be told once, and whoever asked may have stored nothing."""

    async def offers(self) -> tuple[Listed, ...]:
        types = await self._rest.call(
            Verb.OFFERS, "GET", self._path("compute/vms/types"), Types, lambda listed: listed.items
        )
        return await self._rest.call(
            Verb.OFFERS, "GET", "capacities", Capacities, lambda listed: _offers(types, listed)
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        query = {"limit": str(_PAGE_SIZE), "next_token": cursor}
        path = self._path("compute/vms/instances")
        return await self._rest.call(Verb.INVENTORY, "GET", path, Instances, _page, query=query)

    async def refused_later(self) -> tuple[LateRefusal, ...]:
        path = self._path("compute/vms/instances", "operations")
        found = await self._rest.call(
            Verb.INVENTORY, "GET", path, Operations, _refusals, query={"state": "FAILED"}
        )
        self._refused |= {each.provider_ref: each for each in found}
        while len(self._refused) > _REFUSED_REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]
        return tuple(self._refused.values())

    def prepared(self, order: LaunchOrder) -> bool:
        del order  # The rules are the same for every machine.
        ready = self._settings.network is None or self._subnets is not None
        return ready and self._rules is not None and self._rules >= OPEN.keys()

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step towards the two rules: read the network, its subnets or its rules, or make one."""
        del order
        rules = self._path("networking/vpc-firewall-rules")
        if self._network is None:
            path = self._path("networking/vpc-networks")
            self._network = await self._rest.call(Verb.PREPARE, "GET", path, Networks, self._only_network)
            return
        network, known = self._network, self._rules
        if self._settings.network is not None and self._subnets is None:
            path = self._path("networking/vpc-subnets")
            self._subnets = await self._rest.call(
                Verb.PREPARE, "GET", path, Subnets, lambda listed: by_location(listed, network)
            )
            return
        if known is None:
            self._rules = await self._rest.call(
                Verb.PREPARE, "GET", rules, FirewallRules, lambda listed: rule_names(listed, network)
            )
            return
        name = min(OPEN.keys() - known)
        self._rules = None  # Unless there is an answer: then read them first.
        await self._rest.call(Verb.PREPARE, "POST", rules, Started, ignored, body=rule(name, network))
        self._rules = known | {name}

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(_PREPARE_CALLS_MAX):
            if not self.prepared(order):
                await self.prepare(order)
        if not self.prepared(order):
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "the rules of the network could not be made")
        path = self._path("compute/vms/instances")
        body = self._body(order)
        return await self._rest.call(
            Verb.LAUNCH, "POST", path, Started, _reference, body=body, private=order.user_data
        )

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        path = self._path("compute/vms/instances", provider_ref)
        await self._rest.call(Verb.POWER, "PATCH", path, Started, ignored, body={"action": _POWER[action]})

    async def terminate(self, provider_ref: ProviderRef) -> None:
        path = self._path("compute/vms/instances", provider_ref)
        await self._rest.call(Verb.TERMINATE, "DELETE", path, Started, ignored)

    async def close(self) -> None:
        await self._rest.close()

    def _path(self, resource: str, *parts: str) -> tuple[str, ...]:
        return ("projects", self._settings.project_id, *resource.split("/"), *parts)

    def _only_network(self, listed: Networks) -> Network:
        wanted = self._settings.network
        found = [each for each in listed.items if wanted is None or each.name == wanted]
        if len(found) != 1:
            why = f"{len(found)} networks fit: set `network` to the name of the one that machines get"
            raise error_for(Verb.PREPARE, Meaning.REFUSED, why)
        return found[0]

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        sxm = "-sxm" in order.native_type
        return {
            "name": order.launch_key,
            "type": order.native_type,
            "location": order.native_region,
            "image": self._settings.image_sxm if sxm else self._settings.image_pcie,
            "ssh_public_key": key_material(order.ssh_public_key),
            "startup_script": order.user_data,
            "install_crusoe_watch_agent": False,
            "reservation_specification": {"selection_strategy": "on_demand"},
        } | self._interfaces(order.native_region)

    def _interfaces(self, location: str) -> dict[str, Any]:
        """The place in the network that the settings name."""
        if self._settings.network is None:
            return {}
        subnet = (self._subnets or {}).get(location)
        if subnet is None:
            why = f"the network {self._settings.network} has no subnet in {location}: make one"
            self._subnets = None
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, why)
        return {"network_interfaces": [interface(subnet)]}


def _decoded(secret_key: str) -> bytes:
    """The secret as bytes. Raises ValueError."""
    padded = secret_key + "=" * (-len(secret_key) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)


def _offers(types: Iterable[Type], listed: Capacities) -> tuple[Listed, ...]:
    quantity: dict[tuple[str | None, str], int] = {}
    for each in listed.items:
        place = each.type, each.location
        quantity[place] = max(quantity.get(place, 0), each.quantity)
    with_gpus = (each for each in types if each.num_gpu > 0)
    return tuple(offer for each in with_gpus for offer in _offers_of(each, quantity))


def _offers_of(kind: Type, quantity: Mapping[tuple[str | None, str], int]) -> Iterator[Listed]:
    model = gpu_named(kind.gpu_type)
    if model is None:
        yield LeftOut(LeftOutFor.UNKNOWN_GPU, kind.gpu_type)
        return
    if kind.gpu_type not in USD_PER_GPU_HOUR:
        yield LeftOut(LeftOutFor.NO_PRICE, kind.product_name)
        return
    disk = USD_PER_GIB_MONTH * OS_DISK_GIB / _HOURS_PER_MONTH
    for location, region in REGIONS.items():
        yield ListedOffer(
            native_type=kind.product_name,
            region=region,
            native_region=location,
            shape=Shape(model, kind.num_gpu, kind.cpu_cores, kind.memory_gb, kind.disk_gb),
            capacity=CapacityShape.VM,
            cost_nano_per_hour=offered_price(USD_PER_GPU_HOUR[kind.gpu_type] * kind.num_gpu + disk),
            stopped_cost_nano_per_hour=offered_price(disk),
            available=quantity.get((kind.product_name, location), 0) > 0,
            confidence=Confidence.ADVISORY,
            price_source=PriceSource.TABLE,
        )


def _page(listed: Instances) -> Page[Sighting]:
    found = ours(_sighting(each) for each in listed.items)
    return Page(found, listed.next_page_token or None, listed=len(listed.items))


def _sighting(instance: Instance) -> Sighting | None:
    public = [
        addresses.public_ipv4.address
        for interface in instance.network_interfaces or ()
        for addresses in interface.ips or ()
        if addresses.public_ipv4 is not None and addresses.public_ipv4.address
    ]
    address = public[0] if public else None
    return sighting(
        instance.id, (instance.name,), instance.state, STATES, address=address, native_type=instance.type
    )


def _text(found: object, name: str) -> str:
    """A field of an object that may be anything."""
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else ""


def _reference(started: Started) -> ProviderRef:
    operation = started.operation
    if operation.state == "FAILED":
        detail = ErrorDetail(_text(operation.result, "code"), _text(operation.result, "message"))
        raise error_of(Verb.LAUNCH, Failure(None, detail), ERRORS.rules)
    return reference_of(_text(operation.metadata, "id"))


def _refusals(listed: Operations) -> list[LateRefusal]:
    return [_refusal(each) for each in listed.items if each.state == "FAILED" and _text(each.metadata, "id")]


def _refusal(operation: Operation) -> LateRefusal:
    code = redacted(_text(operation.result, "code"), ()) or operation.state
    state = ListedState.SOLD_OUT if code == OUT_OF_STOCK else ListedState.FAILED
    return LateRefusal(reference_of(_text(operation.metadata, "id")), state, code)


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Crusoe:
    return Crusoe(settings, transport=transport)
