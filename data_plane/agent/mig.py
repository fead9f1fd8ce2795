"""Reads a card's MIG mode, and its instances with their profiles and placements.

There are no utilisation counters for instances. Without root, NVML reports neither the profile id nor the placement.
"""

import re
from typing import Any

from data_plane.documents.inventory import INSTANCES_MAX, Mig, MigInstance, MigPlacement
from data_plane.documents.records import fitting
from data_plane.nvml.library import BINDINGS, Library

_PROFILE = re.compile(r" MIG ([0-9a-z.+-]+)$")  # `NVIDIA A100-SXM4-80GB MIG 3g.40gb`


def read(library: Library, handle: object) -> "Mig | None":
    """The card's MIG state; None if the card does not support MIG. Raises nvml.Lost."""
    mode = library.ask("nvmlDeviceGetMigMode", handle)
    if mode is None:
        return None
    return fitting(
        Mig,
        enabled=mode[0] == BINDINGS.NVML_DEVICE_MIG_ENABLE,
        pending=mode[1] == BINDINGS.NVML_DEVICE_MIG_ENABLE,
        instances_max=library.ask("nvmlDeviceGetMaxMigDeviceCount", handle),
        instances=tuple(
            _instance(library, handle, device, uuid)
            for device in devices(library, handle)
            if (uuid := library.ask("nvmlDeviceGetUUID", device))
            is not None  # None if it was destroyed meanwhile.
        ),
    )


def devices(library: Library, handle: object) -> "list[Any]":
    """The handles of the existing MIG devices. There may be empty slots between them."""
    slots = min(library.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, INSTANCES_MAX)
    handles = [library.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(slots)]
    return [one for one in handles if one is not None]


def _instance(library: Library, handle: object, device: object, uuid: str) -> MigInstance:
    number = library.ask("nvmlDeviceGetGpuInstanceId", device)
    attributes = library.ask("nvmlDeviceGetAttributes_v2", device)
    info = None if number is None else _info(library, handle, number)
    named = _PROFILE.search(library.ask("nvmlDeviceGetName", device) or "")
    return fitting(
        MigInstance,
        uuid=uuid,
        profile=None if named is None else named[1],
        gpu_instance_id=number,
        compute_instance_id=library.ask("nvmlDeviceGetComputeInstanceId", device),
        profile_id=None if info is None else info.profileId,
        placement=None if info is None else _placement(info),
        multiprocessors=None if attributes is None else attributes.multiprocessorCount,
        memory_mib=None if attributes is None else attributes.memorySizeMB,
    )


def _info(library: Library, handle: object, number: int) -> Any:
    instance = library.ask("nvmlDeviceGetGpuInstanceById", handle, number)
    return None if instance is None else library.ask("nvmlGpuInstanceGetInfo", instance)


def _placement(info: Any) -> MigPlacement:
    return fitting(MigPlacement, start=info.placement.start, size=info.placement.size)
