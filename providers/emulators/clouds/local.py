"""The local cloud: a small GPU cloud with a contract of its own, whose machines run on this host.

It has the difficulties of real clouds, so that the way from an order to a working machine is the
real one: no idempotency key, a list in pages, deletion that takes time, terminated machines that
stay listed for a while, and the faults that a scenario injects. The faults that concern a machine
itself (`never_boots`, `wrong_gpu`, `hidden`) are consumed when it is bought.

    GET    /v1/types                       what is sold, with price and stock
    POST   /v1/machines                    201; buys one
    GET    /v1/machines?limit=&cursor=     in order of purchase; `next_cursor` is null on the last page
    GET    /v1/machines/{id}
    GET    /v1/machines/{id}/console      what it printed, 256 KiB at most
    DELETE /v1/machines/{id}               202; `terminating`, then `terminated`, then gone

A type with `"spot": true` has the name of one on demand. An order names it by `spot`, with `usd_per_hour_max`, and is
refused with `spot_price_too_low` when that is below its price. The cloud takes such a machine back when it is asked to:

    POST   /__control/evictions            {"machine": id, name or address, "state": "announced" or "taken"};
                                           `withdrawn` takes a notice back. `eviction` of the machine says so

GPUs of a machine on this host can be made to fail while it runs, by a step of `data_plane/nvml/emulation.py`:

    POST   /__control/gpu_faults           {"machine": id, name or address, "step": {"at": 0, "gpu": 0, "xid": 79}}

Errors are `{"error": {"code": ..., "message": ...}}`.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router, delete, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.status_codes import HTTP_202_ACCEPTED

from providers.emulators.host import EmulatedGpu, HostedState, MachineHost, MachineSpec, ScriptsGpus
from providers.emulators.scenario import FaultKind, Scenario, ScriptedFailure, control_routes, cut_connections

TOKEN = "local-cloud-token"  # noqa: S105 - gives access to nothing but an emulator on this host
REGION = "local-1"
PAGE_SIZE = 50
MACHINES_MAX = 200
"""The account's quota. It is below the number of addresses on the host's bridge."""
USER_DATA_BYTES_MAX = 65_536
TERMINATED_SHOWN = timedelta(seconds=5)
EVICTED_SHOWN = timedelta(minutes=5)
"""A machine that was taken back stays listed for longer, so that its customer reads why it ended."""
BROKEN_CURSOR = "broken"
NAME_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class MachineType:
    name: str
    model: str
    """The GPU model's name in this contract, which the adapter translates."""
    gpu: EmulatedGpu
    gpus: int
    vcpus: int
    memory_gib: int
    disk_gib: int
    usd_per_hour: str
    spot_usd_per_hour: str | None = None
    """As spot; None where it is not sold so."""


H100 = EmulatedGpu("NVIDIA H100 80GB HBM3", 81559)
A100 = EmulatedGpu("NVIDIA A100-SXM4-80GB", 81920)
L4 = EmulatedGpu("NVIDIA L4", 23034)
TYPES = {
    kind.name: kind
    for kind in (
        MachineType("gpu-h100x1", "H100-SXM-80", H100, 1, 24, 200, 1_000, "1.99", "0.99"),
        MachineType("gpu-h100x8", "H100-SXM-80", H100, 8, 192, 1_600, 8_000, "15.92", "7.92"),
        MachineType("gpu-a100x1", "A100-SXM-80", A100, 1, 16, 120, 500, "1.19"),
        MachineType("gpu-l4x1", "L4-24", L4, 1, 8, 32, 250, "0.35"),
        MachineType("cpu-16", "", L4, 0, 16, 64, 100, "0.30"),  # Without GPUs, the kind of them says nothing.
    )
}


class Status(StrEnum):
    BOOTING = "booting"
    ACTIVE = "active"
    FAILED = "failed"
    TERMINATING = "terminating"
    TERMINATED = "terminated"


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/machines`."""

    name: str
    type: str
    region: str
    user_data: str = ""
    tags: dict[str, str] = {}
    spot: bool = False
    usd_per_hour_max: Decimal | None = None

    @property
    def stock(self) -> str:
        """What its stock is called in a scenario: spot and on demand sell out one by one."""
        return stock_name(self.type, spot=self.spot)


class EvictionState(StrEnum):
    ANNOUNCED = "announced"
    WITHDRAWN = "withdrawn"
    TAKEN = "taken"


class EvictionOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /__control/evictions`."""

    machine: str
    """Its id, its name or its address."""
    state: EvictionState = EvictionState.TAKEN


class GpuFault(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /__control/gpu_faults`."""

    machine: str
    """Its id, its name or its address."""
    step: dict[str, object]


def stock_name(native_type: str, *, spot: bool) -> str:
    return f"{native_type}:spot" if spot else native_type


