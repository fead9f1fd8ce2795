"""Reads how cards are connected: PCIe, NVLink, and the closest common ancestor of every two cards."""

from collections.abc import Sequence
from itertools import combinations

from data_plane.documents.inventory import LINKS_MAX, Level, NvLink, PcieLink
from data_plane.documents.records import fitting
from data_plane.nvml.library import BINDINGS, Library, Lost, Unanswered

_LEVELS: "dict[int, Level]" = {
    BINDINGS.NVML_TOPOLOGY_INTERNAL: "internal",
    BINDINGS.NVML_TOPOLOGY_SINGLE: "single",
    BINDINGS.NVML_TOPOLOGY_MULTIPLE: "multiple",
    BINDINGS.NVML_TOPOLOGY_HOSTBRIDGE: "hostbridge",
    BINDINGS.NVML_TOPOLOGY_NODE: "node",
    BINDINGS.NVML_TOPOLOGY_SYSTEM: "system",
}
_REMOTES = {
    BINDINGS.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
    BINDINGS.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "npu",
    BINDINGS.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    BINDINGS.NVML_NVLINK_DEVICE_TYPE_UNKNOWN: "unknown",
}


def pcie(library: Library, handle: object) -> PcieLink:
    """The link to the host, its current and its best state. Raises nvml.Lost, as all functions here do."""
    return fitting(
        PcieLink,
        generation=library.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        width=library.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        generation_max=library.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        width_max=library.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
    )


def link_count(library: Library, handle: object) -> int:
    """How many NVLinks the card has, active or not; 0 if it does not say."""
    (count,) = library.fields(handle, [BINDINGS.NVML_FI_DEV_NVLINK_LINK_COUNT])
    return min(count or 0, LINKS_MAX)


def link_states(library: Library, handle: object, states: "Sequence[int | None]") -> "list[bool]":
    """Whether each link is active. `states` are the values of field 165, which drivers before R530 do not have."""
    up = []
    for link, state in enumerate(states):
        answer = library.ask("nvmlDeviceGetNvLinkState", handle, link) if state is None else state
        up.append(bool(answer))
    return up


def nvlinks(library: Library, handle: object) -> "tuple[NvLink, ...]":
    """Every NVLink in the order of their numbers, with the device at its other end."""
    links = range(link_count(library, handle))
    if not links:
        return ()
    kinds = (
        BINDINGS.NVML_FI_DEV_NVLINK_GET_STATE,
        BINDINGS.NVML_FI_DEV_NVLINK_GET_VERSION,
        BINDINGS.NVML_FI_DEV_NVLINK_GET_SPEED,
    )
    values = library.fields(handle, [(kind, link) for link in links for kind in kinds])
    states, versions, speeds = (values[kind :: len(kinds)] for kind in range(len(kinds)))
    active = link_states(library, handle, states)
    return tuple(
        _nvlink(library, handle, link, active=active[link], version=versions[link], speed=speeds[link])
        for link in links
    )


def _nvlink(
    library: Library, handle: object, link: int, *, active: bool, version: "int | None", speed: "int | None"
) -> NvLink:
    remote = library.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    pci = library.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
    return fitting(
        NvLink,
        link=link,
        active=active,
        version=version,
        speed_mbps=speed,
        remote=None if remote is None else _REMOTES.get(remote),
        remote_bus_id=None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
    )


def ancestors(library: Library, handles: "Sequence[object]") -> "tuple[tuple[Level | None, ...], ...]":
    """The closest common ancestor of every two cards. Raises nvml.Unanswered if a card was lost meanwhile."""
    size = range(len(handles))
    above: dict[tuple[int, int], Level | None] = {}
    for a, b in combinations(size, 2):
        library.about = f"GPU {a} or GPU {b}"
        try:
            level = library.ask("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
        except Lost:
            raise Unanswered("gpu_lost", f"{library.about} is lost") from None
        above[a, b] = _LEVELS.get(level)
    return tuple(tuple("self" if a == b else above[min(a, b), max(a, b)] for b in size) for a in size)
