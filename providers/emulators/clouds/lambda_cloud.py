"""The HTTP contract of Lambda Cloud v1, over emulated machines.

Envelopes, codes, statuses and limits are those of the official OpenAPI 1.8.3; tests/contract checks
them against `schemas/lambda_cloud.json`. Where the specification says nothing, we chose: a 429 has
an error envelope and no Retry-After; a second terminate is accepted while `terminating` and is 404
afterwards; `quantity` is accepted when it is 1, because other clients send it.
"""

import base64
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.lambda_account import KINDS, REGIONS, Account, Instance
from providers.emulators.host import MachineHost
from providers.emulators.scenario import FaultKind, Scenario, ScriptedFailure, control_routes, cut_connections

USER_DATA_BYTES_MAX = 1_000_000
_HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
_TAG_KEY = re.compile(r"[a-z][a-z0-9-:]+")
_ACTIONS = ("migrate", "rebuild", "restart", "cold_reboot", "terminate")

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    """The cloud refuses a request. Only some errors of the contract have a `suggestion`."""

    def __init__(self, status: int, code: str, message: str, suggestion: str | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.suggestion = status, code, message, suggestion


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of the account."""

    api_key: str = "emulated-lambda-key"
    rate_limited: bool = True
    time_factor: float = 1.0
    """By how much the rate limits are faster than the real ones: 12 allows one launch per second."""
    instances_max: int = 1_000


class TagIn(msgspec.Struct):
    key: str
    value: str


class LaunchIn(msgspec.Struct):
    region_name: str
    instance_type_name: str
    ssh_key_names: list[str]
    name: str = ""
    hostname: str | None = None
    user_data: str = ""
    tags: list[TagIn] = []
    quantity: int = 1


class IdsIn(msgspec.Struct):
    instance_ids: list[str]


class KeyIn(msgspec.Struct):
    name: str
    public_key: str | None = None


@dataclass
class Limiter:
    """One request per second and one launch per twelve seconds, by the given clock."""

    now: Callable[[], datetime]
    terms: Terms
    refused: int = 0
    _free_from: dict[str, datetime] = field(default_factory=dict[str, datetime])

    def draw(self, *buckets: tuple[str, float]) -> None:
        if not self.terms.rate_limited:
            return
        now = self.now()
        if any(self._free_from.get(bucket, now) > now for bucket, _ in buckets):
            self.refused += 1
            raise Refusal(429, "global/too-many-requests", "Too many requests.")
        for bucket, seconds in buckets:
            self._free_from[bucket] = now + timedelta(seconds=seconds / self.terms.time_factor)


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    terms: Terms | None = None,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated account at `app.state.account`."""
    terms = terms or Terms()
    account = Account(host, scenario, now, instances_max=terms.instances_max)
    limiter = Limiter(now, terms)
    return Litestar(
        route_handlers=[
            *_instance_routes(account, scenario, limiter),
            *_power_routes(account, scenario, limiter),
            *_key_routes(account, scenario, limiter),
            *control_routes(
                scenario, lambda: [instance_on_wire(account, each) for each in account.instances.standing()]
            ),
        ],
        before_request=_authentication(terms),
        exception_handlers={
            Refusal: _refused,
            ScriptedFailure: _scripted,
            HTTPException: _http_error,
        },
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter}),
    )


