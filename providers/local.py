"""The local cloud of this repository (`python -m providers.emulators local`). The traps, before the code:

- Launch has no idempotency key and two machines may have one name. The launch key travels as name
  and as tag `sp-launch-key`; a lost launch is looked for in the list.
- The list comes in pages. A page that fails makes the whole list fail; so does a cursor that
  repeats, or a list that does not end.
- `active` precedes a ready sshd, and a machine that is still booting has no `ip`.
- DELETE answers 202 long before the machine is gone. A terminated machine stays listed for some
  seconds; deleting it again is 404, as if it had never been.
- 409 means two things: `out_of_stock` for a launch, `machine_busy` for a delete. Only the code tells.
"""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LaunchKey, ProviderRef, installation_of
from control_plane.domain.money import parse_usd
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    InstanceNotFound,
    LaunchOrder,
    ListedOffer,
    ListedState,
    NoCapacity,
    NotYet,
    OrderRefused,
    ProviderError,
    QuotaReached,
    Rejected,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.rest import Rest, decoded, decoded_or_none, retry_after_seconds, silence

NAME = "local"
KEY_TAG = "sp-launch-key"


@dataclass(frozen=True, slots=True)
class Settings:
    token: str = field(repr=False)
    url: str
    answer_seconds: float = 60.0
    """The guard's patience is shorter; this only keeps a forgotten socket from living for ever."""


CAPABILITIES = Capabilities(
    list_lag_seconds=5.0,
    boot_seconds_max=120.0,  # Two seconds alone, seven with six at once on two cores (measured).
    user_data_bytes_max=65_536,
    terminate_may_be_refused=True,
    billed_while_booting=False,
)

REGIONS = {"local-1": "eu-local-1"}
GPUS = {
    "H100-SXM-80": GpuModel.H100_SXM_80GB,
    "A100-SXM-80": GpuModel.A100_SXM_80GB,
    "L4-24": GpuModel.L4_24GB,
}
STATES = {
    "booting": ListedState.PROVISIONING,
    "active": ListedState.RUNNING,
    "failed": ListedState.FAILED,
    "terminating": ListedState.ENDING,
    "terminated": ListedState.GONE,
}
_LAUNCH_REFUSALS: dict[str, type[Rejected]] = {
    "out_of_stock": NoCapacity,
    "quota_exceeded": QuotaReached,
}
_PAGES_MAX = 200
_RETRY_AFTER_SECONDS = 5.0


class Gpu(msgspec.Struct):
    model: str
    count: int


class MachineType(msgspec.Struct):
    name: str
    region: str
    gpu: Gpu
    vcpus: int
    memory_gib: int
    disk_gib: int
    usd_per_hour: str
    in_stock: bool


class Machine(msgspec.Struct):
    id: str
    name: str
    status: str
    tags: dict[str, str]
    ip: str | None


class Types(msgspec.Struct):
    types: list[MachineType]


class OneMachine(msgspec.Struct):
    machine: Machine


class Machines(msgspec.Struct):
    machines: list[Machine]
    next_cursor: str | None
    """Required: an answer without it does not say whether the list is complete."""


class _Error(msgspec.Struct):
    code: str


class Failure(msgspec.Struct):
    error: _Error


class Local:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.url,
            headers={"Authorization": f"Bearer {settings.token}"},
            connect_seconds=settings.answer_seconds,
            answer_seconds=settings.answer_seconds,
            transport=transport,
        )

    async def offers(self) -> tuple[ListedOffer, ...]:
        listed = decoded("offers", await self._send("offers", "GET", "v1/types"), Types)
        try:
            return tuple(
                _offer(kind) for kind in listed.types if kind.gpu.model in GPUS and kind.region in REGIONS
            )
        except ValueError:
            raise Unavailable("offers: a price that is not an amount") from None

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        body = {
            "name": order.launch_key,
            "type": order.native_type,
            "region": order.native_region,
            "user_data": order.user_data,
            "tags": {KEY_TAG: order.launch_key},
        }
        response = await self._send("launch", "POST", "v1/machines", body)
        return ProviderRef(decoded("launch", response, OneMachine).machine.id)

    async def inventory(self) -> tuple[Sighting, ...]:
        machines: list[Machine] = []
        cursors: set[str] = set()
        path = "v1/machines"
        for _ in range(_PAGES_MAX):
            page = decoded("inventory", await self._send("inventory", "GET", path), Machines)
            machines.extend(page.machines)
            if page.next_cursor is None:
                return tuple(_sighting(each, key) for each in machines if (key := _launch_key(each)))
            if page.next_cursor in cursors:
                raise Unavailable("inventory: a cursor came twice, so the list has no end")
            cursors.add(page.next_cursor)
            path = f"v1/machines?cursor={quote(page.next_cursor, safe='')}"
        raise Unavailable(f"inventory: more than {_PAGES_MAX} pages")

    async def terminate(self, provider_ref: ProviderRef) -> None:
        # Quoted whole: a reference that is not of this cloud must not lead to another path.
        path = f"v1/machines/{quote(provider_ref, safe='')}"
        decoded("terminate", await self._send("terminate", "DELETE", path), OneMachine)

    async def close(self) -> None:
        await self._rest.close()

    async def _send(self, verb: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request; answers a 2xx, raises what anything else means for this verb."""
        response = await self._rest.send(verb, method, path, body)
        if not response.is_success:
            raise _meaning(verb, response)
        return response


def _meaning(verb: str, response: httpx.Response) -> ProviderError:
    status = response.status_code
    failure = decoded_or_none(response, Failure)
    code = failure.error.code if failure else None
    if status == 429:
        wait = retry_after_seconds(response, otherwise=_RETRY_AFTER_SECONDS)
        return Throttled(f"{verb}: too many requests", retry_after_seconds=wait)
    if status >= 500 or status == 408 or code is None:
        return silence(verb, f"HTTP {status}{f', {code}' if code else ''}")
    text = f"{verb}: {code[:60]}"
    if status == 401:
        return Unauthorized(text)
    if verb == "launch":
        return _LAUNCH_REFUSALS.get(code, OrderRefused)(text)
    if verb == "terminate":
        return InstanceNotFound(text) if code == "machine_not_found" else NotYet(text)
    return Unavailable(text)


def _offer(kind: MachineType) -> ListedOffer:
    return ListedOffer(
        native_type=kind.name,
        region=REGIONS[kind.region],
        native_region=kind.region,
        shape=Shape(GPUS[kind.gpu.model], kind.gpu.count, kind.vcpus, kind.memory_gib, kind.disk_gib),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=parse_usd(kind.usd_per_hour),
        available=kind.in_stock,
        confidence=Confidence.LIVE,
    )


def _sighting(machine: Machine, key: LaunchKey) -> Sighting:
    return Sighting(
        ProviderRef(machine.id),
        key,
        STATES.get(machine.status, ListedState.UNKNOWN),
        native_status=machine.status,
        address=machine.ip or None,
    )


def _launch_key(machine: Machine) -> LaunchKey | None:
    """Our mark: the tag, or the name where somebody removed the tag."""
    marks = (machine.tags.get(KEY_TAG, ""), machine.name)
    return next((LaunchKey(mark) for mark in marks if installation_of(mark)), None)


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Local:
    return Local(settings, transport=transport)
