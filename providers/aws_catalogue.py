"""What AWS sells: its regions, its types of machines with GPUs, and their prices. See the traps in `aws.py`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from control_plane.domain.gpu import GpuModel
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import Confidence, ListedOffer, Verb
from providers.error_law import Meaning, error_for
from providers.gpu_names import gpu_with_memory
from providers.listings import UNREADABLE_PRICE, UnreadableAnswer, offered_price

REGIONS = {
    "us-east-1": "us-east-1",
    "us-east-2": "us-east-2",
    "us-west-1": "us-west-1",
    "us-west-2": "us-west-2",
    "ca-central-1": "ca-central-1",
    "ca-west-1": "ca-west-1",
    "sa-east-1": "br-sa-east-1",
    "eu-central-1": "eu-central-1",
    "eu-central-2": "ch-eu-central-2",
    "eu-north-1": "eu-north-1",
    "eu-south-1": "eu-south-1",
    "eu-south-2": "eu-south-2",
    "eu-west-1": "eu-west-1",
    "eu-west-2": "gb-eu-west-2",
    "eu-west-3": "eu-west-3",
    "ap-northeast-1": "jp-ap-northeast-1",
    "ap-northeast-2": "kr-ap-northeast-2",
    "ap-northeast-3": "jp-ap-northeast-3",
    "ap-south-1": "in-ap-south-1",
    "ap-south-2": "in-ap-south-2",
    "ap-southeast-1": "sg-ap-southeast-1",
    "ap-southeast-2": "au-ap-southeast-2",
    "ap-southeast-3": "id-ap-southeast-3",
    "ap-southeast-4": "au-ap-southeast-4",
    "af-south-1": "za-af-south-1",
    "il-central-1": "il-central-1",
    "me-central-1": "ae-me-central-1",
    "me-south-1": "bh-me-south-1",
}
"""AWS's names of regions to ours, whose first two letters are the jurisdiction. Others cannot be set."""

FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "g6", "gr6", "g6e")
"""The families of types that we sell."""

ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-[0-9])[a-z]")
"""A zone of a region; local zones have longer names, no GPUs of these families, and other prices."""


VOLUME_TYPE = "gp3"
HOURS_PER_MONTH = 730
USD_PER_ADDRESS_HOUR = Decimal("0.005")
"""A public IPv4 address that is in use; the same in every region (aws.amazon.com/vpc/pricing, since 2024-02-01)."""


class PriceDimension(msgspec.Struct, rename="camel"):
    unit: str
    price_per_unit: dict[str, Decimal]


class Price(msgspec.Struct, rename="camel"):
    price_dimensions: dict[str, PriceDimension]


class Terms(msgspec.Struct, rename="pascal"):
    on_demand: dict[str, Price] = {}


class Attributes(msgspec.Struct, rename="camel"):
    instance_type: str = ""
    """Empty for what is no machine."""


class ProductDetail(msgspec.Struct):
    attributes: Attributes


class Product(msgspec.Struct):
    product: ProductDetail
    terms: Terms


def region_of(zone: str) -> str:
    """The region of a zone, which is what a machine's `native_region` is.

    >>> region_of("us-east-1a")
    'us-east-1'
    """
    match = ZONE.fullmatch(zone)
    if match is None or match.group(1) not in REGIONS:
        raise error_for(Verb.LAUNCH, Meaning.REFUSED, "not an availability zone of a region that we know")
    return match.group(1)


def is_sold(kind: Mapping[str, Any]) -> bool:
    on_demand = "on-demand" in kind["SupportedUsageClasses"]
    x86 = "x86_64" in kind["ProcessorInfo"]["SupportedArchitectures"]
    return on_demand and x86 and gpu_of(kind) is not None


def gpu_of(kind: Mapping[str, Any]) -> tuple[GpuModel, int] | None:
    """The model and the number of a type's GPUs; None unless they are whole cards of one model that we know."""
    gpus = kind.get("GpuInfo", {}).get("Gpus", [])
    if len(gpus) != 1 or gpus[0]["Manufacturer"] != "NVIDIA" or gpus[0]["Count"] < 1:
        return None
    name, memory = gpus[0]["Name"], gpus[0]["MemoryInfo"]["SizeInMiB"]
    # Where a GPU has both, these families have the boards with SXM.
    model = gpu_with_memory(f"{name} SXM", memory) or gpu_with_memory(name, memory)
    return None if model is None else (model, gpus[0]["Count"])