def _instance_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @get("/api/v1/instance-types")
    async def instance_types() -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("offers")
        scenario.depart("offers")
        return _data({name: _type_on_wire(scenario, name) for name in KINDS})

    @get("/api/v1/instances")
    async def instances() -> Response[Any]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("inventory")
        answer = {"data": [instance_on_wire(account, each) for each in account.instances.listed()]}
        scenario.depart("inventory")
        if scenario.take("inventory", FaultKind.PARTIAL_LIST):
            whole = msgspec.json.encode(answer)
            return Response(whole[: len(whole) // 2], media_type="application/json")
        return Response(answer)

    @get("/api/v1/instances/{instance_id:str}")
    async def instance(request: AnyRequest) -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("get")
        return _data(instance_on_wire(account, _known(account, request.path_params["instance_id"])))

    @post("/api/v1/instance-operations/launch", status_code=HTTP_200_OK)
    async def launch(request: AnyRequest) -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0), ("launch", 12.0))
        await scenario.arrive("launch")
        made = await _launch(account, scenario, _body(await request.body(), LaunchIn))
        scenario.depart("launch")
        return _data({"instance_ids": [made.id]})

    @post("/api/v1/instance-operations/terminate", status_code=HTTP_200_OK)
    async def terminate(request: AnyRequest) -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("terminate")
        wanted = [_known(account, each) for each in _body(await request.body(), IdsIn).instance_ids]
        if any(account.status(each) == "terminated" for each in wanted):
            raise _absent("Specified instance does not exist.")
        ended = [] if scenario.take("terminate", FaultKind.REFUSE_TERMINATE) else wanted
        for each in ended:
            await account.instances.end(each)
        scenario.depart("terminate")
        return _data({"terminated_instances": [instance_on_wire(account, each) for each in ended]})

    return [instance_types, instances, instance, launch, terminate]


def _power_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @post("/api/v1/instance-operations/restart", status_code=HTTP_200_OK)
    async def restart(request: AnyRequest) -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("power")
        wanted = [_known(account, each) for each in _body(await request.body(), IdsIn).instance_ids]
        if any(account.status(each) in ("terminating", "terminated") for each in wanted):
            raise _absent("Specified instance does not exist.")
        restarted = [each for each in wanted if await account.instances.switch(each, off=False)]
        scenario.depart("power")
        return _data({"restarted_instances": [instance_on_wire(account, each) for each in restarted]})

    return [restart]


def _key_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @get("/api/v1/ssh-keys")
    async def read_keys() -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        return _data(account.ssh_keys)

    @post("/api/v1/ssh-keys", status_code=HTTP_200_OK)
    async def add_key(request: AnyRequest) -> Response[dict[str, Any]]:
        limiter.draw(("all", 1.0))
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), KeyIn)
        if not 1 <= len(wanted.name) <= 64 or wanted.public_key is None:
            # Without `public_key` the real API creates a key pair. We never use a private key made by somebody else.
            raise _invalid("Invalid request data.")
        if any(key["name"] == wanted.name for key in account.ssh_keys):
            raise Refusal(400, "global/duplicate", "An SSH key with this name exists.")
        key = {"id": secrets.token_hex(16), "name": wanted.name, "public_key": wanted.public_key}
        account.ssh_keys.append(key)
        scenario.depart("prepare")
        return _data(key)

    return [read_keys, add_key]


async def _launch(account: Account, scenario: Scenario, wanted: LaunchIn) -> Instance:
    """Check the request, then what it names, the account and the stock, in the contract's order."""
    _check_form(wanted)
    kind = KINDS.get(wanted.instance_type_name)
    if kind is None:
        raise _absent("Specified instance type does not exist.", "Check the name of the type.")
    if wanted.ssh_key_names[0] not in {key["name"] for key in account.ssh_keys}:
        raise _absent("Specified SSH key does not exist.", "Add the key first.")
    if len(account.instances.standing()) >= account.instances_max:
        raise Refusal(400, "global/quota-exceeded", "Quota exceeded.", "Ask for a higher quota.")
    sold_here = wanted.region_name in kind.sold_in
    if not sold_here or not scenario.sell(kind.name, wanted.region_name):
        code = "instance-operations/launch/insufficient-capacity"
        raise Refusal(400, code, "Not enough capacity to fulfill launch request.")
    return await account.launch(
        kind,
        wanted.region_name,
        name=wanted.name,
        hostname=wanted.hostname,
        tags=[{"key": tag.key, "value": tag.value} for tag in wanted.tags],
        ssh_key_names=wanted.ssh_key_names,
        user_data=wanted.user_data,
    )


