"""The HTTP contract of Vast.ai's API, over emulated machines.

Paths, fields, statuses and intervals are those of the official documents (vast-ai/docs @c624622), and tests/contract
checks them against `schemas/vast.json`. Where they say nothing, we chose: the body of HTTP 500 and of an empty list of
keys, that a key is accepted twice, that credit has to last for an hour, and that a destroyed instance leaves the list
at once.
"""

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from operator import eq, ge, gt, itemgetter, le, lt, ne
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, delete, get, post, put
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.vast_account import ASKS, Account, Ask, Instance, place_of
from providers.emulators.host import MachineHost
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

API_KEY = "emulated-vast-key"
ONSTART_CHARACTERS_MAX = 4_096
LABEL_CHARACTERS_MAX = 256
DISK_GB_MIN = 8
PAGE_MAX = 25
SEARCHES_PER_MINUTE = 10
VM_IMAGES = "docker.io/vastai/kvm:"
RUNTYPES = frozenset({"ssh", "jupyter", "args", "ssh_proxy", "ssh_direct", "jupyter_proxy", "jupyter_direct"})
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": eq, "neq": ne, "gt": gt, "gte": ge, "lt": lt, "lte": le,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}  # fmt: skip

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, error: str, msg: str) -> None:
        super().__init__(msg)
        self.status, self.error, self.msg = status, error, msg


class TooFrequent(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, threshold: float) -> None:
        super().__init__(f"API requests too frequent: endpoint threshold={threshold}")


class CreateIn(msgspec.Struct):
    image: str
    disk: Decimal = Decimal(10)
    vm: bool = False
    label: str | None = None
    onstart: str | None = None
    runtype: str = "ssh"
    target_state: str = "running"
    cancel_unavail: bool = True


class KeyIn(msgspec.Struct):
    ssh_key: str = ""


@dataclass
class Limiter:
    """An interval for each endpoint, and ten searches a minute."""

    now: Callable[[], datetime]
    refused: int = 0
    _free_from: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _searches: list[datetime] = field(default_factory=list[datetime])

    def draw(self, endpoint: str, threshold: float) -> None:
        now = self.now()
        if self._free_from.get(endpoint, now) > now:
            self.refused += 1
            raise TooFrequent(threshold)
        self._free_from[endpoint] = now + timedelta(seconds=threshold)

    def draw_search(self) -> None:
        now = self.now()
        self._searches = [at for at in self._searches if now - at < timedelta(minutes=1)]
        if len(self._searches) >= SEARCHES_PER_MINUTE:
            self.refused += 1
            raise TooFrequent(60 / SEARCHES_PER_MINUTE)
        self._searches.append(now)


