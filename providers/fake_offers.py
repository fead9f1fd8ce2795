"""What the fake provider sells, unless it is told otherwise."""

from dataclasses import replace

from control_plane.domain.gpu import GpuModel
from control_plane.domain.money import Nano, parse_usd
from control_plane.domain.sku import CapacityShape, Shape
from providers.base import Confidence, ListedOffer


def an_offer(model: GpuModel, count: int, region: str, *, usd_per_gpu_hour: str) -> ListedOffer:
    """An offer of the fake: its native type is named like `h100-sxm-80gb.8`, its native regions are our names."""
    return ListedOffer(
        native_type=f"{model}.{count}",
        region=region,
        native_region=region,
        shape=Shape(model, count, vcpus=26 * count, memory_gib=200 * count, disk_gib=1_000 * count),
        capacity=CapacityShape.VM,
        cost_nano_per_hour=Nano(parse_usd(usd_per_gpu_hour) * count),
        available=True,
        confidence=Confidence.LIVE,
    )


def a_cpu_offer(vcpus: int, region: str, *, usd_per_hour: str) -> ListedOffer:
    """An offer without GPUs, with 4 GiB of memory for each vCPU: its native type is named like `cpu.16`."""
    offer = an_offer(GpuModel.L4_24GB, 1, region, usd_per_gpu_hour=usd_per_hour)
    return replace(offer, native_type=f"cpu.{vcpus}", shape=Shape(None, 0, vcpus, 4 * vcpus, 100))


DEFAULT_OFFERS = tuple(
    an_offer(model, count, region, usd_per_gpu_hour=price)
    for region in ("us-east-1", "eu-central-1")
    for model, count, price in (
        (GpuModel.H100_SXM_80GB, 1, "2.19"),
        (GpuModel.H100_SXM_80GB, 8, "2.09"),
        (GpuModel.A100_SXM_80GB, 1, "1.29"),
        (GpuModel.A100_SXM_80GB, 8, "1.19"),
        (GpuModel.L40S_48GB, 1, "0.79"),
        (GpuModel.L4_24GB, 1, "0.49"),
    )
) + tuple(a_cpu_offer(16, region, usd_per_hour="0.30") for region in ("us-east-1", "eu-central-1"))


def a_spot_offer(offer: ListedOffer, *, usd_per_gpu_hour: str) -> ListedOffer:
    """The same machine as spot capacity, which is taken back two minutes after its notice."""
    cost = Nano(parse_usd(usd_per_gpu_hour) * max(1, offer.shape.gpu_count))
    return replace(offer, spot=True, eviction_notice_seconds=120, cost_nano_per_hour=cost)