def _check_form(wanted: LaunchIn) -> None:
    sound = (
        wanted.region_name in REGIONS
        and len(wanted.ssh_key_names) == 1
        and wanted.quantity == 1
        and len(wanted.name) <= 64
        and (wanted.hostname is None or _HOSTNAME.fullmatch(wanted.hostname))
        and all(
            _TAG_KEY.fullmatch(tag.key) and len(tag.key) <= 55 and len(tag.value) <= 128
            for tag in wanted.tags
        )
        and len(wanted.user_data.encode()) <= USER_DATA_BYTES_MAX
    )
    if not sound:
        raise _invalid("Invalid request data.")


def _type_on_wire(scenario: Scenario, name: str) -> dict[str, Any]:
    kind = KINDS[name]
    return {
        "instance_type": kind.on_wire(),
        "regions_with_capacity_available": [
            {"name": region, "description": REGIONS[region]}
            for region in kind.sold_in
            if scenario.in_stock(name, region)
        ],
    }


def instance_on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object. It has no creation time, and no `ip` until it is active."""
    status = account.status(instance)
    document: dict[str, Any] = {
        "id": instance.id,
        "name": instance.name,
        "status": status,
        "ssh_key_names": instance.ssh_key_names,
        "file_system_names": [],
        "region": {"name": instance.native_region, "description": REGIONS[instance.native_region]},
        "instance_type": instance.kind.on_wire(),
        "actions": {action: _availability(action, status) for action in _ACTIONS},
        "tags": instance.tags,
    }
    if instance.hostname is not None:
        document["hostname"] = instance.hostname
    address = account.instances.address(instance)
    if status == "active" and address is not None:
        document["ip"] = address
    return document


def _availability(action: str, status: str) -> dict[str, Any]:
    if status in ("terminating", "terminated"):
        why = ("vm-is-terminating", "The instance is terminating.")
    elif status == "booting" and action != "terminate":
        why = ("vm-has-not-launched", "The instance has not launched yet.")
    else:
        return {"available": True}
    return {"available": False, "reason_code": why[0], "reason_description": why[1]}


def _known(account: Account, instance_id: str) -> Instance:
    found = account.instances.known(instance_id)
    if found is None:
        raise _absent("Specified instance does not exist.")
    return found


def _absent(message: str, suggestion: str | None = None) -> Refusal:
    return Refusal(404, "global/object-does-not-exist", message, suggestion)


def _invalid(message: str) -> Refusal:
    return Refusal(400, "global/invalid-parameters", message)


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise _invalid("Invalid request data.") from None


def _data(payload: Any) -> Response[dict[str, Any]]:
    return Response({"data": payload})


def _error(status: int, code: str, message: str, suggestion: str | None = None) -> Response[dict[str, Any]]:
    error = {"code": code, "message": message} | ({"suggestion": suggestion} if suggestion else {})
    return Response({"error": error}, status_code=status)


def _authentication(terms: Terms) -> Callable[[AnyRequest], Awaitable[Response[dict[str, Any]] | None]]:
    """The check of every request's key: Bearer, or Basic with the key as user and no password."""
    basic = base64.b64encode(f"{terms.api_key}:".encode()).decode()
    known = (f"Bearer {terms.api_key}", f"Basic {basic}")

    async def check(request: AnyRequest) -> Response[dict[str, Any]] | None:
        if request.route_handler.opt.get("open"):
            return None
        given = request.headers.get("Authorization", "")
        if any(secrets.compare_digest(given.encode(), each.encode()) for each in known):
            return None
        return _error(
            401, "global/invalid-api-key", "API key was invalid, expired, or deleted.", "Check your API key."
        )

    return check


def _refused(_: AnyRequest, refusal: Refusal) -> Response[dict[str, Any]]:
    return _error(refusal.status, refusal.code, refusal.message, refusal.suggestion)


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[dict[str, Any]]:
    if failure.kind is FaultKind.THROTTLE:
        return _error(429, "global/too-many-requests", "Too many requests.")
    return _error(500, "global/internal-error", "An internal server error occurred.", "Try again later.")


def _http_error(_: AnyRequest, error: HTTPException) -> Response[dict[str, Any]]:
    return _error(error.status_code, "global/object-does-not-exist", "Not found.")
