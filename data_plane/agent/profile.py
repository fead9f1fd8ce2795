"""Reads how much of a card's units its work keeps busy (GPM), which Hopper and later cards measure by themselves.

A value is the mean between two samples of the driver's, so the first reading of a card has none. Older cards, older
drivers and divided cards have none at all. No daemon and no privilege is needed, other than for DCGM's profiling.
"""

from math import isnan
from typing import Any

from data_plane.documents.health import Profile
from data_plane.documents.records import fitting
from data_plane.nvml.library import BINDINGS, Library

_METRICS = {
    "graphics_active_bp": BINDINGS.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "tensor_active_bp": BINDINGS.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_bp": BINDINGS.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class Profiles:
    """Remembers the last sample of each card."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {}
        self._spare: dict[str, Any] = {}

    def read(self, library: Library, handle: object, uuid: "str | None") -> Profile:
        """Raises Lost."""
        if uuid is None:
            return Profile()
        support = library.ask("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return Profile()
        sample = self._spare.pop(uuid, None) or library.ask("nvmlGpmSampleAlloc")
        if sample is None or library.ask("nvmlGpmSampleGet", handle, sample) is None:
            self._spare[uuid] = sample
            return Profile()
        before = self._before.get(uuid)
        self._before[uuid] = sample
        if before is None:
            return Profile()
        self._spare[uuid] = before  # Two are enough for each card, and the driver keeps no list of them.
        return _between(library, before, sample)


def _between(library: Library, before: object, after: object) -> Profile:
    wanted = BINDINGS.c_nvmlGpmMetricsGet_t()
    wanted.version = BINDINGS.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(_METRICS)
    wanted.sample1, wanted.sample2 = before, after
    for place, number in enumerate(_METRICS.values()):
        wanted.metrics[place].metricId = number
    if library.ask("nvmlGpmMetricsGet", wanted) is None:
        return Profile()
    values = [wanted.metrics[place] for place in range(len(_METRICS))]
    return fitting(Profile, **dict(zip(_METRICS, map(_basis_points, values), strict=True)))


def _basis_points(metric: Any) -> "int | None":
    """Per cent as basis points. A card that did nothing at all may answer with no number."""
    percent = float(metric.value)
    if metric.nvmlReturn != BINDINGS.NVML_SUCCESS or isnan(percent):
        return None
    return round(percent * 100)
