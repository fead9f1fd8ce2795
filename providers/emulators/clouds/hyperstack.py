"""The HTTP contract of Hyperstack's InfraHub API v1, over emulated machines.

Paths, fields and refusals are those of the official OpenAPI document (NexGenCloud/hyperstack-sdk-go @5c59538), and
tests/contract checks them against `schemas/hyperstack.json`. Where it says nothing, we chose: the words of a sold-out
flavor and of a low balance, `count` as the number of machines on all pages, a floating IP that is attached when the
machine is ACTIVE, logs that are there seconds after they were requested and missing before, how much user data
there may be, and the form of a 429.
"""

import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from ipaddress import ip_network
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, delete, get, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.hyperstack_account import (
    FLAVORS,
    IMAGES,
    PRICES,
    REGIONS,
    Account,
    Flavor,
    Instance,
)
from providers.emulators.clouds.hyperstack_limits import REQUESTS_PER_MINUTE, Limiter, Refusal
from providers.emulators.host import MachineHost
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

API_KEY = "emulated-hyperstack-key"
NAME_CHARACTERS_MAX = 50
PAGE_SIZE_MAX = 100
USER_DATA_BYTES_MAX = 49_000

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


class EnvironmentIn(msgspec.Struct):
    name: str
    region: str


class KeypairIn(msgspec.Struct):
    name: str
    environment_name: str
    public_key: str


class RuleIn(msgspec.Struct):
    direction: str
    ethertype: str
    protocol: str
    remote_ip_prefix: str
    port_range_min: int
    port_range_max: int


class LogsIn(msgspec.Struct):
    length: int


