"""The HTTP contract of Crusoe Cloud's API v1, over emulated machines.

Paths, fields and refusals are those of the official specification (gateway v1), and tests/contract checks them against
`schemas/crusoe.json`. Where it says nothing, we chose: how often one may ask, that a name is free for one machine only,
how long a script may be, 404 for a machine that is unknown, and that an operation that fails does so at once. As the
specification says, a completed operation is listed until a query has shown it.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, delete, get, patch, post
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK

from providers.emulators.clouds.crusoe_account import (
    IMAGES,
    KINDS,
    LOCATIONS,
    Account,
    Instance,
    Kind,
    Operation,
    new_id,
)
from providers.emulators.clouds.crusoe_signatures import is_signed
from providers.emulators.clouds.minute_limit import MinuteLimit
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

KEY_ID = "emulated-crusoe-key"
API_KEY = "ZW11bGF0ZWQtY3J1c29lLXNlY3JldA"
PROJECT = "11111111-2222-4333-8444-555555555555"
REQUESTS_PER_MINUTE = 120
SCRIPT_BYTES_MAX = 16_384
PAGE_SIZE = 20

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


class Refusal(Exception):  # noqa: N818 - an answer of the contract, not an error of ours
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class RuleIn(msgspec.Struct):
    name: str
    direction: str
    action: str
    sources: list[dict[str, str]]
    destinations: list[dict[str, str]]
    protocols: list[str]
    vpc_network_id: str
    source_ports: list[str] = []
    destination_ports: list[str] = []


class InterfaceIn(msgspec.Struct):
    subnet: str


class ActionIn(msgspec.Struct):
    action: str


class LaunchIn(msgspec.Struct):
    name: str
    type: str
    location: str
    ssh_public_key: str
    image: str = ""
    startup_script: str = ""
    network_interfaces: list[InterfaceIn] = []


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    api_key: str = API_KEY,
    key_id: str = KEY_ID,
    project: str = PROJECT,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated project at `app.state.account`.

    `api_key` is the secret of the access key.
    """
    account = Account(host, scenario, now)
    limiter = MinuteLimit(REQUESTS_PER_MINUTE, now)
    base = f"/v1/projects/{project}"
    return Litestar(
        route_handlers=[
            *_catalogue_routes(base, scenario),
            *_network_routes(base, account, scenario),
            *_instance_routes(base, account, scenario),
            *control_routes(scenario, lambda: [on_wire(account, each) for each in account.existing()]),
        ],
        before_request=_authentication(key_id, api_key, limiter, now),
        exception_handlers={Refusal: _refused, ScriptedFailure: _scripted, HTTPException: _http_error},
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter}),
    )


def _catalogue_routes(base: str, scenario: Scenario) -> list[Any]:
    @get(f"{base}/compute/vms/types")
    async def types() -> Response[Any]:
        await scenario.arrive("offers")
        scenario.depart("offers")
        return Response({"items": [kind.on_wire() for kind in KINDS.values()]})

    @get("/v1/capacities")
    async def capacities() -> Response[Any]:
        found = [
            {
                "type": kind.name,
                "location": location,
                "quantity": 8 if scenario.in_stock(kind.name, location) else 0,
                "num_slices": max(1, kind.gpus),
                "quota_type": "PROJECT_QUOTA_TYPE_MAXIMUM_VM_SLICES",
            }
            for kind in KINDS.values()
            for location in kind.locations
        ]
        return Response({"items": found})

    return [types, capacities]