class ContractError(Exception):
    """The cloud refuses a request; `code` is part of its contract."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class _Machine:
    number: int
    id: str
    order: Order
    created_at: datetime
    hosted_as: str
    hidden: bool
    ending: asyncio.Task[None] | None = None
    ended_at: datetime | None = None
    eviction: tuple[EvictionState, datetime] | None = None


@dataclass
class LocalCloud:
    """The cloud itself, without HTTP."""

    host: MachineHost
    scenario: Scenario
    now: Callable[[], datetime]
    sold: Counter[str] = field(default_factory=Counter[str])
    """How many machines were ever sold under each name, as a bill would show."""
    unknown_statuses: dict[str, str] = field(default_factory=dict[str, str])
    """Status words outside the contract by machine id, to test how an adapter reads them."""
    _machines: dict[str, _Machine] = field(default_factory=dict[str, _Machine])

    def types(self) -> list[dict[str, Any]]:
        on_demand = [self._type_on_wire(kind, kind.usd_per_hour, spot=False) for kind in TYPES.values()]
        spot = ((kind, kind.spot_usd_per_hour) for kind in TYPES.values())
        return [
            *on_demand,
            *(self._type_on_wire(kind, price, spot=True) for kind, price in spot if price is not None),
        ]

    async def buy(self, order: Order) -> dict[str, Any]:
        kind = TYPES.get(order.type)
        self._check(order, kind)
        assert kind is not None  # noqa: S101 - `_check` refuses an unknown type
        if not self.scenario.sell(order.stock, order.region):
            raise ContractError(409, "out_of_stock", f"no {order.type} is left in {order.region}")
        name = f"m-{secrets.token_hex(6)}"  # Random: after a restart an old id must not name a new machine.
        hosted_as = f"{order.name[:46]}-{name}"
        if not self.scenario.take("launch", FaultKind.NEVER_BOOTS):
            wrong = self.scenario.take("launch", FaultKind.WRONG_GPU)
            gpu = _other_gpu(kind.gpu) if wrong else kind.gpu
            await self.host.boot(MachineSpec(hosted_as, order.user_data, (gpu,) * kind.gpus))
        self.sold[order.name] += 1
        hidden = self.scenario.take("launch", FaultKind.HIDDEN)
        machine = _Machine(self.sold.total(), name, order, self.now(), hosted_as, hidden)
        self._machines[name] = machine
        return self._on_wire(machine)

    def page(self, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        """Up to `limit` machines with numbers above `after`, and the `after` of the next page; None on the last."""
        visible = [machine for machine in self._known() if machine.number > after and self._listed(machine)]
        page = visible[:limit]
        more = page[-1].number if len(visible) > len(page) and page else None
        return [self._on_wire(machine) for machine in page], more

    def get(self, machine_id: str) -> dict[str, Any]:
        return self._on_wire(self._find(machine_id))

    def console(self, machine_id: str) -> str:
        machine = self._find(machine_id)
        if machine.ended_at is not None:
            raise ContractError(404, "machine_not_found", f"machine {machine_id} was terminated")
        return self.host.console(machine.hosted_as)

    def end(self, machine_id: str) -> dict[str, Any]:
        machine = self._find(machine_id)
        if machine.ended_at is not None:
            raise ContractError(404, "machine_not_found", f"machine {machine_id} was terminated")
        if self.scenario.take("terminate", FaultKind.REFUSE_TERMINATE):
            raise ContractError(409, "machine_busy", f"machine {machine_id} cannot be terminated right now")
        if machine.ending is None or machine.ending.done():
            machine.ending = asyncio.create_task(self._end(machine))
        return self._on_wire(machine)

    def evict(self, order: EvictionOrder) -> dict[str, Any]:
        """Announce that a spot machine is taken back, withdraw that, or take it."""
        machine = self._named(order.machine)
        if not machine.order.spot:
            raise ContractError(409, "not_spot", f"{order.machine!r} was bought on demand")
        withdrawn = order.state is EvictionState.WITHDRAWN
        machine.eviction = None if withdrawn else (order.state, self.now())
        if order.state is EvictionState.TAKEN:
            machine.ending = asyncio.create_task(self._end(machine))
        return self._on_wire(machine)

    async def fail_gpu(self, fault: GpuFault) -> dict[str, Any]:
        if not isinstance(self.host, ScriptsGpus):
            raise ContractError(409, "simulated", "the machines are simulated and have no GPUs")
        machine = self._named(fault.machine)
        if not isinstance(fault.step.get("at"), int | float):
            raise ContractError(400, "invalid_request", "a step names the seconds until it happens: `at`")
        await self.host.script_gpu(machine.hosted_as, fault.step)
        return self._on_wire(machine)

    def _named(self, name: str) -> _Machine:
        """The machine with this id, name or address that has not begun to end."""
        named = [each for each in self._known() if name in self._names(each)]
        if len(named) != 1 or named[0].ending is not None:
            raise ContractError(404, "machine_not_found", f"{len(named)} machines are {name!r}")
        return named[0]

    def _names(self, machine: _Machine) -> tuple[str | None, ...]:
        return (machine.id, machine.order.name, self._status(machine)[1])

    def alive(self, name: str) -> int:
        """How many machines under this name run or will run, listed or not."""
        return sum(each.order.name == name and each.ending is None for each in self._machines.values())

    def everything(self) -> list[dict[str, Any]]:
        """Every machine, also those that no list shows; for the scenario control."""
        return [self._on_wire(machine) | {"hidden": machine.hidden} for machine in self._known()]

    async def _end(self, machine: _Machine) -> None:
        await self.host.destroy(machine.hosted_as)
        machine.ended_at = self.now()
        self.scenario.put_back(machine.order.stock, machine.order.region)

    def _check(self, order: Order, kind: MachineType | None) -> None:
        if kind is None or order.region != REGION:
            raise ContractError(400, "unknown_type", f"no type {order.type!r} in region {order.region!r}")
        if order.spot:
            _check_price(order, kind)
        if not NAME_PATTERN.fullmatch(order.name):
            raise ContractError(
                400, "invalid_request", "a name consists of at most 63 letters, digits and dashes"
            )
        if len(order.user_data.encode()) > USER_DATA_BYTES_MAX:
            raise ContractError(
                400, "invalid_request", f"user data is longer than {USER_DATA_BYTES_MAX} bytes"
            )
        if sum(machine.ended_at is None for machine in self._machines.values()) >= MACHINES_MAX:
            raise ContractError(403, "quota_exceeded", f"the account holds {MACHINES_MAX} machines")

    def _known(self) -> list[_Machine]:
        """The machines that the cloud still knows; those terminated long enough ago are forgotten."""
        for machine in list(self._machines.values()):
            shown = TERMINATED_SHOWN if machine.eviction is None else EVICTED_SHOWN
            if machine.ended_at is not None and machine.ended_at < self.now() - shown:
                del self._machines[machine.id]
        return list(self._machines.values())

    def _listed(self, machine: _Machine) -> bool:
        lag = timedelta(seconds=self.scenario.list_lag_seconds)
        return not machine.hidden and self.now() - machine.created_at >= lag

    def _find(self, machine_id: str) -> _Machine:
        for machine in self._known():
            if machine.id == machine_id:
                return machine
        raise ContractError(404, "machine_not_found", f"no machine {machine_id}")

    def _status(self, machine: _Machine) -> tuple[Status, str | None]:
        """A machine's status, and its address while it has one."""
        if machine.ended_at is not None:
            return Status.TERMINATED, None
        if machine.ending is not None:
            return Status.TERMINATING, None
        hosted = self.host.machines().get(machine.hosted_as)
        waiting = self.now() - machine.created_at < timedelta(seconds=self.scenario.boot_delay_seconds)
        if hosted is None or hosted.state is HostedState.BOOTING or waiting:
            return Status.BOOTING, None
        if hosted.state is HostedState.FAILED:
            return Status.FAILED, None
        return Status.ACTIVE, hosted.address

    def _on_wire(self, machine: _Machine) -> dict[str, Any]:
        status, address = self._status(machine)
        return {
            "id": machine.id,
            "name": machine.order.name,
            "type": machine.order.type,
            "region": machine.order.region,
            "tags": machine.order.tags,
            "status": self.unknown_statuses.get(machine.id, status),
            "ip": address,
            "created_at": machine.created_at.isoformat(),
            "spot": machine.order.spot,
            "eviction": _eviction_on_wire(machine),
        }

    def _type_on_wire(self, kind: MachineType, usd_per_hour: str, *, spot: bool) -> dict[str, Any]:
        return {
            "name": kind.name,
            "region": REGION,
            "gpu": {"model": kind.model, "count": kind.gpus} if kind.gpus else None,
            "vcpus": kind.vcpus,
            "memory_gib": kind.memory_gib,
            "disk_gib": kind.disk_gib,
            "spot": spot,
            "usd_per_hour": usd_per_hour,
            "in_stock": self.scenario.in_stock(stock_name(kind.name, spot=spot), REGION),
        }