class LaunchIn(msgspec.Struct):
    name: str
    environment_name: str
    flavor_name: str
    key_name: str
    count: int
    image_name: str = ""
    assign_floating_ip: bool = False
    enable_port_randomization: bool = True
    user_data: str = ""
    labels: list[str] = []
    security_rules: list[dict[str, Any]] = []


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    api_key: str = API_KEY,
    requests_per_minute: int = REQUESTS_PER_MINUTE,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated account at `app.state.account`."""
    account = Account(host, scenario, now)
    limiter = Limiter(now, requests_per_minute)
    return Litestar(
        route_handlers=[
            *_catalogue_routes(scenario),
            *_environment_routes(account, scenario),
            *_keypair_routes(account, scenario),
            *_log_routes(account, scenario),
            *_instance_routes(account, scenario),
            *_rule_routes(account, scenario),
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


def _catalogue_routes(scenario: Scenario) -> list[Any]:
    @get("/v1/core/flavors")
    async def flavors() -> Response[Any]:
        await scenario.arrive("offers")
        scenario.depart("offers")
        groups = [(each, region) for each in FLAVORS.values() for region in each.regions]
        listed = [
            {
                "gpu": flavor.gpu,
                "region_name": region,
                "flavors": [flavor.on_wire(region, in_stock=scenario.in_stock(flavor.name, region))],
            }
            for flavor, region in groups
        ]
        return _ok("Getting flavors successful", data=listed)

    @get("/v1/pricebook")
    async def pricebook() -> Response[Any]:
        return Response([_price(number, *each) for number, each in enumerate(PRICES.items(), 1)])

    return [flavors, pricebook]


def _environment_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/core/environments")
    async def environments(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        found = [name for name in account.environments if request.query_params.get("search", "") in name]
        page, number = _paged(request, found)
        return _ok(
            "Getting environments successful",
            environments=[_environment(account, name) for name in page],
            **number,
        )

    @post("/v1/core/environments", status_code=HTTP_200_OK)
    async def make_environment(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), EnvironmentIn)
        if wanted.region not in REGIONS:
            raise Refusal(404, "not_found", "Region not found")
        if not 1 <= len(wanted.name) <= NAME_CHARACTERS_MAX:
            raise _bad("The name is too long")
        if wanted.name in account.environments:
            raise Refusal(409, "bad_request", "An environment with this name exists")
        account.environments[wanted.name] = wanted.region
        scenario.depart("prepare")
        return _ok("Creating environment successful", environment=_environment(account, wanted.name))

    return [environments, make_environment]


def _keypair_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/core/keypairs")
    async def keypairs(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        search = request.query_params.get("search", "")
        found = [each for each in account.keypairs if search in each[1]]
        page, number = _paged(request, found)
        return _ok(
            "Getting keypairs successful", keypairs=[_keypair(account, *each) for each in page], **number
        )

    @post("/v1/core/keypairs", status_code=HTTP_200_OK)
    async def make_keypair(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), KeypairIn)
        if wanted.environment_name not in account.environments:
            raise Refusal(404, "not_found", "Environment not found")
        if not 1 <= len(wanted.name) <= NAME_CHARACTERS_MAX:
            raise _bad("The name is too long")
        place = wanted.environment_name, wanted.name
        if place in account.keypairs:
            raise Refusal(409, "bad_request", "A keypair with this name exists")
        account.keypairs[place] = wanted.public_key
        scenario.depart("prepare")
        return _ok("Importing keypair successful", keypair=_keypair(account, *place))

    return [keypairs, make_keypair]


def _instance_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/core/virtual-machines")
    async def instances(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("inventory")
        page, number = _paged(request, account.instances.listed())
        answer = {
            "status": True,
            "message": "Getting instances successful",
            "instances": [on_wire(account, each) for each in page],
            **number,
        }
        scenario.depart("inventory")
        whole = msgspec.json.encode(answer)
        cut = scenario.take("inventory", FaultKind.PARTIAL_LIST)
        return Response(whole[: len(whole) // 2] if cut else whole, media_type="application/json")

    @post("/v1/core/virtual-machines", status_code=HTTP_200_OK)
    async def launch(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("launch")
        made = await _launch(account, scenario, _body(await request.body(), LaunchIn))
        scenario.depart("launch")
        return _ok("Creating instances successful", instances=[on_wire(account, made)])

    @delete("/v1/core/virtual-machines/{number:str}", status_code=HTTP_200_OK)
    async def remove(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("terminate")
        found = account.instances.known(request.path_params["number"])
        if found is None:
            raise Refusal(404, "not_found", "Virtual machine not found")
        if scenario.take("terminate", FaultKind.REFUSE_TERMINATE):
            raise _bad("The virtual machine is currently being created and cannot be deleted yet")
        await account.instances.end(found)
        scenario.depart("terminate")
        return _ok("Deleting virtual machine successful")

    @get("/v1/core/virtual-machines/{number:str}/{action:str}")
    async def switch(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("power")
        found = account.instances.known(request.path_params["number"])
        action = request.path_params["action"]
        if found is None or action not in _STATES_FOR:
            raise Refusal(404, "not_found", "Virtual machine not found")
        if account.status(found) not in _STATES_FOR[action]:
            raise _bad(f"The virtual machine is in the state {account.status(found)}")
        if not await account.instances.switch(found, off=action == "stop"):
            raise _bad("This emulator cannot switch the machines of its host")
        scenario.depart("power")
        return _ok("The request was accepted")

    return [instances, launch, remove, switch]


def _rule_routes(account: Account, scenario: Scenario) -> list[Any]:
    """The firewall of a machine. Whether it refuses a rule that exists, and how many it takes, is not documented: this
    one refuses none of them.
    """

    def found(request: AnyRequest) -> Instance:
        instance = account.instances.known(request.path_params["number"])
        if instance is None:
            raise Refusal(404, "not_found", "Virtual machine not found")
        return instance

    @get("/v1/core/virtual-machines/{number:str}")
    async def show(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("firewall")
        instance = found(request)
        return _ok("Getting instance successful", instance=on_wire(account, instance))

    @post("/v1/core/virtual-machines/{number:str}/sg-rules", status_code=HTTP_200_OK)
    async def add(request: AnyRequest) -> Response[Any]:
        instance, wanted = found(request), _body(await request.body(), RuleIn)
        try:
            network = ip_network(wanted.remote_ip_prefix)
        except ValueError:
            raise _bad("Invalid remote_ip_prefix") from None
        if (
            wanted.ethertype != f"IPv{network.version}"
            or not 1 <= wanted.port_range_min <= wanted.port_range_max
        ):
            raise _bad("Invalid payload")
        rule = account.numbered(msgspec.to_builtins(wanted))
        instance.security_rules.append(rule)
        scenario.depart("firewall")
        return _ok("Security rule is being created", security_rule=rule)

    @delete("/v1/core/virtual-machines/{number:str}/sg-rules/{rule:str}", status_code=HTTP_200_OK)
    async def drop(request: AnyRequest) -> Response[Any]:
        instance, number = found(request), request.path_params["rule"]
        left = [each for each in instance.security_rules if str(each["id"]) != number]
        if len(left) == len(instance.security_rules):
            raise Refusal(404, "not_found", "Security rule not found")
        instance.security_rules = left
        scenario.depart("firewall")
        return _ok("Security rule deleted")

    return [show, add, drop]


def _log_routes(account: Account, scenario: Scenario) -> list[Any]:
    def active(number: str) -> Instance:
        found = account.instances.known(number)
        if found is None:
            raise Refusal(404, "not_found", "Virtual machine not found")
        if account.status(found) != "ACTIVE":
            raise _bad("The virtual machine is not active")
        return found

    @post("/v1/core/virtual-machines/{number:str}/logs", status_code=HTTP_200_OK)
    async def request_logs(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("console")
        found, wanted = active(request.path_params["number"]), _body(await request.body(), LogsIn)
        number = account.request_logs(found, wanted.length)
        scenario.depart("console")
        return Response({"request_id": number})

    @get("/v1/core/virtual-machines/{number:str}/logs")
    async def logs(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("console")
        found = active(request.path_params["number"])
        try:
            printed = account.logs(found, int(request.query_params.get("request_id", "")))
        except (ValueError, LookupError):
            raise _bad("There is no request with this id") from None
        scenario.depart("console")
        return Response({} if printed is None else {"logs": printed})

    return [request_logs, logs]


_STATES_FOR = {
    "hard-reboot": ("ACTIVE", "ERROR"),
    "stop": ("ACTIVE", "SHUTOFF"),
    "start": ("ACTIVE", "SHUTOFF"),
}
"""The states in which an action is taken. The documents say it for the reboot alone."""


async def _launch(account: Account, scenario: Scenario, wanted: LaunchIn) -> Instance:
    flavor = _checked(account, wanted)
    region = account.environments[wanted.environment_name]
    if not account.covers(flavor):
        raise _bad("Your balance does not cover this virtual machine")
    if region not in flavor.regions or not scenario.sell(flavor.name, region):
        raise _bad(f"Not enough capacity for flavor {flavor.name} in {region}")

    def made(number: int) -> Instance:
        return Instance(
            id=str(number),
            native_type=flavor.name,
            native_region=region,
            number=number,
            name=wanted.name,
            flavor=flavor,
            environment=wanted.environment_name,
            image=wanted.image_name,
            key_name=wanted.key_name,
            labels=wanted.labels,
            security_rules=[account.numbered(rule) for rule in wanted.security_rules],
            floating_ip_wanted=wanted.assign_floating_ip,
        )

    return await account.launch(made, user_data=wanted.user_data)


def _checked(account: Account, wanted: LaunchIn) -> Flavor:
    """The flavor of a sound request."""
    if not 1 <= len(wanted.name) <= NAME_CHARACTERS_MAX or wanted.count != 1:
        raise _bad("Invalid payload")
    if len(wanted.user_data.encode()) > USER_DATA_BYTES_MAX:
        raise _bad("The user data is too large")
    if wanted.environment_name not in account.environments:
        raise Refusal(404, "not_found", "Environment not found")
    if (wanted.environment_name, wanted.key_name) not in account.keypairs:
        raise Refusal(404, "not_found", "Keypair not found")
    if wanted.image_name not in IMAGES:
        raise Refusal(404, "not_found", "Image not found")
    if wanted.flavor_name not in FLAVORS:
        raise Refusal(404, "not_found", "Flavor not found")
    return FLAVORS[wanted.flavor_name]


def on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object."""
    status = account.status(instance)
    address = account.instances.address(instance) if instance.floating_ip_wanted else None
    found: dict[str, Any] = {
        "id": instance.number,
        "name": instance.name,
        "status": status,
        "vm_state": "active" if status == "ACTIVE" else "building",
        "power_state": "RUNNING" if status == "ACTIVE" else "NOSTATE",
        "environment": {"name": instance.environment, "region": instance.native_region},
        "flavor": instance.flavor.of_instance(),
        "image": {"name": instance.image},
        "keypair": {"name": instance.key_name},
        "labels": instance.labels,
        "security_rules": instance.security_rules,
        "port_randomization": False,
        "volume_attachments": [],
        "locked": False,
        "created_at": instance.launched_at.isoformat(),
        "floating_ip_status": "ATTACHED" if address else "ATTACHING",
    }
    return found if address is None else found | {"floating_ip": address, "fixed_ip": "10.0.0.7"}


