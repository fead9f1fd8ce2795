"""Reads a card's health, group by group: one function for each group, with as few calls into NVML as possible.

Related fields are read in one call. The periods are those that are usual in GPU telemetry. The costs have not been
measured yet (simple getters probably take tens to hundreds of microseconds); therefore every reading is timed, and
its cost is part of the document.
"""

from collections.abc import Callable, Mapping, Sequence
from ctypes import byref
from typing import Any

from data_plane.agent import mig, topology
from data_plane.documents.health import (
    Ecc,
    Fabric,
    Group,
    MigHealth,
    NvLinkHealth,
    PcieHealth,
    Power,
    Recovery,
    Throttle,
    Usage,
)
from data_plane.documents.records import fitting
from data_plane.nvml.library import BINDINGS, Library, processes

_FABRIC_STATES = {
    BINDINGS.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED: "not_supported",
    BINDINGS.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not_started",
    BINDINGS.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in_progress",
    BINDINGS.NVML_GPU_FABRIC_STATE_COMPLETED: "completed",
}
_FABRIC_HEALTH = ("not_supported", "healthy", "unhealthy", "limited")
"""By NVML_GPU_FABRIC_HEALTH_SUMMARY_*."""


def usage(library: Library, handle: object) -> Usage:
    """The list of processes is the most expensive call of all groups."""
    reserved = None
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle, BINDINGS.nvmlMemory_v2)
    if memory is None:
        memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    else:
        reserved = int(memory.reserved) >> 20
    rates = library.ask("nvmlDeviceGetUtilizationRates", handle)
    return fitting(
        Usage,
        memory_total_mib=None if memory is None else int(memory.total) >> 20,
        memory_used_mib=None if memory is None else int(memory.used) >> 20,
        memory_free_mib=None if memory is None else int(memory.free) >> 20,
        utilisation_percent=None if rates is None else rates.gpu,
        memory_utilisation_percent=None if rates is None else rates.memory,
        compute_processes=processes(library, handle, "Compute"),
        graphics_processes=processes(library, handle, "Graphics"),
        memory_reserved_mib=reserved,
        encoder_percent=_first(library.ask("nvmlDeviceGetEncoderUtilization", handle)),
        decoder_percent=_first(library.ask("nvmlDeviceGetDecoderUtilization", handle)),
    )


def _first(answer: "Sequence[int] | None") -> "int | None":
    """Of a value with its sampling period."""
    return None if answer is None else answer[0]


def power(library: Library, handle: object) -> Power:
    instant, energy, memory_temperature = library.fields(
        handle,
        [
            BINDINGS.NVML_FI_DEV_POWER_INSTANT,
            BINDINGS.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            BINDINGS.NVML_FI_DEV_MEMORY_TEMP,
        ],
    )
    return fitting(
        Power,
        sm_mhz=library.ask("nvmlDeviceGetClockInfo", handle, BINDINGS.NVML_CLOCK_SM),
        memory_mhz=library.ask("nvmlDeviceGetClockInfo", handle, BINDINGS.NVML_CLOCK_MEM),
        power_mw=library.ask("nvmlDeviceGetPowerUsage", handle),
        power_instant_mw=instant,
        power_limit_mw=library.ask("nvmlDeviceGetEnforcedPowerLimit", handle),
        energy_mj=energy,
        temperature_c=library.ask("nvmlDeviceGetTemperature", handle, BINDINGS.NVML_TEMPERATURE_GPU),
        memory_temperature_c=memory_temperature,
    )


_THROTTLE = {
    "power_ns": BINDINGS.NVML_FI_DEV_PERF_POLICY_POWER,
    "thermal_ns": BINDINGS.NVML_FI_DEV_PERF_POLICY_THERMAL,
    "sync_boost_ns": BINDINGS.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
    "board_limit_ns": BINDINGS.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
    "reliability_ns": BINDINGS.NVML_FI_DEV_PERF_POLICY_RELIABILITY,
    # Older drivers had other ids (251 to 253), which mean power smoothing today. They are never read.
    "software_thermal_ns": BINDINGS.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    "hardware_thermal_ns": BINDINGS.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    "power_brake_ns": BINDINGS.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
}


def throttle(library: Library, handle: object) -> Throttle:
    reasons = library.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # Its name before R535.
        reasons = library.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    counted = dict(zip(_THROTTLE, library.fields(handle, list(_THROTTLE.values())), strict=True))
    return fitting(Throttle, reasons=reasons, **counted)