def create_app(
    host: MachineHost, scenario: Scenario, *, now: Callable[[], datetime], api_key: str = API_KEY
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated account at `app.state.account`."""
    account, limiter = Account(host, scenario, now), Limiter(now)
    return Litestar(
        route_handlers=[
            *_offer_routes(account, scenario, limiter),
            *_instance_routes(account, scenario, limiter),
            *_key_routes(account, scenario, limiter),
            *control_routes(
                scenario, lambda: [on_wire(account, each) for each in account.instances.standing()]
            ),
        ],
        before_request=_authentication(api_key),
        exception_handlers={
            Refusal: _refused,
            TooFrequent: _too_frequent,
            ScriptedFailure: _scripted,
            HTTPException: _http_error,
        },
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter}),
    )


def _offer_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @post("/api/v0/bundles/", status_code=HTTP_200_OK)
    async def search(request: AnyRequest) -> Response[Any]:
        limiter.draw_search()
        await scenario.arrive("offers")
        found = _found(account, _body(await request.body(), dict[str, Any]))
        scenario.depart("offers")
        return Response({"offers": found})

    @put("/api/v0/asks/{number:str}/")
    async def create(request: AnyRequest) -> Response[Any]:
        limiter.draw("asks", 4.5)
        await scenario.arrive("launch")
        ask = ASKS.get(_number(request, "'id' is required and must be a valid offer ID"))
        made = await _create(account, scenario, ask, _body(await request.body(), CreateIn))
        scenario.depart("launch")
        return Response(
            {"success": True, "new_contract": int(made.id), "instance_api_key": secrets.token_hex(8)}
        )

    return [search, create]


def _instance_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @get("/api/v1/instances/")
    async def instances(request: AnyRequest) -> Response[Any]:
        limiter.draw("instances", 1.0)
        await scenario.arrive("inventory")
        answer = _listed(account, request)
        scenario.depart("inventory")
        whole = msgspec.json.encode(answer)
        cut = scenario.take("inventory", FaultKind.PARTIAL_LIST)
        return Response(whole[: len(whole) // 2] if cut else whole, media_type="application/json")

    @delete("/api/v0/instances/{number:str}/", status_code=HTTP_200_OK)
    async def destroy(request: AnyRequest) -> Response[Any]:
        limiter.draw("instance", 3.0)
        await scenario.arrive("terminate")
        found = account.instances.known(str(_number(request, "invalid instance_id")))
        if found is None:
            raise Refusal(404, "not_found", "Instance not found")
        await account.instances.end(found)
        scenario.depart("terminate")
        return Response({"success": True, "msg": "Instance destroyed successfully"})

    @put("/api/v0/instances/reboot/{number:str}/", status_code=HTTP_200_OK)
    async def reboot(request: AnyRequest) -> Response[Any]:
        limiter.draw("reboot", 1.0)
        await scenario.arrive("power")
        found = account.instances.known(str(_number(request, "invalid instance_id")))
        if found is None or not await account.instances.switch(found, off=False):
            raise Refusal(400, "invalid_args", "invalid instance_id")
        scenario.depart("power")
        return Response({"success": True})

    return [instances, destroy, reboot]


def _key_routes(account: Account, scenario: Scenario, limiter: Limiter) -> list[Any]:
    @get("/api/v0/ssh/")
    async def keys() -> Response[Any]:
        limiter.draw("ssh get", 1.0)
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        if not account.ssh_keys:
            raise Refusal(404, "not_found", "No SSH keys found for the user.")
        return Response(account.ssh_keys)

    @delete("/api/v0/ssh/{number:str}/", status_code=HTTP_200_OK)
    async def delete_key(request: AnyRequest) -> Response[Any]:
        limiter.draw("ssh delete", 1.0)
        await scenario.arrive("prepare")
        number = _number(request, "invalid ssh key id")
        found = [each for each in account.ssh_keys if each["id"] == number and each["deleted_at"] is None]
        if not found:
            raise Refusal(404, "not_found", "SSH key not found")
        found[0]["deleted_at"] = account.now().isoformat()
        scenario.depart("prepare")
        return Response({"success": True})

    @post("/api/v0/ssh/", status_code=HTTP_200_OK)
    async def add_key(request: AnyRequest) -> Response[Any]:
        limiter.draw("ssh post", 1.0)
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), KeyIn)
        if not wanted.ssh_key:
            raise Refusal(400, "no_ssh_key", "No ssh key provided")
        made: dict[str, Any] = {"id": len(account.ssh_keys) + 1, "user_id": 7, "deleted_at": None}
        made["created_at"] = account.now().isoformat()
        account.ssh_keys.append(made | {"key": wanted.ssh_key})
        scenario.depart("prepare")
        return Response({"success": True, "key": made | {"public_key": wanted.ssh_key}})

    return [keys, add_key, delete_key]


def _found(account: Account, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The asks that satisfy every filter, in the order that was asked for."""
    disk = Decimal(str(wanted.pop("allocated_storage", 8)))
    order, limit = wanted.pop("order", []), wanted.pop("limit", None)
    wanted.pop("type", None)
    filters = {"verified": {"eq": True}, "rentable": {"eq": True}, "rented": {"eq": False}} | wanted
    found = [ask.on_wire(disk) | {"rentable": account.rentable(ask)} for ask in ASKS.values()]
    found = [each for each in found if _satisfies(each, filters)]
    for column, direction in reversed(order):
        found.sort(key=itemgetter(column), reverse=direction == "desc")
    return found[:limit]


def _satisfies(ask: dict[str, Any], filters: dict[str, Any]) -> bool:
    known = ask | {
        "verified": ask["verification"] == "verified",
        "datacenter": ask["hosting_type"] == 1,
        "external": bool(ask["external"]),
    }
    try:
        return all(
            OPERATORS[name](known[column], value)
            for column, conditions in filters.items()
            for name, value in conditions.items()
        )
    except (KeyError, TypeError, AttributeError):
        raise Refusal(400, "invalid_request", "Invalid json body") from None


async def _create(account: Account, scenario: Scenario, ask: Ask | None, wanted: CreateIn) -> Instance:
    _check(account, wanted)
    if ask is None or not account.rentable(ask) or not scenario.sell(*place_of(ask)):
        number = "" if ask is None else ask.id
        message = f"error 404/3603: no_such_ask Instance type by id {number} is not available."
        raise Refusal(404, "invalid_args", message)
    if account.credit < ask.base_usd() + ask.disk_usd(wanted.disk):
        scenario.put_back(*place_of(ask))
        raise Refusal(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
    native_type, native_region = place_of(ask)
    made = Instance(
        id=str(next(account.numbers)),
        native_type=native_type,
        native_region=native_region,
        ask=ask,
        disk=wanted.disk,
        label=wanted.label,
        onstart=wanted.onstart,
        image=wanted.image,
    )
    return await account.launch(made)


def _check(account: Account, wanted: CreateIn) -> None:
    sound = (
        len(wanted.label or "") <= LABEL_CHARACTERS_MAX
        and len(wanted.onstart or "") <= ONSTART_CHARACTERS_MAX
        and wanted.disk >= DISK_GB_MIN
        and wanted.runtype in RUNTYPES
        and wanted.target_state in ("running", "stopped")
        and (not wanted.vm or wanted.image.startswith(VM_IMAGES))
    )
    if not sound:
        raise Refusal(400, "invalid_args", "error 400/3467: Invalid args")
    if wanted.vm and all(each["deleted_at"] for each in account.ssh_keys):
        raise Refusal(400, "no_ssh_key_for_vm", "Add an SSH key to your account before you create a VM.")


def _listed(account: Account, request: AnyRequest) -> dict[str, Any]:
    """One page, by the number of the instance."""
    asked = int(request.query_params.get("limit", PAGE_MAX))
    limit = min(asked, PAGE_MAX) if asked > 0 else 5
    after = _after(request.query_params.get("after_token"))
    every = sorted(account.instances.listed(), key=lambda each: int(each.id))
    page = [each for each in every if int(each.id) > after][:limit]
    more = bool(page) and page[-1] is not every[-1]
    token = b64encode(json.dumps({"values": {"id": int(page[-1].id)}}).encode()).decode() if more else None
    labels = [each.label or "" for each in every]
    return {
        "success": True,
        "instances_found": len(page),
        "total_instances": len(every),
        "label_counts": {label: labels.count(label) for label in labels},
        "next_token": token,
        "instances": [on_wire(account, each) for each in page],
    }


def _after(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return int(json.loads(b64decode(token, validate=True))["values"]["id"])
    except (ValueError, KeyError, TypeError):
        raise Refusal(400, "invalid_token", "Invalid after_token") from None


def on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object, without measurements."""
    machine = account.host.machines().get(instance.id)
    address, status = account.instances.address(instance), account.status(instance)
    port = account.ssh_port or (machine.ssh_port if machine else 22)
    return {
        "id": int(instance.id),
        "actual_status": status,
        "cur_state": instance.intended,
        "next_state": instance.intended,
        "intended_status": instance.intended,
        "label": instance.label,
        "image_uuid": instance.image,
        "image_runtype": "ssh_direct",
        "onstart": instance.onstart or "",
        "public_ipaddr": address or "",
        "ports": {"22/tcp": [{"HostIp": "203.0.113.42", "HostPort": str(port)}]} if address else None,
        "ssh_host": "ssh7.vast.example",
        "ssh_port": 10_600,
        "start_date": instance.launched_at.timestamp(),
        "machine_id": instance.ask.machine.number,
        "host_id": instance.ask.machine.host,
        "gpu_name": instance.ask.machine.gpu_name,
        "num_gpus": instance.ask.gpus,
        "static_ip": True,
        "is_bid": False,
        "geolocation": instance.ask.machine.geolocation,
        "dph_total": float(instance.ask.base_usd() + instance.ask.disk_usd(instance.disk)),
    }


def _number(request: AnyRequest, what: str) -> int:
    text = request.path_params["number"]
    if not text.isdecimal():
        raise Refusal(400, "invalid_args", f"Invalid args: {what}")
    return int(text)


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise Refusal(400, "invalid_args", "error 400/1782: Invalid args: invalid json") from None


def _error(status: int, error: str, msg: str) -> Response[Any]:
    return Response({"success": False, "error": error, "msg": msg}, status_code=status)


def _authentication(api_key: str) -> Callable[[AnyRequest], Awaitable[Response[Any] | None]]:
    async def check(request: AnyRequest) -> Response[Any] | None:
        given = request.headers.get("Authorization", "")
        known = secrets.compare_digest(given.encode(), f"Bearer {api_key}".encode())
        if known or request.route_handler.opt.get("open"):
            return None
        if request.url.path.startswith("/api/v0/bundles"):
            return Response({"error": "auth_error", "msg": "Invalid user key"}, status_code=404)
        return _error(401, "auth_error", "Invalid user key")

    return check


def _refused(_: AnyRequest, refusal: Refusal) -> Response[Any]:
    return _error(refusal.status, refusal.error, refusal.msg)


def _too_frequent(_: AnyRequest, error: TooFrequent) -> Response[Any]:
    return Response(str(error), status_code=429, media_type="text/plain")


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[Any]:
    if failure.kind is FaultKind.THROTTLE:
        return Response("API requests too frequent", status_code=429, media_type="text/plain")
    return _error(500, "server_error", "Internal server error")


def _http_error(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _error(error.status_code, "not_found", "Not found")
