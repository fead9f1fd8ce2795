"""Scenario control of an emulated cloud: its stock, delays and injected faults.

Every emulator has one Scenario and consults it at two points of each call:

    await scenario.arrive("launch")      # counts, waits; raises ScriptedFailure before any effect
    ... the effect ...
    scenario.depart("launch")            # raises ScriptedFailure or ConnectionCut after the effect

The verbs are the port's: offers, launch, inventory, terminate. Faults that a cloud expresses in its
own terms (`no_capacity`, `never_boots`, ...) are consumed where they take effect, with
`take(verb, kind)`. Tests change a scenario in Python, or over HTTP with `GET` and `POST /__control`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx
import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from litestar.status_codes import HTTP_200_OK
from litestar.types import ASGIApp, Receive, Scope, Send


class FaultKind(StrEnum):
    CUT_AFTER = "cut_after"
    """The effect happens, and the connection is cut before the answer."""
    ERROR_BEFORE = "error_before"
    """HTTP 500 before any effect."""
    ERROR_AFTER = "error_after"
    """HTTP 500 after the effect."""
    THROTTLE = "throttle"
    """HTTP 429 before any effect."""
    NO_CAPACITY = "no_capacity"
    SOLD_OUT_LATER = "sold_out_later"
    """The launch is accepted, and then there is no place for its machine."""
    NEVER_BOOTS = "never_boots"
    WRONG_GPU = "wrong_gpu"
    """The machine has a GPU other than the one that was sold."""
    PARTIAL_LIST = "partial_list"
    """The listing fails half-way."""
    REFUSE_TERMINATE = "refuse_terminate"
    HIDDEN = "hidden"
    """The machine that this launch creates is never listed."""


@dataclass
class Fault:
    """The next `times` calls of `verb` meet this fault."""

    verb: str
    kind: FaultKind
    times: int = 1


class ScriptedFailure(Exception):  # noqa: N818 - a scripted event of the emulator, not an error of ours
    """The emulator answers this call with 429 (for THROTTLE) or 500, in its own error envelope."""

    def __init__(self, kind: FaultKind) -> None:
        super().__init__(f"scripted: {kind}")
        self.kind = kind


class ConnectionCut(BaseException):
    """The answer is lost on its way. It is a BaseException, so that no framework turns it into a 500."""


@dataclass
class Scenario:
    stock: dict[tuple[str, str], int | None] = field(default_factory=dict[tuple[str, str], int | None])
    """Machines left by (native type, native region). Unlimited where the value is None or missing."""
    latency_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by verb, waited before anything happens."""
    boot_delay_seconds: float = 0.0
    """Seconds added to the boot time of the machine's host."""
    list_lag_seconds: float = 0.0
    """Seconds that a new machine is missing from the list."""
    faults: list[Fault] = field(default_factory=list[Fault])
    calls: Counter[str] = field(default_factory=Counter[str])
    """How many calls of each verb arrived, whatever their outcome."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def arrive(self, verb: str) -> None:
        """Count the call, wait, and raise a fault that is scripted to happen before any effect."""
        self.calls[verb] += 1
        if latency := self.latency_seconds.get(verb, 0.0):
            await self.sleep(latency)
        for kind in (FaultKind.THROTTLE, FaultKind.ERROR_BEFORE):
            if self.take(verb, kind):
                raise ScriptedFailure(kind)

    def depart(self, verb: str) -> None:
        """Raise a fault that is scripted to lose or replace the answer after the effect."""
        if self.take(verb, FaultKind.CUT_AFTER):
            raise ConnectionCut
        if self.take(verb, FaultKind.ERROR_AFTER):
            raise ScriptedFailure(FaultKind.ERROR_AFTER)

    def take(self, verb: str, kind: FaultKind) -> bool:
        """Consume one scripted fault of this kind; False if there is none."""
        for fault in self.faults:
            if fault.verb == verb and fault.kind is kind:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return True
        return False

    def add(self, verb: str, kind: FaultKind, times: int = 1) -> None:
        self.faults.append(Fault(verb, kind, times))

    def in_stock(self, native_type: str, native_region: str) -> bool:
        left = self.stock.get((native_type, native_region))
        return left is None or left > 0

    def sell(self, native_type: str, native_region: str) -> bool:
        """Take one machine out of stock; False when it is sold out or scripted to be refused."""
        if self.take("launch", FaultKind.NO_CAPACITY) or not self.in_stock(native_type, native_region):
            return False
        self._restock(native_type, native_region, -1)
        return True

    def put_back(self, native_type: str, native_region: str) -> None:
        self._restock(native_type, native_region, 1)

    def _restock(self, native_type: str, native_region: str, change: int) -> None:
        left = self.stock.get((native_type, native_region))
        if left is not None:
            self.stock[native_type, native_region] = left + change


class StockLine(msgspec.Struct, forbid_unknown_fields=True):
    native_type: str
    native_region: str
    left: int | None


class FaultLine(msgspec.Struct, forbid_unknown_fields=True):
    verb: str
    kind: FaultKind
    times: int = 1


class ScenarioChange(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /__control`. Fields that are present are set; faults are appended to those that wait."""

    stock: list[StockLine] = []
    latency_seconds: dict[str, float] | None = None
    boot_delay_seconds: float | None = None
    list_lag_seconds: float | None = None
    faults: list[FaultLine] = []
    clear: bool = False
    """Remove all waiting faults, delays, stock and counts first."""

    def apply_to(self, scenario: Scenario) -> None:
        if self.clear:
            _clear(scenario)
        for line in self.stock:
            scenario.stock[line.native_type, line.native_region] = line.left
        if self.latency_seconds is not None:
            scenario.latency_seconds = dict(self.latency_seconds)
        if self.boot_delay_seconds is not None:
            scenario.boot_delay_seconds = self.boot_delay_seconds
        if self.list_lag_seconds is not None:
            scenario.list_lag_seconds = self.list_lag_seconds
        scenario.faults.extend(Fault(line.verb, line.kind, line.times) for line in self.faults)


