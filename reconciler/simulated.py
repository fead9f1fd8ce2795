"""Simulated machines: each shows exactly what was ordered. For development without root.

Nothing here reaches out; a reading is marked `emulated` and proves nothing, and so is every answer of the prover.
"""

from uuid import NAMESPACE_OID, uuid5

from control_plane.db import machines
from control_plane.db.engine import Database
from control_plane.domain.gpu import APPEARANCES
from control_plane.domain.sku import Shape
from data_plane.access.fake import FakeAccess
from data_plane.access.port import GpuReading, GpuReport, Target
from data_plane.mesh.fake import FakeHub
from data_plane.proof.emulation.machine import Claim
from data_plane.proof.emulation.paper import paper
from data_plane.proof.port import Line


def access(db: Database, hub: FakeHub) -> FakeAccess:
    """A way into machines that are not there: what was ordered is looked up when one is first reached."""
    shapes: dict[str, Shape] = {}

    async def look_up(target: Target, _step: str) -> None:
        if target.host_key not in shapes:
            async with db.reading() as connection:
                model, count = await machines.ordered_as(connection, target.host_key)
            shapes[target.host_key] = Shape(model, count, vcpus=0, memory_gib=0, disk_gib=0)

    def look(target: Target) -> GpuReport:
        return report(shapes[target.host_key], target.address)

    def line(target: Target) -> Line:
        return prover(shapes[target.host_key], target.address)

    return FakeAccess(hardware=look, hub=hub, before=look_up, proving=line)


def report(shape: Shape, serial: str) -> GpuReport:
    """An honest machine of this shape; `serial` makes its cards' ids its own."""
    appearance = APPEARANCES[shape.gpu_model]
    name = min(appearance.nvml_names)
    gpus = tuple(
        GpuReading(index, name, f"GPU-{uuid5(NAMESPACE_OID, f'{serial} {index}')}", appearance.memory_mib[0])
        for index in range(shape.gpu_count)
    )
    return GpuReport(source="emulated", driver_version="570.124.06", gpus=gpus, agent_sha256="")


def prover(shape: Shape, serial: str) -> Line:
    """A line to an emulation of these cards. It says of itself that it is one."""
    claims = [Claim(gpu.name, gpu.uuid, gpu.memory_mib) for gpu in report(shape, serial).gpus]
    return paper(claims, source="emulated")
