"""The HTTP contract of Verda's API v1, over emulated machines.

Paths, fields and refusals are those of the official OpenAPI document (changelog up to 2026-09-25), and tests/contract
checks them against `schemas/verda.json`. Where it says nothing, we chose: the code of a full quota of scripts, how long
a script may be, the words about a bad hostname, and that a machine that was deleted is 404 at once.
"""

import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from litestar import Litestar, Request, Response, delete, get, post, put
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_200_OK, HTTP_201_CREATED, HTTP_202_ACCEPTED

from providers.emulators.clouds.verda_account import (
    IMAGES,
    KINDS,
    LOCATIONS,
    TOKEN_SECONDS,
    USD_PER_GB_MONTH,
    Account,
    Instance,
    Kind,
    Script,
    new_id,
)
from providers.emulators.clouds.verda_limits import Limiter, Refusal
from providers.emulators.clouds.verda_shapes import (
    ActionIn,
    KeyIn,
    LaunchIn,
    OsVolumeIn,
    ScriptIn,
    TagIn,
    TokenIn,
    VolumeDeleteIn,
    machine_on_wire,
    script_on_wire,
    volume_on_wire,
    volume_type_on_wire,
)
from providers.emulators.host import MachineHost
from providers.emulators.rentals import Life
from providers.emulators.scenario import (
    FaultKind,
    Scenario,
    ScriptedFailure,
    control_routes,
    cut_connections,
)

CLIENT_ID = "emulated-verda-client"
API_KEY = "emulated-verda-secret"
SCRIPT_BYTES_MAX = 32_768
HOSTNAME_CHARACTERS_MAX = 63
TAGS_MAX, TAG_KEY_MAX, TAG_VALUE_MAX = 10, 63, 127
PAGE_SIZE, PAGE_SIZE_MAX = 10, 100

AnyRequest = Request[Any, Any, Any]
Wanted = TypeVar("Wanted")


def create_app(
    host: MachineHost,
    scenario: Scenario,
    *,
    now: Callable[[], datetime],
    api_key: str = API_KEY,
    client_id: str = CLIENT_ID,
) -> Litestar:
    """The emulator as an ASGI application; tests find the emulated project at `app.state.account`.

    `api_key` is the client's secret.
    """
    account = Account(host, scenario, now, client_id, api_key)
    limiter = Limiter(now)
    return Litestar(
        route_handlers=[
            _token_route(account),
            *_catalogue_routes(scenario),
            *_key_routes(account, scenario),
            *_script_routes(account, scenario),
            *_volume_routes(account, scenario),
            *_instance_routes(account, scenario),
            *control_routes(
                scenario, lambda: [machine_on_wire(account, each) for each in account.instances.standing()]
            ),
        ],
        before_request=_authentication(account, limiter),
        before_send=[_with_limits],
        exception_handlers={Refusal: _refused, ScriptedFailure: _scripted, HTTPException: _http_error},
        middleware=[cut_connections],
        openapi_config=None,
        logging_config=None,
        state=State({"account": account, "limiter": limiter}),
    )


def _token_route(account: Account) -> Any:
    @post("/v1/oauth2/token", opt={"open": True}, status_code=HTTP_200_OK)
    async def token(request: AnyRequest) -> Response[Any]:
        wanted = _body(await request.body(), TokenIn)
        if wanted.grant_type != "client_credentials":
            raise _bad("unsupported grant type")
        known = [
            secrets.compare_digest(given.encode(), ours.encode())
            for given, ours in (
                (wanted.client_id, account.client_id),
                (wanted.client_secret, account.client_secret),
            )
        ]
        if not all(known):
            raise Refusal(401, "unauthorized_request", "Invalid client id or client secret")
        return Response(
            {
                "access_token": account.new_token(),
                "token_type": "Bearer",
                "expires_in": TOKEN_SECONDS,
                "refresh_token": secrets.token_urlsafe(48),
                "scope": "cloud-api-v1",
            }
        )

    return token


