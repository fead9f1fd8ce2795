"""Simulated machines for development without root. Each reports exactly what was ordered.

Nothing here uses a network but `ingest`. Readings and the prover's answers are marked `emulated` and prove nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from uuid import NAMESPACE_OID, uuid5

from control_plane.db import machines
from control_plane.db.engine import Database
from control_plane.domain.gpu import APPEARANCES
from control_plane.domain.sku import Shape
from data_plane.access.line import Line
from data_plane.access.port import Target
from data_plane.documents.inventory import Gpu, Inventory
from data_plane.documents.sample_delivery import ANSWER_BYTES_MAX, PATH, Delivery, encode_delivery
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.proof.prover.emulation.machine import Claim
from data_plane.simulation.access import FakeAccess
from data_plane.simulation.hub import FakeHub
from data_plane.simulation.prover import simulated_prover
from reconciler.server_hosts import SERVER_PRINCIPAL

_SECONDS = 5


def access(db: Database, hub: FakeHub) -> FakeAccess:
    """Access to simulated machines. What was ordered is looked up when a machine is first reached."""
    shapes: dict[str, Shape] = {}

    async def look_up(target: Target, _step: str) -> None:
        if (
            target.host_key not in shapes and target.principal != SERVER_PRINCIPAL
        ):  # A host of ours has no GPUs.
            async with db.reading() as connection:
                model, count = await machines.ordered_as(connection, target.host_key)
            shapes[target.host_key] = Shape(model, count, vcpus=0, memory_gib=0, disk_gib=0)

    def look(target: Target) -> Inventory:
        return report(shapes[target.host_key], target.address)

    def line(target: Target) -> Line:
        return prover(shapes[target.host_key], target.address)

    return FakeAccess(hardware=look, hub=hub, before=look_up, proving=line)


def capacity(db: Database) -> Callable[[Target], Awaitable[Mapping[str, str]]]:
    """What an honest machine tells its cluster: what was bought."""

    async def look_up(target: Target) -> Mapping[str, str]:
        async with db.reading() as connection:
            vcpus, memory_gib = await machines.bought_as(connection, target.host_key)
        return {"cpu": str(vcpus), "memory": f"{memory_gib}Gi", "pods": "110"}

    return look_up


def report(shape: Shape, serial: str) -> Inventory:
    """The reading of an honest machine of this shape. `serial` makes the ids of its cards unique."""
    if shape.gpu_model is None:
        return Inventory(source="emulated", driver_version="", gpus=())
    appearance = APPEARANCES[shape.gpu_model]
    name = min(appearance.nvml_names)
    gpus = tuple(
        Gpu(
            index=index,
            name=name,
            uuid=f"GPU-{uuid5(NAMESPACE_OID, f'{serial} {index}')}",
            memory_total_mib=appearance.memory_mib[0],
            sharing="none",
            pci_device_id=None,
            compute_capability=None,
        )
        for index in range(shape.gpu_count)
    )
    return Inventory(source="emulated", driver_version="570.124.06", gpus=gpus)


def prover(shape: Shape, serial: str) -> Line:
    """A line to an emulated prover of these cards, which says that it is an emulation."""
    claims = [Claim(gpu.name, gpu.uuid, gpu.memory_total_mib) for gpu in report(shape, serial).gpus]
    return simulated_prover(claims)


def ingest(place: IngestPlace | None) -> Callable[[str, Delivery], Awaitable[object]] | None:
    """Delivers what simulated machines sample to the ingest process at this place, as their agents would.

    One that is away misses these samples.
    """
    if place is None:
        return None

    async def deliver(credential: str, delivery: Delivery) -> None:
        with suppress(OSError, HTTPException):
            await asyncio.to_thread(_post, place, credential, delivery)

    return deliver


def _post(place: IngestPlace, credential: str, delivery: Delivery) -> None:
    with closing(HTTPConnection(place.host, place.port, timeout=_SECONDS)) as line:
        headers = {"Authorization": f"Bearer {credential}", "Content-Encoding": "gzip"}
        line.request("POST", PATH, encode_delivery(delivery), headers)
        line.getresponse().read(ANSWER_BYTES_MAX)