def _network_routes(base: str, account: Account, scenario: Scenario) -> list[Any]:
    @get(f"{base}/networking/vpc-networks")
    async def networks() -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        found = [
            {
                "id": network_id,
                "name": name,
                "cidr": cidr,
                "gateway": new_id(),
                "subnets": [each["id"] for each in account.subnets() if each["vpc_network_id"] == network_id],
            }
            for network_id, (name, cidr) in account.networks.items()
        ]
        return Response({"items": found})

    @get(f"{base}/networking/vpc-subnets")
    async def subnets() -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        return Response({"items": account.subnets()})

    @get(f"{base}/networking/vpc-firewall-rules")
    async def rules() -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        return Response({"items": account.rules})

    @post(f"{base}/networking/vpc-firewall-rules", status_code=HTTP_200_OK)
    async def add_rule(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), RuleIn)
        if wanted.vpc_network_id not in account.networks:
            raise Refusal(400, "bad_request")
        rule = {"id": new_id(), "state": "active"} | msgspec.to_builtins(wanted)
        account.rules.append(rule)
        scenario.depart("prepare")
        return _started(Operation(new_id(), rule["id"], account.now()))

    return [networks, subnets, rules, add_rule]


def _instance_routes(base: str, account: Account, scenario: Scenario) -> list[Any]:
    machines = f"{base}/compute/vms/instances"

    @get(machines)
    async def instances(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("inventory")
        page, token = _paged(request, account.listed())
        answer = {
            "items": [on_wire(account, each) for each in page],
            "next_page_token": token,
            "prev_page_token": "",
        }
        scenario.depart("inventory")
        whole = msgspec.json.encode(answer)
        cut = scenario.take("inventory", FaultKind.PARTIAL_LIST)
        return Response(whole[: len(whole) // 2] if cut else whole, media_type="application/json")

    @get(f"{machines}/operations")
    async def operations(request: AnyRequest) -> Response[Any]:
        wanted = request.query_params.getall("state", [])
        found = [
            each for each in account.operations if not each.told and each.state in (wanted or [each.state])
        ]
        for each in found:
            each.told = True
        return Response({"items": [_operation(each) for each in found]})

    @post(machines, status_code=HTTP_200_OK)
    async def launch(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("launch")
        made = await _launch(account, scenario, _body(await request.body(), LaunchIn))
        scenario.depart("launch")
        return made

    @delete(f"{machines}/{{instance_id:str}}", status_code=HTTP_200_OK)
    async def remove(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("terminate")
        found = account.known(request.path_params["instance_id"])
        if found is None:
            raise Refusal(404, "not_found")
        await account.instances.end(found)
        scenario.depart("terminate")
        return _started(account.operation(found.id))

    @patch(f"{machines}/{{instance_id:str}}", status_code=HTTP_200_OK)
    async def act(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("power")
        found = account.known(request.path_params["instance_id"])
        if found is None:
            raise Refusal(404, "not_found")
        wanted = _body(await request.body(), ActionIn)
        await _switch(account, found, wanted.action)
        scenario.depart("power")
        return _started(account.operation(found.id))

    return [instances, operations, launch, remove, act]


async def _switch(account: Account, found: Instance, action: str) -> None:
    """A machine that is as it is to be stays so."""
    life = {"START": Life.RUNNING, "STOP": Life.STOPPED, "RESET": None}.get(action, Life.FAILED)
    if account.instances.life(found) is life:
        return
    if life is Life.FAILED or not await account.instances.switch(found, off=action == "STOP"):
        raise Refusal(400, "bad_request")


async def _launch(account: Account, scenario: Scenario, wanted: LaunchIn) -> Response[Any]:
    """Accept a launch. What is sold out fails at once, in the answer, or later, in its operation."""
    kind = _checked(account, wanted)
    if wanted.location not in kind.locations or not scenario.sell(kind.name, wanted.location):
        return _started(account.operation(new_id(), failed="out_of_stock"), settled=True)
    made = await account.launch(kind, wanted.location, name=wanted.name, user_data=wanted.startup_script)
    return _started(account.operation(made.id, failed="out_of_stock" if made.sold_out else ""))


def _checked(account: Account, wanted: LaunchIn) -> Kind:
    """The type of a sound request."""
    kind = KINDS.get(wanted.type)
    here = {each["id"] for each in account.subnets() if each["location"] == wanted.location}
    sound = (
        wanted.name
        and wanted.location in LOCATIONS
        and wanted.image in IMAGES
        and wanted.ssh_public_key.startswith("ssh-")
        and {each.subnet for each in wanted.network_interfaces} <= here
        and len(wanted.startup_script.encode()) <= SCRIPT_BYTES_MAX
        and wanted.name not in [each.name for each in account.existing()]
    )
    if kind is None or not sound:
        raise Refusal(400, "bad_request")
    return kind


def on_wire(account: Account, instance: Instance) -> dict[str, Any]:
    """The contract's instance object."""
    address = account.instances.address(instance) or ""
    created = instance.launched_at.isoformat().replace("+00:00", "Z")
    public = {"address": address, "id": instance.id, "type": "dynamic"}
    return {
        "id": instance.id,
        "project_id": PROJECT,
        "name": instance.name,
        "type": instance.native_type,
        "location": instance.native_region,
        "state": account.status(instance),
        "created_at": created,
        "updated_at": created,
        "disks": [],
        "host_channel_adapters": [],
        "maintenance_policy": "unspecified",
        "network_interfaces": [
            {
                "id": instance.id,
                "name": "eth0",
                "network": instance.id,
                "subnet": instance.id,
                "interface_type": "ethernet",
                "mac_address": "00:00:5e:00:53:af",
                "external_dns_name": "",
                "ips": [{"private_ipv4": {"address": "172.27.16.2"}, "public_ipv4": public}],
            }
        ],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    at = operation.started_at.isoformat().replace("+00:00", "Z")
    shown: dict[str, Any] = {
        "operation_id": operation.id,
        "state": operation.state,
        "metadata": {"id": operation.resource_id},
        "started_at": at,
        "completed_at": at,
    }
    message = "The requested resource is out of stock. Please try again later."
    return shown | {"result": {"code": operation.code, "message": message}} if operation.code else shown


def _started(operation: Operation, *, settled: bool = False) -> Response[Any]:
    """The answer that accepts something. Most operations are in progress then."""
    shown = _operation(operation)
    if not settled:
        shown = shown | {"state": "IN_PROGRESS", "completed_at": ""}
        shown.pop("result", None)
    return Response({"operation": shown})


def _paged(request: AnyRequest, found: list[Wanted]) -> tuple[list[Wanted], str]:
    """One page, and the token of the next one; empty on the last."""
    try:
        size = int(request.query_params.get("limit", PAGE_SIZE))
        begin = int(request.query_params.get("next_token") or 0)
    except ValueError:
        raise Refusal(400, "bad_request") from None
    end = begin + max(1, size)
    return found[begin:end], str(end) if end < len(found) else ""


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise Refusal(400, "bad_request") from None


def _authentication(
    key_id: str, secret: str, limiter: MinuteLimit, now: Callable[[], datetime]
) -> Callable[[AnyRequest], Awaitable[Response[Any] | None]]:
    async def check(request: AnyRequest) -> Response[Any] | None:
        if request.route_handler.opt.get("open"):
            return None
        signed = is_signed(
            method=request.method,
            path=request.url.path,
            query=request.url.query,
            timestamp=request.headers.get("X-Crusoe-Timestamp", ""),
            authorization=request.headers.get("Authorization", ""),
            key_id=key_id,
            secret=secret,
            now=now(),
        )
        if not signed:
            return _error(401, "bad_credential")
        if not limiter.allows():
            raise Refusal(429, "too_many_requests")
        return None

    return check


def _refused(_: AnyRequest, refusal: Refusal) -> Response[Any]:
    return _error(refusal.status, refusal.message)


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[Any]:
    return (
        _error(429, "too_many_requests")
        if failure.kind is FaultKind.THROTTLE
        else _error(500, "internal_error")
    )


def _http_error(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _error(error.status_code, "not_found")


def _error(status: int, message: str) -> Response[Any]:
    return Response({"code": str(status), "message": message}, status_code=status)