def _catalogue_routes(scenario: Scenario) -> list[Any]:
    @get("/v1/instance-types", opt={"open": True})
    async def types() -> Response[Any]:
        await scenario.arrive("offers")
        scenario.depart("offers")
        return Response([kind.on_wire() for kind in KINDS.values()])

    @get("/v1/volume-types", opt={"open": True})
    async def volume_types() -> Response[Any]:
        return Response(
            [volume_type_on_wire("NVMe", float(USD_PER_GB_MONTH)), volume_type_on_wire("HDD", 0.05)]
        )

    @get("/v1/instance-availability")
    async def availability() -> Response[Any]:
        found = [
            {
                "location_code": location,
                "availabilities": [
                    kind.name
                    for kind in KINDS.values()
                    if location in kind.locations and scenario.in_stock(kind.name, location)
                ],
            }
            for location in LOCATIONS
        ]
        return Response(found)

    return [types, volume_types, availability]


def _key_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/ssh-keys")
    async def keys() -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        found = [
            {"id": key_id, "name": name, "key": key, "fingerprint": None, "created_by_user_id": None}
            for key_id, (name, key) in account.ssh_keys.items()
        ]
        return Response(found)

    @post("/v1/ssh-keys", status_code=HTTP_201_CREATED)
    async def add_key(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), KeyIn)
        key_id = new_id()
        account.ssh_keys[key_id] = wanted.name, wanted.key
        scenario.depart("prepare")
        return _bare(key_id, HTTP_201_CREATED)

    return [keys, add_key]


