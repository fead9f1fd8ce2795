"""What Vast sells: the asks that keep our laws, in the countries where we sell. See the traps in `vast.py`."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from control_plane.domain.gpu import GpuModel
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import Confidence, LeftOut, LeftOutFor, Listed, ListedOffer
from providers.gpu_names import gpu_with_memory
from providers.listings import offered_price

RELIABILITY_MIN = Decimal("0.98")
DAYS_LEFT_MIN = 30
SEARCH_LIMIT = 1_000
"""No maximum is documented. The cheapest offers come first."""
DATA_CENTER = 1
"""The `hosting_type` of an offer of a data center (Vast's command line)."""

_EU = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"
_OTHERS = "AE AU BR CA CH CL GB IL IN IS JP KR MX MY NO NZ SG TH TW US ZA"
REGIONS = {country: f"eu-{country.lower()}" for country in _EU.split()} | {
    country: country.lower() for country in _OTHERS.split()
}
"""Country codes to our regions, whose first two letters are the jurisdiction. Offers elsewhere are left out."""

SXM_ALONE = frozenset({"H200", "B200"})
"""Names of Vast's that are the board with SXM; a card without it has another name."""


class Ask(msgspec.Struct):
    id: int
    gpu_name: str
    gpu_ram: Decimal
    num_gpus: int
    dph_total: Decimal
    cpu_ram: Decimal
    host_id: int | None = None
    cpu_cores: Decimal | None = None
    cpu_cores_effective: Decimal | None = None
    cpu_arch: str | None = None
    geolocation: str | None = None
    duration: Decimal | None = None
    reliability: Decimal | None = None
    verification: str | None = None
    hosting_type: int | None = None
    direct_port_count: int | None = None
    static_ip: bool | None = None
    vms_enabled: bool | None = None
    rentable: bool | None = None
    is_bid: bool | None = None


class Asks(msgspec.Struct):
    offers: list[Ask]


def search(disk_gib: int) -> dict[str, Any]:
    """What is searched for. The default kind of offer is on demand."""
    wanted: dict[str, Any] = {
        "verified": {"eq": True},
        "datacenter": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "vms_enabled": {"eq": True},
        "static_ip": {"eq": True},
        "direct_port_count": {"gte": 1},
        "reliability": {"gte": float(RELIABILITY_MIN)},
        "duration": {"gte": DAYS_LEFT_MIN * 86_400},
        "disk_space": {"gte": disk_gib},
        "cpu_arch": {"eq": "amd64"},
        "gpu_arch": {"eq": "nvidia"},
    }
    order = [["dph_total", "asc"], ["id", "asc"]]
    return {**wanted, "allocated_storage": disk_gib, "order": order, "limit": SEARCH_LIMIT}


def offers(listed: Asks, disk_gib: int) -> Iterator[Listed]:
    for ask in listed.offers:
        if not _sold(ask):
            continue
        country = (ask.geolocation or "").rpartition(",")[2].strip()
        model = _model(ask)
        if model is None:
            yield LeftOut(LeftOutFor.UNKNOWN_GPU, f"{ask.gpu_name} {ask.gpu_ram:.0f} MiB")
        elif country not in REGIONS:
            yield LeftOut(LeftOutFor.UNKNOWN_REGION, ask.geolocation or "nowhere")
        else:
            yield _offer(ask, model, country, disk_gib)


def _sold(ask: Ask) -> bool:
    """Whether a machine can be bought there that keeps our laws."""
    promised = (
        ask.vms_enabled
        and ask.static_ip
        and ask.rentable
        and not ask.is_bid
        and ask.verification == "verified"
        and ask.hosting_type == DATA_CENTER
        and ask.cpu_arch == "amd64"
    )
    return bool(
        promised
        and ask.host_id is not None
        and ask.num_gpus > 0
        and ask.cpu_cores
        and ask.cpu_cores_effective
        and (ask.direct_port_count or 0) >= 1
        and (ask.reliability or 0) >= RELIABILITY_MIN
        and (ask.duration or 0) >= DAYS_LEFT_MIN * 86_400
    )


def _model(ask: Ask) -> GpuModel | None:
    board = " SXM" if ask.gpu_name in SXM_ALONE else ""
    return gpu_with_memory(f"{ask.gpu_name}{board}", int(ask.gpu_ram))


def _offer(ask: Ask, model: GpuModel, country: str, disk_gib: int) -> ListedOffer:
    cores = ask.cpu_cores_effective or Decimal(0)
    memory_gib = int(ask.cpu_ram * cores / (ask.cpu_cores or cores) / 1024)
    return ListedOffer(
        native_type=str(ask.id),
        region=REGIONS[country],
        native_region=country,
        shape=Shape(model, ask.num_gpus, int(cores), memory_gib, disk_gib=disk_gib),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=offered_price(ask.dph_total),
        available=True,
        confidence=Confidence.LIVE,
        # Not the machine, whose number changes when its host installs it anew.
        supplier=str(ask.host_id),
    )
