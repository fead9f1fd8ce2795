"""What Verda sells: its regions, its types of machines with GPUs, and their prices. See the traps in `verda.py`."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec

from control_plane.domain.sku import CapacityShape, Shape
from providers.base import Confidence, LeftOut, LeftOutFor, Listed, ListedOffer
from providers.gpu_names import gpu_named
from providers.listings import UnreadableAnswer, offered_price

REGIONS = {"FIN-01": "eu-fin-01", "FIN-02": "eu-fin-02", "FIN-03": "eu-fin-03", "ICE-01": "is-ice-01"}
"""Verda's location codes to our regions, whose first two letters are the jurisdiction. Others are left out."""

OS_VOLUME_TYPE = "NVMe"
_HOURS_PER_MONTH = 730


class Gpus(msgspec.Struct):
    number_of_gpus: int
    description: str = ""


class Cores(msgspec.Struct):
    number_of_cores: int


class Memory(msgspec.Struct):
    size_in_gigabytes: Decimal


class InstanceType(msgspec.Struct):
    instance_type: str
    price_per_hour: Decimal
    currency: str
    cpu: Cores
    gpu: Gpus
    memory: Memory
    supported_os: list[str]


class Availability(msgspec.Struct):
    location_code: str
    availabilities: list[str]


class VolumePrice(msgspec.Struct):
    price_per_month_per_gb: Decimal
    currency: str


class VolumeType(msgspec.Struct):
    type: str
    price: VolumePrice


def offered(
    types: Sequence[InstanceType],
    usd_per_gb: Decimal,
    listed: Sequence[Availability],
    *,
    image: str,
    gb: int,
) -> Iterator[Listed]:
    """What is sold with this image, and with a volume of so many GB for it, whose price is in the offer's."""
    available = {(each.location_code, name) for each in listed for name in each.availabilities}
    for each in types:
        shape = _shape(each, image, gb)
        if shape is None:
            continue
        if isinstance(shape, LeftOut):
            yield shape
            continue
        for location, region in REGIONS.items():
            yield ListedOffer(
                native_type=each.instance_type,
                region=region,
                native_region=location,
                shape=shape,
                capacity=CapacityShape.VM,
                cost_nano_per_hour=offered_price(each.price_per_hour + usd_per_gb * gb),
                available=(location, each.instance_type) in available,
                confidence=Confidence.LIVE,
            )


def _shape(kind: InstanceType, image: str, gb: int) -> Shape | LeftOut | None:
    """None for a type without GPUs, or one that does not support our image."""
    count = kind.gpu.number_of_gpus
    if count < 1 or image not in kind.supported_os:
        return None
    name = kind.gpu.description.removeprefix(f"{count}x ")
    model = gpu_named(name)
    if model is None:
        return LeftOut(LeftOutFor.UNKNOWN_GPU, name)
    if kind.currency != "usd":
        return LeftOut(LeftOutFor.NO_PRICE, kind.instance_type)
    memory = int(kind.memory.size_in_gigabytes)
    return Shape(model, count, kind.cpu.number_of_cores, memory, disk_gib=gb)


def usd_per_gb_hour(listed: list[VolumeType]) -> Decimal:
    for each in listed:
        if each.type == OS_VOLUME_TYPE and each.price.currency == "usd":
            return each.price.price_per_month_per_gb / _HOURS_PER_MONTH
    raise UnreadableAnswer("there is no price for the volume of an operating system")