def _script_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/scripts")
    async def scripts(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        scenario.depart("prepare")
        search = request.query_params.get("name", "")
        found = [each for each in account.scripts.values() if search in each.name]
        if request.query_params.get("orderDirection", "desc") == "desc":
            found.reverse()
        page, headers = _paged(request, found)
        return Response([script_on_wire(each) for each in page], headers=headers)

    @post("/v1/scripts", status_code=HTTP_201_CREATED)
    async def add_script(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("prepare")
        wanted = _body(await request.body(), ScriptIn)
        if not wanted.name or len(wanted.script.encode()) > SCRIPT_BYTES_MAX:
            raise _bad("The script is too long")
        if len(account.scripts) >= account.scripts_max:
            raise _bad("The limit of startup scripts is reached")
        script = Script(new_id(), wanted.name, wanted.script, account.now())
        account.scripts[script.id] = script
        scenario.depart("prepare")
        return _bare(script.id, HTTP_201_CREATED)

    @delete("/v1/scripts/{script_id:str}", status_code=HTTP_200_OK)
    async def delete_script(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("children")
        if account.scripts.pop(request.path_params["script_id"], None) is None:
            raise Refusal(404, "not_found", "Script not found")
        scenario.depart("children")
        return Response(b"", status_code=HTTP_200_OK)

    return [scripts, add_script, delete_script]


def _volume_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/volumes")
    async def volumes() -> Response[Any]:
        await scenario.arrive("children")
        scenario.depart("children")
        return Response([volume_on_wire(each) for each in account.visible_volumes()])

    @delete("/v1/volumes/{volume_id:str}", status_code=HTTP_202_ACCEPTED)
    async def delete_volume(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("children")
        wanted = _body(await request.body(), VolumeDeleteIn)
        volume = account.volumes.get(request.path_params["volume_id"])
        if volume is None:
            raise Refusal(404, "not_found", "Volume not found")
        if volume.instance_id:
            raise Refusal(403, "forbidden_action", "Can't delete an attached volume")
        account.delete_volume(volume, permanently=wanted.is_permanent)
        scenario.depart("children")
        return Response(b"", status_code=HTTP_202_ACCEPTED)

    return [volumes, delete_volume]


def _instance_routes(account: Account, scenario: Scenario) -> list[Any]:
    @get("/v1/instances")
    async def instances(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("inventory")
        filters = request.query_params.getall("tag", [])
        found = [each for each in account.instances.listed() if all(_has(each, wanted) for wanted in filters)]
        scenario.depart("inventory")
        whole = msgspec.json.encode([machine_on_wire(account, each) for each in found])
        cut = scenario.take("inventory", FaultKind.PARTIAL_LIST)
        return Response(whole[: len(whole) // 2] if cut else whole, media_type="application/json")

    @get("/v1/instances/{instance_id:str}")
    async def instance(request: AnyRequest) -> Response[Any]:
        return Response(machine_on_wire(account, _known(account, request.path_params["instance_id"])))

    @post("/v1/instances", status_code=HTTP_202_ACCEPTED)
    async def launch(request: AnyRequest) -> Response[Any]:
        await scenario.arrive("launch")
        made = await _launch(account, scenario, _body(await request.body(), LaunchIn))
        scenario.depart("launch")
        return _bare(made.id, HTTP_202_ACCEPTED)

    @put("/v1/instances", status_code=HTTP_202_ACCEPTED)
    async def act(request: AnyRequest) -> Response[Any]:
        wanted = _body(await request.body(), ActionIn)
        if wanted.action in ("shutdown", "start"):
            return await _switch(account, scenario, wanted)
        await scenario.arrive("terminate")
        if wanted.action not in ("delete", "discontinue"):
            raise _bad("This emulator deletes, shuts down and starts")
        answer = await _delete_machines(account, scenario, wanted)
        scenario.depart("terminate")
        return answer

    return [instances, instance, launch, act]


async def _switch(account: Account, scenario: Scenario, wanted: ActionIn) -> Response[Any]:
    """204 for a machine that is already as it is to be."""
    await scenario.arrive("power")
    if not isinstance(wanted.id, str):
        raise _bad("This emulator switches one machine at a time")
    found, off = _known(account, wanted.id), wanted.action == "shutdown"
    if account.instances.life(found) is (Life.STOPPED if off else Life.RUNNING):
        return Response(None, status_code=204)
    if not await account.instances.switch(found, off=off):
        raise Refusal(403, "forbidden_action", f"Can't {wanted.action} this instance now")
    scenario.depart("power")
    return Response([_result(wanted, wanted.id)], status_code=HTTP_202_ACCEPTED)


async def _delete_machines(account: Account, scenario: Scenario, wanted: ActionIn) -> Response[Any]:
    """One result for each machine; a single machine by its plain id is refused with a status of its own."""
    if isinstance(wanted.id, str):
        if account.instances.life(_known(account, wanted.id)) is Life.ENDING:
            return Response(None, status_code=204)
        await _delete_machine(account, scenario, wanted.id, wanted)
        return Response([_result(wanted, wanted.id)], status_code=HTTP_202_ACCEPTED)
    results = []
    for instance_id in wanted.id:
        try:
            await _delete_machine(account, scenario, instance_id, wanted)
            results.append(_result(wanted, instance_id))
        except Refusal as refusal:
            failed = {"status": "error", "error": refusal.message, "statusCode": refusal.status}
            results.append(_result(wanted, instance_id) | failed)
    success = all(each["status"] == "success" for each in results)
    return Response(results, status_code=HTTP_202_ACCEPTED if success else 207)


async def _delete_machine(account: Account, scenario: Scenario, instance_id: str, wanted: ActionIn) -> None:
    found = _known(account, instance_id)
    creating = account.instances.life(found) is Life.CREATING
    if scenario.take("terminate", FaultKind.REFUSE_TERMINATE) or creating:
        raise Refusal(403, "forbidden_action", "Can't discontinue a provisioning instance")
    await account.end(found, wanted.volume_ids, permanently=wanted.delete_permanently)


def _result(wanted: ActionIn, instance_id: str) -> dict[str, Any]:
    return {"instanceId": instance_id, "action": wanted.action, "status": "success"}


def _known(account: Account, instance_id: str) -> Instance:
    found = account.instances.known(instance_id)
    if found is None:
        raise Refusal(404, "not_found", "Instance not found")
    return found


async def _launch(account: Account, scenario: Scenario, wanted: LaunchIn) -> Instance:
    kind = _checked(account, wanted)
    if not account.covers(kind):
        raise Refusal(402, "insufficient_funds", "Not enough funds to perform the action")
    place = wanted.location_code
    if place not in kind.locations or not scenario.sell(kind.name, place):
        raise Refusal(503, "service_unavailable", "No capacity available")
    system = wanted.os_volume or OsVolumeIn(f"OS-NVMe-{secrets.token_hex(4)}", 50)
    volume = account.add_volume(system.name, system.size, _tags(system.tags), place)
    script = account.scripts[wanted.startup_script_id] if wanted.startup_script_id else None
    instance = Instance(
        id=new_id(),
        native_type=kind.name,
        native_region=place,
        kind=kind,
        hostname=wanted.hostname,
        description=wanted.description,
        image=wanted.image,
        tags=_tags(wanted.tags),
        ssh_key_ids=_key_ids(wanted),
        startup_script_id=wanted.startup_script_id,
        os_volume_id=volume.id,
    )
    return await account.launch(instance, user_data=script.script if script else "")


def _checked(account: Account, wanted: LaunchIn) -> Kind:
    """The type of a sound request."""
    kind = KINDS.get(wanted.instance_type)
    if kind is None:
        raise _bad("Invalid instance type")
    if wanted.location_code not in LOCATIONS:
        raise _bad("Invalid location code")
    if wanted.image not in IMAGES or wanted.image not in kind.images:
        raise _bad("Invalid image type")
    if not 1 <= len(wanted.hostname) <= HOSTNAME_CHARACTERS_MAX:
        raise _bad("Invalid hostname")
    keys = _key_ids(wanted)
    if not keys or any(each not in account.ssh_keys for each in keys):
        raise _bad("Invalid ssh key id")
    if wanted.startup_script_id is not None and wanted.startup_script_id not in account.scripts:
        raise _bad("Invalid startup script id")
    return kind


def _key_ids(wanted: LaunchIn) -> list[str]:
    return [wanted.ssh_key_ids] if isinstance(wanted.ssh_key_ids, str) else wanted.ssh_key_ids


def _tags(wanted: list[TagIn]) -> list[dict[str, str]]:
    fits = all(len(each.key) <= TAG_KEY_MAX and len(each.value or "") <= TAG_VALUE_MAX for each in wanted)
    if len(wanted) > TAGS_MAX or not fits:
        raise _bad("Invalid tags")
    return [
        {"id": f"tag_{secrets.token_hex(11)}", "key": each.key.lower(), "value": each.value or ""}
        for each in wanted
    ]


def _has(instance: Instance, wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return any(tag["key"] == key and (not equals or tag["value"] == value) for tag in instance.tags)


def _paged(request: AnyRequest, found: list[Wanted]) -> tuple[list[Wanted], dict[str, str]]:
    """One page by number, and the headers that say which it is."""
    try:
        number, size = (
            int(request.query_params.get(name, each)) for name, each in (("page", 1), ("pageSize", PAGE_SIZE))
        )
    except ValueError:
        raise _bad("Invalid page") from None
    size = min(max(1, size), PAGE_SIZE_MAX)
    headers = {"X-Page": str(number), "X-Page-Size": str(size), "X-Total-Count": str(len(found))}
    return found[(number - 1) * size : number * size], headers


def _body(raw: bytes, kind: type[Wanted]) -> Wanted:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        raise _bad("Invalid request") from None


def _bad(message: str) -> Refusal:
    return Refusal(400, "invalid_request", message)


def _bare(made: str, status: int) -> Response[Any]:
    """An id as a JSON string of its own, which is how things that were made are answered."""
    return Response(msgspec.json.encode(made), status_code=status, media_type="application/json")


def _authentication(
    account: Account, limiter: Limiter
) -> Callable[[AnyRequest], Awaitable[Response[Any] | None]]:
    async def check(request: AnyRequest) -> Response[Any] | None:
        if request.route_handler.opt.get("open"):
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not account.admits(token):
            return _error(401, "unauthorized_request", "Access token is missing or invalid", {})
        request.state.limits = limiter.draw(request.method, request.url.path)
        return None

    return check


async def _with_limits(message: Any, scope: Any) -> None:
    """Answers say what is left of the limits. A refusal by them has the headers already."""
    limits = scope.get("state", {}).get("limits")
    if message["type"] == "http.response.start" and limits:
        message["headers"] = [
            *message["headers"],
            *((name.lower().encode(), value.encode()) for name, value in limits.items()),
        ]


def _refused(_: AnyRequest, refusal: Refusal) -> Response[Any]:
    return _error(refusal.status, refusal.code, refusal.message, refusal.headers)


def _scripted(_: AnyRequest, failure: ScriptedFailure) -> Response[Any]:
    if failure.kind is FaultKind.THROTTLE:
        return _error(429, "rate_limit_exceeded", "Too many requests", {"Retry-After": "49"})
    return _error(500, "server_error", "Internal server error", {})


def _http_error(_: AnyRequest, error: HTTPException) -> Response[Any]:
    return _error(error.status_code, "not_found", "Resource not found, or invalid path", {})


def _error(status: int, code: str, message: str, headers: dict[str, str]) -> Response[Any]:
    return Response({"code": code, "message": message}, status_code=status, headers=headers)