def offer(
    kind: Mapping[str, Any],
    zone: str,
    disk_gib: int,
    usd_per_hour: Decimal | None,
    usd_beside: Decimal | None,
) -> ListedOffer:
    """An offer of a type in a zone, at its price with what AWS bills beside it, which is part of it.

    While a machine is stopped, AWS bills that at most: it keeps the volume, and takes the address back.
    """
    gpu = gpu_of(kind)
    if gpu is None:
        raise UnreadableAnswer("a type without GPUs is no offer")
    model, count = gpu
    memory_gib = kind["MemoryInfo"]["SizeInMiB"] // 1_024
    return ListedOffer(
        native_type=kind["InstanceType"],
        region=REGIONS[region_of(zone)],
        native_region=zone,
        shape=Shape(model, count, kind["VCpuInfo"]["DefaultVCpus"], memory_gib, disk_gib=disk_gib),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=UNREADABLE_PRICE if usd_per_hour is None else offered_price(usd_per_hour),
        available=True,
        confidence=Confidence.STATIC,
        network_gbps=_network_gbps(kind),
        ephemeral_gib=_ephemeral_gib(kind),
        stopped_cost_nano_per_hour=None if usd_beside is None else offered_price(usd_beside),
    )


def _network_gbps(kind: Mapping[str, Any]) -> int | None:
    """What the default network card of a type always carries, in Gbit/s; None below one, and where AWS does not say.

    Machines are ordered with one interface, on that card. The 3,200 Gbit/s that AWS advertises for `p5.48xlarge` are of
    32 cards with EFA, which we do not order
    (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_NetworkCardInfo.html, 2026-11-23).
    """
    network = kind.get("NetworkInfo", {})
    default = network.get("DefaultNetworkCardIndex", 0)
    for card in network.get("NetworkCards", []):
        if card["NetworkCardIndex"] == default:
            return int(card.get("BaselineBandwidthInGbps", 0)) or None
    return None


def _ephemeral_gib(kind: Mapping[str, Any]) -> int | None:
    """The local disks of a type, which AWS states in GB."""
    total_gb = kind.get("InstanceStorageInfo", {}).get("TotalSizeInGB")
    return None if total_gb is None else total_gb * 10**9 // 2**30


def on_demand_in(region: str) -> list[dict[str, str]]:
    """The filters that leave one price of each type with GPUs. That all our families are of this instance family in the
    price list is not documented; a type that is not has no price, and is left out.
    """
    wanted = {
        "regionCode": region,
        "instanceFamily": "GPU instance",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    return [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]


def volumes_in(region: str) -> list[dict[str, str]]:
    """The filters that leave the price of a volume of the kind that machines boot from."""
    wanted = {"regionCode": region, "productFamily": "Storage", "volumeApiName": VOLUME_TYPE}
    return [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]


def usd_per_gib_hour(volumes: Iterable[Product]) -> Decimal | None:
    """What a GiB of a volume of VOLUME_TYPE costs for an hour. None without one price."""
    found = {price for product in volumes for price in _prices(product.terms, "GB-Mo")}
    return found.pop() / HOURS_PER_MONTH if len(found) == 1 else None


def usd_per_hour_beside(per_gib_hour: Decimal | None, disk_gib: int) -> Decimal | None:
    """What a machine costs beside its own price: its root volume and its public address. None without a price."""
    return None if per_gib_hour is None else per_gib_hour * disk_gib + USD_PER_ADDRESS_HOUR


def with_what_is_beside(usd: Decimal | None, beside: Decimal | None) -> Decimal | None:
    """A machine with its root volume and its address; None where one of their prices is not known."""
    return None if usd is None or beside is None else usd + beside


def products(listed: Iterable[str]) -> list[Product]:
    return [msgspec.json.decode(each, type=Product) for each in listed]


def single_prices(products: Iterable[Product]) -> Mapping[str, Decimal | None]:
    prices: defaultdict[str, set[Decimal]] = defaultdict(set)
    for product in products:
        prices[product.product.attributes.instance_type].update(_prices(product.terms, "Hrs"))
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in prices.items()}


def _prices(terms: Terms, unit: str) -> Iterable[Decimal]:
    """The prices of a unit. One of zero stands for what is paid in another way, and is no price."""
    dimensions = (each for price in terms.on_demand.values() for each in price.price_dimensions.values())
    usd = (each.price_per_unit.get("USD", Decimal(0)) for each in dimensions if each.unit == unit)
    return [price for price in usd if price > 0]
