"""Machines on paper: what the fake provider sold is what its machines show. For development without root.

Nothing here reaches out; a reading is marked `emulated` and proves nothing.
"""

from collections.abc import Callable, Sequence

from control_plane.domain.gpu import APPEARANCES
from control_plane.domain.sku import Shape
from data_plane.access.port import GpuReading, GpuReport, Target
from providers.fake import FakeProvider


def hardware(clouds: Sequence[FakeProvider]) -> Callable[[Target], GpuReport]:
    """What the machine at an address is, by the offer it was launched from."""
    known: dict[str, Shape] = {}

    def look(target: Target) -> GpuReport:
        if target.address not in known:
            for cloud in clouds:
                shapes = {(offer.native_type, offer.native_region): offer.shape for offer in cloud.listing}
                for machine in cloud.machines.values():
                    known[machine.address] = shapes[machine.order.native_type, machine.order.native_region]
        return report(known[target.address], target.address)

    return look


def report(shape: Shape, serial: str) -> GpuReport:
    """An honest machine of this shape; `serial` makes its cards' ids its own."""
    appearance = APPEARANCES[shape.gpu_model]
    name = min(appearance.nvml_names)
    gpus = tuple(
        GpuReading(index, name, f"GPU-{serial}-{index}", appearance.memory_mib[0])
        for index in range(shape.gpu_count)
    )
    return GpuReport(source="emulated", driver_version="570.124.06", gpus=gpus, agent_sha256="")
