"""The local cloud of this repository (`python -m providers.emulators local`). Its traps:

- A launch has no idempotency key, and two machines may have the same name. The launch key travels
  as the name and as the tag `sp-launch-key`; a lost launch is looked for in the list.
- The list comes in pages.
- A machine is `active` before its sshd answers, and has no `ip` while it boots.
- DELETE answers 202 long before the machine is gone. A terminated machine stays listed for some
  seconds; deleting it again answers 404, like a machine that never existed.
- A type may be listed a second time, as spot. A spot machine says itself that it is taken back, before and afterwards.
- 409 is `out_of_stock` for a launch and `machine_busy` for a delete; only the code distinguishes them.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal

import httpx
import msgspec

from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import ProviderRef
from control_plane.domain.money import usd
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import (
    Capabilities,
    Confidence,
    Eviction,
    EvictionState,
    LaunchOrder,
    LeftOut,
    LeftOutFor,
    Listed,
    ListedOffer,
    ListedState,
    Page,
    Sighting,
    Verb,
)
from providers.error_law import ErrorDetail, Meaning, rules_by_code
from providers.listings import LAUNCH_KEY_TAG, offered_price, ours, reference_of, sighting, whole_listing
from providers.rest import ErrorContract, Rest, detail_from, ignored
from providers.signing import bearer

NAME = "local"


@dataclass(frozen=True, slots=True)
class Settings:
    token: str = field(repr=False)
    url: str


CAPABILITIES = Capabilities(
    list_lag_seconds=5.0,
    boot_seconds_max=120.0,  # Measured on two cores: 2 s for one machine, 7 s for six at once.
    user_data_bytes_max=65_536,
    terminate_may_be_refused=True,
    billed_while_booting=False,
    console=True,
    sells_spot=True,
)

NOTICE_SECONDS = 120
REGIONS = {"local-1": "eu-local-1"}
GPUS = {
    "H100-SXM-80": GpuModel.H100_SXM_80GB,
    "A100-SXM-80": GpuModel.A100_SXM_80GB,
    "L4-24": GpuModel.L4_24GB,
}
STATES = {
    "booting": ListedState.PROVISIONING,
    "active": ListedState.RUNNING,
    "failed": ListedState.OFF_OR_FAILED,
    "terminating": ListedState.ENDING,
    "terminated": ListedState.GONE,
}


class Gpu(msgspec.Struct):
    model: str
    count: int


class MachineType(msgspec.Struct):
    name: str
    region: str
    gpu: Gpu | None
    """Null for a machine without GPUs."""
    vcpus: int
    memory_gib: int
    disk_gib: int
    spot: bool
    usd_per_hour: Decimal
    in_stock: bool


class TakenBack(msgspec.Struct):
    state: Literal["announced", "taken"]
    at: datetime


class Machine(msgspec.Struct):
    id: str
    name: str
    type: str
    status: str
    tags: dict[str, str]
    ip: str | None
    eviction: TakenBack | None


class Printed(msgspec.Struct):
    console: str


class Types(msgspec.Struct):
    types: list[MachineType]


class OneMachine(msgspec.Struct):
    machine: Machine


class Machines(msgspec.Struct):
    machines: list[Machine]
    next_cursor: str | None
    """Required: without it an answer does not say whether the list is complete."""


class _Error(msgspec.Struct):
    code: str
    message: str = ""


class Failure(msgspec.Struct):
    error: _Error


ERRORS = ErrorContract(
    detail_from(Failure, lambda failure: ErrorDetail(failure.error.code, failure.error.message)),
    rules_by_code(
        {
            "out_of_stock": Meaning.NO_CAPACITY,
            "spot_price_too_low": Meaning.NO_CAPACITY,
            "quota_exceeded": Meaning.QUOTA_REACHED,
            "machine_not_found": Meaning.NOT_FOUND,
            "machine_busy": Meaning.BUSY,
        }
    ),
)


class Local:
    capabilities = CAPABILITIES

    def __init__(self, settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._rest = Rest(
            settings.url,
            sign=bearer(settings.token),
            errors=ERRORS,
            capabilities=CAPABILITIES,
            transport=transport,
        )

    async def offers(self) -> tuple[Listed, ...]:
        return await self._rest.call(Verb.OFFERS, "GET", "v1/types", Types, _offers)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        body = {
            "name": order.launch_key,
            "type": order.native_type,
            "region": order.native_region,
            "user_data": order.user_data,
            "tags": {LAUNCH_KEY_TAG: order.launch_key},
            **_as_spot(order),
        }
        return await self._rest.call(
            Verb.LAUNCH, "POST", "v1/machines", OneMachine, _reference, body=body, private=order.user_data
        )

    async def inventory(self) -> tuple[Sighting, ...]:
        return await whole_listing(Verb.INVENTORY, self.inventory_page)

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        query = {"cursor": cursor}
        return await self._rest.call(Verb.INVENTORY, "GET", "v1/machines", Machines, _page, query=query)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        path = ("v1/machines", provider_ref)
        await self._rest.call(Verb.TERMINATE, "DELETE", path, OneMachine, ignored)

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str:  # noqa: ARG002 - it is there at once
        path = ("v1/machines", provider_ref, "console")
        return await self._rest.call(Verb.CONSOLE, "GET", path, Printed, lambda answer: answer.console)

    async def close(self) -> None:
        await self._rest.close()


def _offers(listed: Types) -> tuple[Listed, ...]:
    return tuple(_offer(kind) for kind in listed.types)


def _offer(kind: MachineType) -> Listed:
    if kind.gpu is not None and kind.gpu.model not in GPUS:
        return LeftOut(LeftOutFor.UNKNOWN_GPU, kind.gpu.model)
    if kind.region not in REGIONS:
        return LeftOut(LeftOutFor.UNKNOWN_REGION, kind.region)
    return ListedOffer(
        native_type=kind.name,
        region=REGIONS[kind.region],
        native_region=kind.region,
        shape=_shape(kind),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=offered_price(kind.usd_per_hour),
        available=kind.in_stock,
        confidence=Confidence.LIVE,
        spot=kind.spot,
        eviction_notice_seconds=NOTICE_SECONDS if kind.spot else None,
    )


def _as_spot(order: LaunchOrder) -> dict[str, object]:
    """What an order says beyond one on demand."""
    if not order.spot:
        return {}
    most = order.cost_nano_per_hour_max
    return {"spot": True, "usd_per_hour_max": None if most is None else usd(most)}


def _page(page: Machines) -> Page[Sighting]:
    return Page(ours(_sighting(each) for each in page.machines), page.next_cursor)


def _sighting(machine: Machine) -> Sighting | None:
    keys = (machine.tags.get(LAUNCH_KEY_TAG), machine.name)
    found = sighting(machine.id, keys, machine.status, STATES, address=machine.ip, native_type=machine.type)
    if found is None or machine.eviction is None:
        return found
    told = machine.eviction
    return replace(found, eviction=Eviction(EvictionState(told.state), told.at, f"eviction {told.state}"))


def _reference(answer: OneMachine) -> ProviderRef:
    return reference_of(answer.machine.id)


def connect(settings: Settings, *, transport: httpx.AsyncBaseTransport | None = None) -> Local:
    return Local(settings, transport=transport)


def _shape(kind: MachineType) -> Shape:
    model, count = (None, 0) if kind.gpu is None else (GPUS[kind.gpu.model], kind.gpu.count)
    return Shape(model, count, kind.vcpus, kind.memory_gib, kind.disk_gib)
