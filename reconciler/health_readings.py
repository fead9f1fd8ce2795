"""Turns what machines say about the state of their GPUs into readings that verdicts are made from."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from control_plane.db.samples import StoredSample
from control_plane.domain.gpu_faults import GpuReading, Reading, XidReading
from control_plane.domain.health import Source
from data_plane.documents import sample
from data_plane.documents.health import GpuHealth, Health, Xid
from data_plane.documents.sample import read_sample

_SECONDS_AGO_MAX = 365 * 86_400
"""An error that is older is as old as that. What a machine says its clock showed may be before the year 1."""


def of_look(document: Health, at: datetime) -> Reading:
    """What we read on a machine ourselves, at `at` by our clock.

    The machine's clock may be wrong: of its times only the differences to its own `at` count.
    """
    index_of = {gpu.bus_id: gpu.index for gpu in document.gpus if gpu.bus_id is not None}
    return Reading(
        at=at,
        source=Source.LOOK,
        gpus=tuple(_gpu(gpu) for gpu in document.gpus),
        xids=_xids(document.xids, index_of, document.at, at),
    )


def of_sample(stored: StoredSample) -> Reading:
    """What a machine's agent sent. Its times are corrected as far as its delivery showed how wrong its clock is."""
    read = read_sample(json.dumps(stored.document).encode())
    index_of = {gpu.bus_id: gpu.index for gpu in read.gpus if gpu.bus_id is not None}
    return Reading(
        at=stored.at,
        source=Source.SAMPLE,
        gpus=None if read.failure is not None else tuple(_measured(gpu) for gpu in read.gpus),
        xids=_xids(read.xids, index_of, read.at_ms // 1_000, stored.at),
    )


def _measured(gpu: sample.Gpu) -> GpuReading:
    return GpuReading(
        index=gpu.index,
        lost=gpu.lost,
        recovery_action=gpu.recovery_action,
        rows_failed=gpu.rows_failed,
        rows_pending=gpu.rows_pending,
        links=gpu.nvlinks,
        active_links=gpu.nvlinks_active,
        fabric=gpu.fabric_health,
        throttle=gpu.throttle_reasons,
        uuid=gpu.uuid,
        utilisation_percent=gpu.utilisation_percent,
        pcie_generation=gpu.pcie_generation,
        pcie_width=gpu.pcie_width,
    )


def _gpu(gpu: GpuHealth) -> GpuReading:
    return GpuReading(
        index=gpu.index,
        lost=gpu.lost,
        recovery_action=gpu.recovery.action,
        rows_failed=gpu.ecc.rows_failed,
        rows_pending=gpu.ecc.rows_pending,
        links=gpu.nvlink.links,
        active_links=gpu.nvlink.active,
        fabric=gpu.fabric.health,
        throttle=gpu.throttle.reasons,
        uuid=gpu.uuid,
        utilisation_percent=gpu.usage.utilisation_percent,
        pcie_generation=gpu.pcie.generation,
        pcie_width=gpu.pcie.width,
    )


def _xids(
    xids: Iterable[Xid | sample.Xid], index_of: Mapping[str, int], theirs: int, ours: datetime
) -> tuple[XidReading, ...]:
    return tuple(
        XidReading(
            number=xid.number,
            gpu=None if xid.bus_id is None else index_of.get(xid.bus_id),
            at=ours - timedelta(seconds=min(max(0, theirs - xid.at), _SECONDS_AGO_MAX)),
            of_switch=xid.kind == "sxid",
        )
        for xid in xids
    )