def _check_price(order: Order, kind: MachineType) -> None:
    if kind.spot_usd_per_hour is None:
        raise ContractError(400, "unknown_type", f"no spot type {order.type!r} in region {order.region!r}")
    if order.usd_per_hour_max is not None and order.usd_per_hour_max < Decimal(kind.spot_usd_per_hour):
        raise ContractError(409, "spot_price_too_low", f"{order.type} costs {kind.spot_usd_per_hour} as spot")


def _eviction_on_wire(machine: _Machine) -> dict[str, str] | None:
    if machine.eviction is None:
        return None
    state, at = machine.eviction
    return {"state": state, "at": at.isoformat()}


def _other_gpu(gpu: EmulatedGpu) -> EmulatedGpu:
    return A100 if gpu == L4 else L4


def _gpu_faults(cloud: LocalCloud) -> HTTPRouteHandler:
    @post("/__control/gpu_faults", opt={"open": True}, status_code=HTTP_202_ACCEPTED)
    async def fail_gpu(data: JSONBody[GpuFault]) -> dict[str, Any]:
        return {"machine": await cloud.fail_gpu(data)}

    return fail_gpu


def create_app(
    host: MachineHost, scenario: Scenario, *, now: Callable[[], datetime], token: str = TOKEN
) -> Litestar:
    """The cloud as an ASGI application. The caller owns `host` and closes it."""
    cloud = LocalCloud(host, scenario, now)

    @get("/types")
    async def types() -> dict[str, Any]:
        await scenario.arrive("offers")
        scenario.depart("offers")
        return {"types": cloud.types()}

    @post("/machines")
    async def launch(data: JSONBody[Order]) -> dict[str, Any]:
        await scenario.arrive("launch")
        machine = await cloud.buy(data)
        scenario.depart("launch")
        return {"machine": machine}

    @get("/machines")
    async def inventory(
        limit: FromQuery[int | None] = None, cursor: FromQuery[str | None] = None
    ) -> dict[str, Any]:
        return await _list(cloud, limit, cursor)

    @get("/machines/{machine_id:str}")
    async def get_machine(machine_id: FromPath[str]) -> dict[str, Any]:
        await scenario.arrive("get")
        return {"machine": cloud.get(machine_id)}

    @get("/machines/{machine_id:str}/console")
    async def console(machine_id: FromPath[str]) -> dict[str, Any]:
        await scenario.arrive("console")
        printed = cloud.console(machine_id)
        scenario.depart("console")
        return {"console": printed}

    @delete("/machines/{machine_id:str}", status_code=HTTP_202_ACCEPTED)
    async def terminate(machine_id: FromPath[str]) -> dict[str, Any]:
        await scenario.arrive("terminate")
        machine = cloud.end(machine_id)
        scenario.depart("terminate")
        return {"machine": machine}

    @post("/__control/evictions", opt={"open": True}, status_code=HTTP_202_ACCEPTED)
    async def evict(data: JSONBody[EvictionOrder]) -> dict[str, Any]:
        return {"machine": cloud.evict(data)}

    def authorised(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        given = connection.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise NotAuthorizedException("the token is not valid")

    api = Router(
        "/v1", route_handlers=[types, launch, inventory, get_machine, console, terminate], guards=[authorised]
    )
    return Litestar(
        [api, evict, _gpu_faults(cloud), *control_routes(scenario, cloud.everything)],
        middleware=[cut_connections],
        exception_handlers={
            ContractError: _refused,
            ScriptedFailure: _scripted,
            HTTPException: _http_error,
        },
        state=State({"cloud": cloud}),
        openapi_config=None,
        logging_config=None,
    )


async def _list(cloud: LocalCloud, limit: int | None, cursor: str | None) -> dict[str, Any]:
    scenario = cloud.scenario
    await scenario.arrive("inventory")
    if cursor == BROKEN_CURSOR:
        raise ScriptedFailure(FaultKind.PARTIAL_LIST)
    if not (cursor or "0").isdecimal():
        raise ContractError(400, "invalid_request", "the cursor is not valid")
    size = min(max(limit or PAGE_SIZE, 1), PAGE_SIZE)
    machines, more = cloud.page(int(cursor or 0), size)
    scenario.depart("inventory")
    if scenario.take("inventory", FaultKind.PARTIAL_LIST):
        return {"machines": machines[: len(machines) // 2], "next_cursor": BROKEN_CURSOR}
    return {"machines": machines, "next_cursor": None if more is None else str(more)}


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response[Any]:
    return Response({"error": {"code": code, "message": message}}, status_code=status, headers=headers)


def _refused(_: Request[Any, Any, Any], error: ContractError) -> Response[Any]:
    return _error(error.status, error.code, str(error))


def _scripted(_: Request[Any, Any, Any], failure: ScriptedFailure) -> Response[Any]:
    if failure.kind is FaultKind.THROTTLE:
        return _error(429, "too_many_requests", "slow down", {"Retry-After": "2"})
    return _error(500, "internal_error", "something broke on our side")


def _http_error(_: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    code = {401: "unauthorized", 404: "not_found", 405: "not_found"}.get(error.status_code, "invalid_request")
    return _error(error.status_code, code, error.detail)
