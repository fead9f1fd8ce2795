"""Reads the whole inventory: every card in the order of their indices, their links, and the hardware around them."""

from pathlib import Path

from data_plane.agent import host, mig, topology
from data_plane.documents.inventory import GPUS_MAX, Gpu, Inventory
from data_plane.documents.records import fitting
from data_plane.nvml import identity
from data_plane.nvml.library import Library, Lost, Unanswered


def read(library: Library, sysfs: Path = host.SYSFS) -> Inventory:
    """The inventory. Raises nvml.Unanswered, which names a lost card, if any card cannot be read."""
    count = int(library.must("nvmlDeviceGetCount"))
    if count > GPUS_MAX:
        raise Unanswered("bad_reading", f"{count} GPUs are more than {GPUS_MAX}")
    driver_version = str(library.must("nvmlSystemGetDriverVersion"))
    handles: list[object] = []
    gpus: list[Gpu] = []
    for index in range(count):
        library.about = f"GPU {index}"
        try:
            handles.append(library.must("nvmlDeviceGetHandleByIndex", index))
            gpus.append(_gpu(library, index, handles[-1], sysfs))
        except Lost:
            raise Unanswered("gpu_lost", f"{library.about} is lost") from None
    return Inventory(
        source=library.source,
        driver_version=driver_version,
        gpus=tuple(gpus),
        ancestors=topology.ancestors(library, handles),
        numa_nodes=host.numa_nodes(sysfs),
        nvmes=host.nvmes(sysfs),
        nics=host.nics(sysfs),
    )


def _gpu(library: Library, index: int, handle: object, sysfs: Path) -> Gpu:
    who = dict(identity.read(library, handle))
    bus_id = who["bus_id"]
    numa_node, local_cpus = host.locality(sysfs, bus_id if isinstance(bus_id, str) else None)
    return fitting(
        Gpu,
        index=index,
        **who,
        numa_node=numa_node,
        local_cpus=local_cpus,
        pcie=topology.pcie(library, handle),
        nvlinks=topology.nvlinks(library, handle),
        mig=mig.read(library, handle),
    )