def _price(number: int, name: str, value: str) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "value": float(value),
        "original_value": float(value),
        "discount_applied": False,
    }


def _environment(account: Account, name: str) -> dict[str, Any]:
    return {
        "id": list(account.environments).index(name) + 1,
        "name": name,
        "region": account.environments[name],
    }


def _keypair(account: Account, environment: str, name: str) -> dict[str, Any]:
    number = list(account.keypairs).index((environment, name)) + 1
    return {
        "id": number,
        "name": name,
        "public_key": account.keypairs[environment, name],
        "environment": _environment(account, environment),
    }


def _paged(request: AnyRequest, found: list[Wanted]) -> tuple[list[Wanted], dict[str, int]]:
    """One page by number, and the fields that say which it is."""
    try:
        number, size = (
            int(request.query_params.get(name, each)) for name, each in (("page", 1), ("pageSize", 10))
        )
    except ValueError:
        raise _bad("Invalid page") from None
    size = min(max(1, size), PAGE_SIZE_MAX)
    page = found[(number - 1) * size : number * size]
    return page, {"count": len(found), "page": number, "page_size": size}


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise _bad("Invalid payload") from None


def _bad(message: str) -> Refusal:
    return Refusal(400, "bad_request", message)


def _ok(message: str, **fields: Any) -> Response[Any]:
    return Response({"status": True, "message": message, **fields})


def _error(status: int, reason: str, message: str) -> Response[Any]:
    return Response({"status": False, "message": message, "error_reason": reason}, status_code=status)


def _authentication(
    api_key: str, limiter: Limiter
) -> Callable[[AnyRequest], Awaitable[Response[Any] | None]]:
    async def check(request: AnyRequest) -> Response[Any] | None:
        if request.route_handler.opt.get("open"):
            return None
        limiter.draw(request.client.host if request.client else "")
        given = request.headers.get("api_key", "")
        if secrets.compare_digest(given.encode(), api_key.encode()):
            return None
        return _error(401, "unauthorized", "Invalid API key")

    return check


def _refused(_: AnyRequest, refusal: Refusal) -> Response[Any]:
    return _error(refusal.status, refusal.reason, refusal.message)


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[Any]:
    if failure.kind is FaultKind.THROTTLE:
        return _error(429, "too_many_requests", "Too many requests. Try again in a minute.")
    return _error(500, "server_error", "Internal server error")


def _http_error(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _error(error.status_code, "not_found", "Not found")