def _clear(scenario: Scenario) -> None:
    scenario.stock.clear()
    scenario.latency_seconds = {}
    scenario.boot_delay_seconds = 0.0
    scenario.list_lag_seconds = 0.0
    scenario.faults.clear()
    scenario.calls.clear()


def control_routes(
    scenario: Scenario, machines: Callable[[], list[dict[str, Any]]]
) -> list[HTTPRouteHandler]:
    """`GET` and `POST /__control` of an emulator. `machines` returns every machine, also those no list shows."""

    def document() -> dict[str, Any]:
        stock = [
            {"native_type": native_type, "native_region": native_region, "left": left}
            for (native_type, native_region), left in scenario.stock.items()
        ]
        return {
            "stock": stock,
            "latency_seconds": scenario.latency_seconds,
            "boot_delay_seconds": scenario.boot_delay_seconds,
            "list_lag_seconds": scenario.list_lag_seconds,
            "faults": [{"verb": f.verb, "kind": f.kind, "times": f.times} for f in scenario.faults],
            "calls": dict(scenario.calls),
            "machines": machines(),
        }

    @get("/__control", opt={"open": True})
    async def read_control() -> dict[str, Any]:
        return document()

    @post("/__control", opt={"open": True}, status_code=HTTP_200_OK)
    async def write_control(data: JSONBody[ScenarioChange]) -> dict[str, Any]:
        data.apply_to(scenario)
        return document()

    return [read_control, write_control]


def cut_connections(app: ASGIApp) -> ASGIApp:
    """Litestar middleware that turns a ConnectionCut into a cut connection.

    It begins an answer and never finishes it, so the server closes the socket. Without a beginning
    the server would send a 500 of its own, which would be an answer.
    """

    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except ConnectionCut:
            headers = [(b"content-length", b"1000000")]
            await send({"type": "http.response.start", "status": HTTP_200_OK, "headers": headers})
            raise

    return middleware


class EmulatorTransport(httpx.AsyncBaseTransport):
    """Connects an adapter to an emulator in this process; a ConnectionCut becomes httpx.ReadError."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await self._inner.handle_async_request(request)
        except ConnectionCut as cut:
            raise httpx.ReadError("the connection was cut", request=request) from cut

    async def aclose(self) -> None:
        await self._inner.aclose()
