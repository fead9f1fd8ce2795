"""The HTTP contract of Shadeform's API v1, over emulated machines.

Paths, fields and statuses are those of the official OpenAPI document (squat/shadeform-api @6433b00) and of
docs.shadeform.ai; tests/contract checks them against `schemas/shadeform.json`. It documents nothing but HTTP 200, so
that every refusal is chosen here: its status, that its body has a `message` (as another client saw), the words, that
a second deletion is accepted while the first goes on, how many requests there may be in a minute, how much user data
there may be, and that types are listed with a key only.
"""

import binascii
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.minute_limit import MinuteLimit
from providers.emulators.clouds.shadeform_account import KINDS, Account, Instance, Kind
from providers.emulators.host import MachineHost
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

API_KEY = "emulated-shadeform-key"
USER_DATA_BYTES_MAX = 16_000
REQUESTS_PER_MINUTE = 120
"""Not published: twice what our adapter keeps to, whose minutes begin at other moments."""

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class ScriptIn(msgspec.Struct):
    base64_script: str


class LaunchConfigurationIn(msgspec.Struct):
    type: str
    script_configuration: ScriptIn | None = None


class LaunchIn(msgspec.Struct):
    cloud: str
    region: str
    shade_instance_type: str
    shade_cloud: bool
    name: str
    os: str = ""
    tags: list[str] = []
    launch_configuration: LaunchConfigurationIn | None = None


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    api_key: str = API_KEY,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated account at `app.state.account`."""
    account = Account(host, scenario, now)
    limiter = MinuteLimit(REQUESTS_PER_MINUTE, now)
    return Litestar(
        route_handlers=[
            *_routes(account, scenario),
            *control_routes(
                scenario, lambda: [on_wire(account, each) for each in account.instances.standing()]
            ),
        ],
        before_request=_authentication(api_key, limiter),
        exception_handlers={Refusal: _refused, ScriptedFailure: _scripted, HTTPException: _http_error},
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter}),
    )


def _routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/instances/types")
    async def types() -> Response[Any]:
        await scenario.arrive("offers")
        scenario.depart("offers")
        return Response({"instance_types": [kind.on_wire(scenario.in_stock) for kind in KINDS.values()]})

    @get("/v1/instances")
    async def instances() -> Response[Any]:
        await scenario.arrive("inventory")
        answer = {"instances": [on_wire(account, each) for each in account.instances.listed()]}
        scenario.depart("inventory")
        whole = msgspec.json.encode(answer)
        cut = scenario.take("inventory", FaultKind.PARTIAL_LIST)
        return Response(whole[: len(whole) // 2] if cut else whole, media_type="application/json")

    @post("/v1/instances/create", status_code=HTTP_200_OK)
    async def create(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("launch")
        made = await _launch(account, scenario, _body(await request.body(), LaunchIn))
        scenario.depart("launch")
        return Response({"id": made.id, "cloud_assigned_id": f"native-{made.id}"})

    @post("/v1/instances/{number:str}/delete", status_code=HTTP_200_OK)
    async def remove(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("terminate")
        found = account.instances.known(request.path_params["number"])
        if found is None:
            raise Refusal(404, "instance not found")
        if scenario.take("terminate", FaultKind.REFUSE_TERMINATE):
            raise Refusal(400, "the instance can only be deleted when it is active")
        await account.instances.end(found)
        scenario.depart("terminate")
        return Response(b"")

    @post("/v1/instances/{number:str}/restart", status_code=HTTP_200_OK)
    async def restart(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("power")
        found = account.instances.known(request.path_params["number"])
        if found is None:
            raise Refusal(404, "instance not found")
        if not await account.instances.switch(found, off=False):
            raise Refusal(400, "the instance can only be restarted when it is active")
        scenario.depart("power")
        return Response(b"")

    return [types, instances, create, remove, restart]


async def _launch(account: Account, scenario: Scenario, wanted: LaunchIn) -> Instance:
    kind, script = _checked(wanted)
    if account.cents_due() + kind.cents > account.balance_cents:
        raise Refusal(400, "your balance is too low")
    if not scenario.sell(kind.native_type, wanted.region):
        raise Refusal(409, "Instance type is not available in this region")
    shown = msgspec.to_builtins(wanted.launch_configuration)

    def made(number: str) -> Instance:
        return Instance(
            id=number,
            native_type=kind.native_type,
            native_region=wanted.region,
            name=wanted.name,
            kind=kind,
            os=wanted.os,
            tags=wanted.tags,
            launch_configuration=shown,
        )

    return await account.launch(made, user_data=script)


def _checked(wanted: LaunchIn) -> tuple[Kind, str]:
    """The type and the script of a sound request."""
    kind = KINDS.get(f"{wanted.cloud}/{wanted.shade_instance_type}")
    if kind is None or wanted.region not in kind.regions:
        raise Refusal(400, "there is no such instance type in this region")
    if not wanted.name or not wanted.shade_cloud or wanted.os not in ("", *kind.os_options):
        raise Refusal(400, "invalid request")
    configuration = wanted.launch_configuration
    if configuration is None or configuration.script_configuration is None:
        return kind, ""
    try:
        script = b64decode(configuration.script_configuration.base64_script, validate=True)
    except binascii.Error:
        raise Refusal(400, "the script is not in base64") from None
    if len(script) > USER_DATA_BYTES_MAX:
        raise Refusal(400, "the script is too large")
    return kind, script.decode()


def on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object."""
    found: dict[str, Any] = {
        "id": instance.id,
        "cloud": instance.kind.cloud,
        "region": instance.native_region,
        "shade_instance_type": instance.kind.shade_instance_type,
        "cloud_instance_type": f"native-{instance.kind.shade_instance_type}",
        "cloud_assigned_id": f"native-{instance.id}",
        "shade_cloud": True,
        "name": instance.name,
        "configuration": instance.kind.configuration() | {"os": instance.os},
        "ip": account.instances.address(instance) or "",
        "ssh_user": "shadeform",
        "ssh_port": account.ssh_port,
        "status": account.status(instance),
        "cost_estimate": "0",
        "hourly_price": instance.kind.cents,
        "created_at": instance.launched_at.isoformat(),
        "deleted_at": "0001-01-01T00:00:00Z",
        "tags": instance.tags,
    }
    shown = instance.launch_configuration
    return found if shown is None else found | {"launch_configuration": shown}


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise Refusal(400, "invalid request") from None


def _error(status: int, message: str) -> Response[Any]:
    return Response({"message": message}, status_code=status)


def _authentication(
    api_key: str, limiter: MinuteLimit
) -> Callable[[AnyRequest], Awaitable[Response[Any] | None]]:
    async def check(request: AnyRequest) -> Response[Any] | None:
        if request.route_handler.opt.get("open"):
            return None
        given = request.headers.get("X-API-KEY", "")
        if not secrets.compare_digest(given.encode(), api_key.encode()):
            return _error(401, "Invalid API key")
        return None if limiter.allows() else _error(429, "Too many requests")

    return check


def _refused(_: AnyRequest, refusal: Refusal) -> Response[Any]:
    return _error(refusal.status, refusal.message)


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[Any]:
    if failure.kind is FaultKind.THROTTLE:
        return _error(429, "Too many requests")
    return _error(500, "Internal server error")


def _http_error(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _error(error.status_code, "Not found")
