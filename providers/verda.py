"""Verda (formerly DataCrunch), API v1. Its traps (official OpenAPI 3.1 with changes up to 2026-09-25, read
2026-11-23; what comes from dstack's adapter, its issues 3031, 3746 and 3790, or gpuhunt is marked so):

- Sold out is HTTP 503 with the code `service_unavailable`, and no outage. It may also come later, as the status
  `no_capacity` of a machine whose launch was accepted.
- The answer to a launch is HTTP 202 and a bare JSON string. A launch has no idempotency key: the launch key travels as
  tag and hostname.
- A machine is set up by a script, which is an object of its own and outlives the machine. Ours hold the machine's
  private host key. They are listed ten at a time unless more is asked for, and a project may have 100.
- A delete detaches every volume that it does not name, and detached volumes cost money. A volume that is not deleted
  permanently stays in the trash for 96 hours and counts towards the quota. So a delete reads which volume the machine
  boots from, and names that one alone: it is all that a launch of ours orders, and whatever else is attached belongs to
  whoever attached it.
- The answer to a delete with HTTP 207 has a status of its own for each machine, which may be a refusal. 204 says that
  the machine is being deleted already.
- A delete while the machine is being provisioned is `forbidden_action`, and so is one of a machine that is gone: the
  message tells them apart (dstack). A volume that is still attached cannot be deleted: a 403 as well.
- What a full quota of scripts is answered is not documented. A 400 that speaks of a limit is taken for it.
- A machine costs its price also while it is shut down: its GPUs stay ours. No action reboots one.
- Volumes cost extra: the price of an offer includes that of the operating system. A month has 730 hours.
- Prices are JSON strings. The GPU's name is in the description, after the number of GPUs (gpuhunt).
- Access tokens last an hour and are fetched with the client's credentials. One that lacks the scope of an endpoint is
  a 403, as other refusals are.
- Three limits hold together: 500 requests per minute for a project, 60 for one method and path, and 120 for each of
  the lists of instances and of volumes.
- There is no firewall. Spot machines may be evicted without warning, and no status says so: not offered
  (docs/decisions/0062). GB300 is ARM, and is left out.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import msgspec

from control_plane.domain.block import BlockScope
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.user_data import UserDataKind
from providers.base import (
    Capabilities,
    Child,
    LaunchOrder,
    Listed,
    ListedState,
    Needed,
    OrderRefused,
    Page,
    PowerAction,
    RateLimit,
    Sighting,
    ToldLimit,
    Verb,
)
from providers.client_credentials import Client, TokenRest
from providers.clock import utc_now
from providers.error_law import ErrorDetail, Failure, Meaning, Rule, error_for, error_of, rules_by_code
from providers.listings import (
    LAUNCH_KEY_TAG,
    UNREADABLE_PRICE,
    UnreadableAnswer,
    launch_key_among,
    offered_price,
    ours,
    reference_of,
    sighting,
    state_of,
    whole_listing,
)
from providers.registered_keys import key_material, key_name
from providers.rest import ErrorContract, detail_from, ignored
from providers.verda_catalogue import Availability, InstanceType, VolumeType, offered, usd_per_gb_hour

NAME = "verda"


@dataclass(frozen=True, slots=True)
class Settings:
    client_id: str
    client_secret: str = field(repr=False)
    base_url: str = "https://api.verda.com/v1"
    image: str = "ubuntu-24.04-cuda-12.8-open-docker"
    """An image with an NVIDIA driver. Types that do not support it are not offered."""
    os_volume_gb: int = 100
    """The size of the volume that each machine boots from. The price of an offer includes it."""


_MINUTE = 60.0
_POWER = {PowerAction.STOP: "shutdown", PowerAction.START: "start"}
CAPABILITIES = Capabilities(
    list_lag_seconds=60.0,  # Not documented: a safety margin.
    boot_seconds_max=1_800.0,  # Not documented. The SDK waits 180 s until a machine is no longer `ordered`.
    user_data_bytes_max=32_768,  # Not documented: many times what our script needs.
    user_data_kind=UserDataKind.SHELL_SCRIPT,
    rate_limits=(
        # Prices are listed without a token, and are not counted. Pages of scripts: one with some, one that is empty.
        RateLimit("project", 500, _MINUTE, frozenset(Verb), requests={Verb.TERMINATE: 2, Verb.CHILDREN: 3}),
        RateLimit("instances", 120, _MINUTE, frozenset({Verb.INVENTORY})),
        RateLimit("launch", 60, _MINUTE, frozenset({Verb.LAUNCH})),
        RateLimit("actions", 60, _MINUTE, frozenset({Verb.TERMINATE, Verb.POWER})),
        # Six of the 60 lists of scripts are for the children, which are listed once a minute, on two pages.
        RateLimit("scripts", 54, _MINUTE, frozenset({Verb.PREPARE})),
        RateLimit("children", 60, _MINUTE, frozenset({Verb.CHILDREN})),
    ),
    terminate_may_be_refused=True,
    # Prepaid in blocks of ten minutes, as others quote docs.verda.com/welcome-to-verda/pricing-and-billing, 2026-11-20.
    # They say that the rest of a block is refunded, so an invoice may be lower by a part of the last one.
    billed_seconds_unit=600,
    power=frozenset(_POWER),
)

STATES = {
    "new": ListedState.PROVISIONING,
    "ordered": ListedState.PROVISIONING,
    "pending": ListedState.PROVISIONING,
    "provisioning": ListedState.PROVISIONING,
    "validating": ListedState.PROVISIONING,
    "restoring": ListedState.PROVISIONING,
    "running": ListedState.RUNNING,
    "offline": ListedState.STOPPED,
    "starting_hibernation": ListedState.STOPPED,
    "hibernating": ListedState.STOPPED,
    "error": ListedState.FAILED,
    "installation_failed": ListedState.FAILED,
    "no_capacity": ListedState.SOLD_OUT,
    "deleting": ListedState.ENDING,
    "discontinued": ListedState.GONE,
    "notfound": ListedState.UNKNOWN,  # It says that a lookup failed, not that anything ended.
}

SCRIPT, VOLUME = "startup_script", "volume"
"""The kinds of children."""
_PREPARE_CALLS_MAX = 4
"""Keys read, key registered; scripts read, script stored."""
_SCRIPTS_REMEMBERED_MAX = 64
"""More than the launches that are under way at once."""
_SCRIPTS_PER_PAGE = 100
_NO_LONGER_THERE = frozenset({"deleted", "deleting", "canceled", "canceling"})


class Tag(msgspec.Struct):
    key: str
    value: str | None = None


class Instance(msgspec.Struct):
    id: str
    status: str
    hostname: str | None = None
    instance_type: str | None = None
    ip: str | None = None
    tags: list[Tag] | None = None
    os_volume_id: str | None = None


class Volume(msgspec.Struct):
    id: str
    status: str
    name: str | None = None
    tags: list[Tag] | None = None
    base_hourly_cost: Decimal | None = None
    currency: str | None = None


class SshKey(msgspec.Struct):
    id: str
    key: str


class Script(msgspec.Struct):
    id: str
    name: str
    script: str


class ActionResult(msgspec.Struct):
    instance_id: str = msgspec.field(name="instanceId")
    status: str
    error: str = ""
    status_code: int | None = msgspec.field(name="statusCode", default=None)


class Refusal(msgspec.Struct):
    code: str
    message: str = ""


ERRORS = ErrorContract(
    detail_from(Refusal, lambda refusal: ErrorDetail(refusal.code, refusal.message)),
    (
        Rule(Meaning.UNAUTHORIZED, text="insufficient scope", status=403),
        Rule(Meaning.NO_CAPACITY, code="service_unavailable", text="capacity", verb=Verb.LAUNCH),
        Rule(Meaning.NO_CAPACITY, code="service_unavailable", text="not enough resources", verb=Verb.LAUNCH),
        Rule(Meaning.NOT_FOUND, text="discontinue a discontinued", verb=Verb.TERMINATE),
        *(
            Rule(Meaning.NOT_FOUND, text="invalid instance id", verb=verb)
            for verb in (Verb.TERMINATE, Verb.POWER)
        ),
        *(Rule(Meaning.NOT_FOUND, status=404, verb=verb) for verb in (Verb.TERMINATE, Verb.POWER)),
        *(Rule(Meaning.BUSY, status=403, verb=verb) for verb in (Verb.TERMINATE, Verb.CHILDREN, Verb.POWER)),
        Rule(Meaning.QUOTA_REACHED, text="limit", status=400, verb=Verb.PREPARE, scope=BlockScope.ACCOUNT),
        *rules_by_code(
            {
                "unauthorized_request": Meaning.UNAUTHORIZED,
                "insufficient_funds": Meaning.QUOTA_REACHED,
                "not_found": Meaning.NOT_FOUND,
                "rate_limit_exceeded": Meaning.THROTTLED,
                "server_error": Meaning.UNCLEAR,
            }
        ),
    ),
)


class Verda:
    capabilities = CAPABILITIES

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], datetime] = utc_now,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        client = Client(settings.client_id, settings.client_secret, "oauth2/token")
        self._rest = TokenRest(settings.base_url, client, ERRORS, CAPABILITIES, now=now, transport=transport)
        self._keys: Mapping[str, str] | None = None
        """The id of each registered SSH key by its material; None before they were read."""
        self._scripts: dict[tuple[LaunchKey, str], str | None] = {}
        """The id of the script of each order, None where there is none yet. One that is missing was not looked up."""

    async def offers(self) -> tuple[Listed, ...]:
        types = await self._rest.call(Verb.OFFERS, "GET", "instance-types", list[InstanceType], tuple)
        volume = await self._rest.call(Verb.OFFERS, "GET", "volume-types", list[VolumeType], usd_per_gb_hour)
        return await self._rest.call(
            Verb.OFFERS,
            "GET",
            "instance-availability",
            list[Availability],
            lambda listed: tuple(
                offered(types, volume, listed, image=self._settings.image, gb=self._settings.os_volume_gb)
            ),
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self._rest.call(
            Verb.INVENTORY, "GET", "instances", list[Instance], lambda listed: ours(map(_sighting, listed))
        )

    def prepared(self, order: LaunchOrder) -> bool:
        registered = key_material(order.ssh_public_key) in (self._keys or {})
        return registered and self._scripts.get(_script_of(order)) is not None

    async def prepare(self, order: LaunchOrder) -> None:
        """Take one step towards a registered key and a stored script: look for one of the two, or make it."""
        material, known = key_material(order.ssh_public_key), self._keys
        if known is None:
            self._keys = await self._rest.call(
                Verb.PREPARE, "GET", "ssh-keys", list[SshKey], _ids_by_material
            )
        elif material not in known:
            body = {"name": key_name("splitplane", material), "key": material}
            self._keys = None  # Unless there is an answer: then look first.
            made = await self._rest.call(Verb.PREPARE, "POST", "ssh-keys", UUID, str, body=body)
            self._keys = {**known, material: made}
        elif _script_of(order) not in self._scripts:
            self._remember(order, await self._stored_script(order))
        else:
            body = {"name": order.launch_key, "script": order.user_data}
            del self._scripts[_script_of(order)]
            made = await self._rest.call(
                Verb.PREPARE, "POST", "scripts", UUID, str, body=body, private=order.user_data
            )
            self._remember(order, made)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        for _ in range(_PREPARE_CALLS_MAX):
            if not self.prepared(order):
                await self.prepare(order)
        if not self.prepared(order):
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "a key or a script could not be stored")
        body = self._body(order)
        try:
            return await self._rest.call(Verb.LAUNCH, "POST", "instances", UUID, reference_of, body=body)
        except OrderRefused:
            self._keys = None  # Somebody may have deleted the key or the script.
            self._scripts.pop(_script_of(order), None)
            raise

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        if action not in _POWER:
            raise error_for(Verb.POWER, Meaning.REFUSED, f"Verda cannot {action} machines")
        await self._act(Verb.POWER, provider_ref, {"action": _POWER[action], "id": provider_ref})

    async def terminate(self, provider_ref: ProviderRef) -> None:
        volumes = await self._rest.call(
            Verb.TERMINATE, "GET", ("instances", provider_ref), Instance, _volumes_of_launch
        )
        body = {"action": "delete", "id": provider_ref, "volume_ids": volumes, "delete_permanently": True}
        await self._act(Verb.TERMINATE, provider_ref, body)

    async def children(self) -> tuple[Child, ...]:
        scripts = await whole_listing(Verb.CHILDREN, self._scripts_page)
        volumes = await self._rest.call(Verb.CHILDREN, "GET", "volumes", list[Volume], _volumes)
        return (*scripts, *volumes)

    async def delete_child(self, child: Child) -> None:
        if child.kind == SCRIPT:
            await self._rest.call(Verb.CHILDREN, "DELETE", ("scripts", child.ref), bytes, ignored)
        elif child.kind == VOLUME:
            body = {"is_permanent": True}
            await self._rest.call(Verb.CHILDREN, "DELETE", ("volumes", child.ref), bytes, ignored, body=body)
        else:
            raise error_for(Verb.CHILDREN, Meaning.NOT_FOUND, "Verda has no children of this kind")

    def told_limits(self) -> tuple[ToldLimit, ...]:
        """That of the project; the one of an endpoint does not say which endpoint it is."""
        return tuple(limit for limit in self._rest.told if limit.bucket == "project")

    async def close(self) -> None:
        await self._rest.close()

    async def _act(self, verb: Verb, provider_ref: ProviderRef, body: Mapping[str, Any]) -> None:
        await self._rest.call(
            verb,
            "PUT",
            "instances",
            list[ActionResult],
            lambda results: _check(verb, provider_ref, results),
            body=body,
            empty_status=204,
        )

    async def _stored_script(self, order: LaunchOrder) -> str | None:
        """The script of exactly this order. An earlier order of the same machine had another host key."""
        query = {"name": order.launch_key, "page": "1", "pageSize": str(_SCRIPTS_PER_PAGE)}
        listed = await self._rest.call(Verb.PREPARE, "GET", "scripts", list[Script], list, query=query)
        wanted = order.launch_key, order.user_data
        return next((each.id for each in listed if (each.name, each.script) == wanted), None)

    def _remember(self, order: LaunchOrder, script: str | None) -> None:
        self._scripts[_script_of(order)] = script
        while len(self._scripts) > _SCRIPTS_REMEMBERED_MAX:
            del self._scripts[next(iter(self._scripts))]

    async def _scripts_page(self, cursor: str | None) -> Page[Child]:
        """One page, the oldest first, so that what is made meanwhile moves nothing to a page that was read."""
        number = 1 if cursor is None else int(cursor)
        oldest_first = {"orderBy": "created_at", "orderDirection": "asc"}
        query = {"page": str(number), "pageSize": str(_SCRIPTS_PER_PAGE), **oldest_first}
        return await self._rest.call(
            Verb.CHILDREN, "GET", "scripts", list[Script], lambda listed: _page(listed, number), query=query
        )

    def _body(self, order: LaunchOrder) -> dict[str, Any]:
        tags = [{"key": LAUNCH_KEY_TAG, "value": order.launch_key}]
        keys = self._keys or {}
        return {
            "instance_type": order.native_type,
            "image": self._settings.image,
            "hostname": order.launch_key,
            "description": order.launch_key,
            "location_code": order.native_region,
            "ssh_key_ids": [keys[key_material(order.ssh_public_key)]],
            "startup_script_id": self._scripts[_script_of(order)],
            "os_volume": {"name": order.launch_key, "size": self._settings.os_volume_gb, "tags": tags},
            "is_spot": False,
            "contract": "PAY_AS_YOU_GO",
            "tags": tags,
        }


def _ids_by_material(listed: list[SshKey]) -> Mapping[str, str]:
    return {key_material(each.key): each.id for each in listed}


def _script_of(order: LaunchOrder) -> tuple[LaunchKey, str]:
    """What a script is remembered by. It holds a private key, so its text is not kept."""
    return order.launch_key, hashlib.sha256(order.user_data.encode()).hexdigest()


def _page(listed: list[Script], number: int) -> Page[Child]:
    """Only an empty page is the last one: how many scripts a page has is for the provider to decide."""
    found = [
        Child(reference_of(each.id), SCRIPT, key, Needed.UNTIL_BOOT)
        for each in listed
        if (key := launch_key_among((each.name,))) is not None
    ]
    return Page(found, str(number + 1) if listed else None, listed=len(listed))


def _volumes(listed: list[Volume]) -> list[Child]:
    there = [each for each in listed if each.status not in _NO_LONGER_THERE]
    keys = [(each, launch_key_among((*_tagged(each.tags), each.name))) for each in there]
    return [
        Child(reference_of(each.id), VOLUME, key, Needed.WHILE_IT_EXISTS, _hourly(each))
        for each, key in keys
        if key is not None
    ]


def _hourly(volume: Volume) -> Nano | None:
    """What a volume costs, in nano-USD; None where Verda does not say it in dollars."""
    if volume.base_hourly_cost is None or volume.currency != "usd":
        return None
    cost = offered_price(volume.base_hourly_cost)
    return None if cost == UNREADABLE_PRICE else cost


def _tagged(tags: list[Tag] | None) -> list[str | None]:
    return [tag.value for tag in tags or () if tag.key == LAUNCH_KEY_TAG]


def _sighting(instance: Instance) -> Sighting | None:
    marks = (*_tagged(instance.tags), instance.hostname)
    return sighting(
        instance.id, marks, instance.status, STATES, address=instance.ip, native_type=instance.instance_type
    )


def _volumes_of_launch(instance: Instance) -> list[str]:
    """The volume that the launch made. One that an answer does not name is a child, and goes once the machine is gone.

    Raises MachineNotFound for a machine that is gone.
    """
    if state_of(instance.status, STATES) is ListedState.GONE:
        raise error_for(Verb.TERMINATE, Meaning.NOT_FOUND, f"it is {instance.status}")
    return [instance.os_volume_id] if instance.os_volume_id else []


def _check(verb: Verb, provider_ref: ProviderRef, results: list[ActionResult] | None) -> None:
    """Raise what one of the results says. None is the documented answer that nothing is left to do."""
    if results is None:
        return
    if [each.instance_id for each in results] != [provider_ref]:
        raise UnreadableAnswer("the results are not of the one machine that was asked for")
    for each in results:
        if each.status != "success":
            failure = Failure(each.status_code, ErrorDetail("", each.error))
            raise error_of(verb, failure, ERRORS.rules, rate_limits=CAPABILITIES.rate_limits)


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Verda:
    return Verda(settings, transport=transport)