def recovery(library: Library, handle: object) -> Recovery:
    (action,) = library.fields(handle, [BINDINGS.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return fitting(Recovery, action=action)


_ECC = {
    "enabled": BINDINGS.NVML_FI_DEV_ECC_CURRENT,
    "corrected_volatile": BINDINGS.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    "uncorrected_volatile": BINDINGS.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    "corrected_aggregate": BINDINGS.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    "uncorrected_aggregate": BINDINGS.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    "rows_remapped_corrected": BINDINGS.NVML_FI_DEV_REMAPPED_COR,
    "rows_remapped_uncorrected": BINDINGS.NVML_FI_DEV_REMAPPED_UNC,
    "rows_pending": BINDINGS.NVML_FI_DEV_REMAPPED_PENDING,
    "rows_failed": BINDINGS.NVML_FI_DEV_REMAPPED_FAILURE,
    "pages_retired_corrected": BINDINGS.NVML_FI_DEV_RETIRED_SBE,
    "pages_retired_uncorrected": BINDINGS.NVML_FI_DEV_RETIRED_DBE,
    "pages_pending": BINDINGS.NVML_FI_DEV_RETIRED_PENDING,
}
_TRUTHS = ("enabled", "rows_pending", "rows_failed", "pages_pending")


def ecc(library: Library, handle: object) -> Ecc:
    values: dict[str, Any] = dict(zip(_ECC, library.fields(handle, list(_ECC.values())), strict=True))
    for key in _TRUTHS:
        values[key] = None if values[key] is None else values[key] != 0
    return fitting(Ecc, **values)


_PCIE = {
    "replays": BINDINGS.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    "correctable": BINDINGS.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS,
    "non_fatal": BINDINGS.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR,
    "fatal": BINDINGS.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR,
    "sent_bytes": BINDINGS.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    "received_bytes": BINDINGS.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
}


def pcie(library: Library, handle: object) -> PcieHealth:
    counted = dict(zip(_PCIE, library.fields(handle, list(_PCIE.values())), strict=True))
    return fitting(
        PcieHealth,
        generation=library.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        width=library.ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        width_max=library.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        generation_max=library.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        **counted,
    )


_ALL_LINKS = 0xFFFFFFFF
"""As the scope of a field: the sum over the links."""
_NVLINK = {
    "crc_flit_errors": BINDINGS.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    "crc_data_errors": BINDINGS.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    "replays": BINDINGS.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    "recoveries": BINDINGS.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    "sent_kib": (BINDINGS.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "received_kib": (BINDINGS.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}


def nvlink(library: Library, handle: object) -> NvLinkHealth:
    """Reads the number of links, and then everything about all links: two calls in total."""
    links = range(topology.link_count(library, handle))
    if not links:
        return NvLinkHealth()
    per_link = (
        BINDINGS.NVML_FI_DEV_NVLINK_GET_STATE,
        BINDINGS.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
        BINDINGS.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
    )
    values = library.fields(
        handle, [*_NVLINK.values(), *((kind, link) for kind in per_link for link in links)]
    )
    totals, rest = values[: len(_NVLINK)], values[len(_NVLINK) :]
    states, failed, symbols = (rest[start : start + len(links)] for start in range(0, len(rest), len(links)))
    return fitting(
        NvLinkHealth,
        links=len(links),
        active=sum(topology.link_states(library, handle, states)),
        recoveries_failed=_sum(failed),
        symbol_errors=_sum(symbols),
        **dict(zip(_NVLINK, totals, strict=True)),
    )


def _sum(values: "list[int | None]") -> "int | None":
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def fabric(library: Library, handle: object) -> Fabric:
    for structure in (BINDINGS.c_nvmlGpuFabricInfo_v3_t, BINDINGS.c_nvmlGpuFabricInfo_v2_t):
        info = structure()
        if library.ask("nvmlDeviceGetGpuFabricInfoV", handle, byref(info)) is not None:
            # Version 2 of the structure has no `healthSummary`.
            summary = int(getattr(info, "healthSummary", len(_FABRIC_HEALTH)))
            return fitting(
                Fabric,
                state=_FABRIC_STATES.get(info.state),
                status=info.status,
                health_mask=info.healthMask,
                health=_FABRIC_HEALTH[summary] if summary < len(_FABRIC_HEALTH) else None,
            )
    return Fabric()


def mig_mode(library: Library, handle: object) -> MigHealth:
    mode = library.ask("nvmlDeviceGetMigMode", handle)
    if mode is None:
        return MigHealth()
    return fitting(
        MigHealth,
        enabled=mode[0] == BINDINGS.NVML_DEVICE_MIG_ENABLE,
        pending=mode[1] == BINDINGS.NVML_DEVICE_MIG_ENABLE,
        instances=len(mig.devices(library, handle)),
    )


READERS: "Mapping[Group, Callable[[Library, object], object]]" = {
    "usage": usage,
    "power": power,
    "throttle": throttle,
    "recovery": recovery,
    "ecc": ecc,
    "pcie": pcie,
    "nvlink": nvlink,
    "fabric": fabric,
    "mig": mig_mode,
}
"""How each group of one card is read. `profile` needs its reading before (`profile.py`), and `identity` is the list of
cards itself (`monitor.py`)."""
