"""Which faults a reading of a machine's GPUs shows, compared with what the GPUs had when the machine was accepted."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.health import FaultCode, Seen, Source
from control_plane.domain.xid import RecoveryClass, XidClass, meaning, recovery

XIDS_FORGOTTEN_AFTER = timedelta(days=1)
"""An error that a reading lists counts for as long."""
HARDWARE_THROTTLE = 8 | 64 | 128
"""NVML's bits for a slowdown by hardware, by hardware because of heat, and by a power brake."""
LOADED_PERCENT = 20
"""From which utilisation on a GPU's PCIe link is at its full speed."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What a reading says about one GPU. None where the driver does not say."""

    index: int
    lost: bool
    recovery_action: int | None = None
    """NVML field 230: see `xid.RECOVERIES`."""
    rows_failed: bool | None = None
    rows_pending: bool | None = None
    links: int | None = None
    active_links: int | None = None
    fabric: str | None = None
    throttle: int | None = None
    uuid: str | None = None
    utilisation_percent: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True)
class AcceptedGpu:
    """What a GPU had when its machine was accepted, as we read it then. None where it did not say."""

    uuid: str
    nvlinks: int | None
    """Those that were up."""
    pcie_generation: int | None
    """The highest that the driver says is possible: a GPU that waits for its first customer is idle. A virtual machine
    may never reach it, so what the GPU showed at work counts instead (`expected`)."""
    pcie_width: int | None


@dataclass(frozen=True, slots=True)
class ShownLink:
    """The fastest PCIe link that a GPU had at work."""

    uuid: str
    generation: int


@dataclass(frozen=True, slots=True)
class XidReading:
    number: int
    gpu: int | None
    """The GPU's index; None if it is not known, and for a switch."""
    at: datetime
    """By our clock."""
    of_switch: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a machine's GPUs at one moment, by the machine's own word."""

    at: datetime
    """By our clock."""
    source: Source
    gpus: tuple[GpuReading, ...] | None
    """None when the GPUs could not be read, which is no fault: it says nothing about them."""
    xids: tuple[XidReading, ...]


def links_shown(
    known: Collection[ShownLink], readings: Iterable[Reading], accepted: Collection[AcceptedGpu]
) -> tuple[ShownLink, ...]:
    """`known`, with what GPUs at work show in more readings. A GPU that was not accepted is left out, whatever the
    machine calls it.
    """
    ours = {gpu.uuid for gpu in accepted}
    fastest = {each.uuid: each.generation for each in known if each.uuid in ours}
    for gpu in (gpu for reading in readings for gpu in reading.gpus or ()):
        if gpu.uuid in ours and gpu.pcie_generation is not None and _is_loaded(gpu):
            fastest[gpu.uuid] = max(gpu.pcie_generation, fastest.get(gpu.uuid, 0))
    return tuple(ShownLink(uuid, generation) for uuid, generation in sorted(fastest.items()))


def slower_than_possible(readings: Collection[Reading], accepted: Collection[AcceptedGpu]) -> set[str]:
    """The GPUs at work with a slower PCIe link than the driver said is possible, by their UUIDs."""
    return {
        before.uuid
        for reading in readings
        for gpu in reading.gpus or ()
        for before in (_accepted(gpu, accepted),)
        if before is not None and _is_loaded(gpu) and _pcie_below(gpu, before)
    }


def expected(accepted: Collection[AcceptedGpu], shown: Collection[ShownLink]) -> tuple[AcceptedGpu, ...]:
    """What the GPUs should have: as accepted, with a link no faster than they showed at work.

    What a machine says it showed is a claim, but never counts for more than we read when it was accepted.
    """
    fastest = {each.uuid: each.generation for each in shown}
    return tuple(
        replace(
            gpu,
            pcie_generation=min(gpu.pcie_generation, fastest[gpu.uuid])
            if gpu.pcie_generation is not None and gpu.uuid in fastest
            else None,
        )
        for gpu in accepted
    )


def faults_seen(
    reading: Reading,
    gpus_sold: int,
    *,
    since: datetime | None = None,
    accepted: Collection[AcceptedGpu] = (),
) -> Iterator[Seen]:
    """The faults that a reading shows, compared with what each GPU had when the machine was accepted.

    Errors of the driver from before `since` are left out: they are cleared.
    """
    for gpu in reading.gpus or ():
        yield from _of_gpu(gpu, _accepted(gpu, accepted), reading.at)
    if reading.gpus is not None and len(reading.gpus) < gpus_sold:
        detail = f"{len(reading.gpus)} of {gpus_sold} GPUs are there"
        yield Seen(FaultCode.GPU_MISSING, None, reading.at, detail)
    oldest = (
        reading.at - XIDS_FORGOTTEN_AFTER if since is None else max(since, reading.at - XIDS_FORGOTTEN_AFTER)
    )
    for xid in reading.xids:
        means = meaning(xid.number, of_switch=xid.of_switch)
        code = OF_XIDS.get(means.of)
        if code is not None and xid.at > oldest:
            yield Seen(code, xid.gpu, xid.at, f"XID {xid.number}: {means.words}", xid.number)


def undecided(
    reading: Reading, accepted: Collection[AcceptedGpu]
) -> Iterator[tuple[FaultCode, int | None, int | None]]:
    """The keys of faults about which a reading says nothing: an idle GPU slows its PCIe link down."""
    for gpu in reading.gpus or ():
        if not _is_loaded(gpu) and _pcie_below(gpu, _accepted(gpu, accepted)):
            yield FaultCode.PCIE_REDUCED, gpu.index, None


def _accepted(gpu: GpuReading, accepted: Collection[AcceptedGpu]) -> AcceptedGpu | None:
    return next((each for each in accepted if each.uuid == gpu.uuid), None)


def _is_loaded(gpu: GpuReading) -> bool:
    return gpu.utilisation_percent is not None and gpu.utilisation_percent >= LOADED_PERCENT


def _pcie_below(gpu: GpuReading, accepted: AcceptedGpu | None) -> bool:
    if accepted is None:
        return False
    pairs = ((gpu.pcie_generation, accepted.pcie_generation), (gpu.pcie_width, accepted.pcie_width))
    return any(now is not None and before is not None and now < before for now, before in pairs)


def _link(generation: int | None, width: int | None) -> str:
    """As usual: `5.0 x16`."""
    return f"{'?' if generation is None else generation}.0 x{'?' if width is None else width}"


def _of_gpu(gpu: GpuReading, accepted: AcceptedGpu | None, at: datetime) -> Iterator[Seen]:
    def seen(code: FaultCode, detail: str) -> Seen:
        return Seen(code, gpu.index, at, f"GPU {gpu.index} {detail}")

    if gpu.lost:
        yield seen(FaultCode.GPU_LOST, "does not answer")
        return  # What it said before is old.
    needs = recovery(gpu.recovery_action or 0)
    asked = _OF_RECOVERIES.get(needs.of)
    if asked is not None:
        yield seen(asked, f"{needs.words} (recovery action {gpu.recovery_action})")
    if gpu.rows_failed:
        yield seen(FaultCode.MEMORY_BROKEN, "has a memory row that could not be remapped")
    if gpu.rows_pending:
        yield seen(FaultCode.MEMORY_REPAIR_PENDING, "has a memory row that the next reset remaps")
    for code, detail in _of_links(gpu, accepted):
        yield seen(code, detail)
    if gpu.fabric in ("unhealthy", "limited"):
        yield seen(FaultCode.FABRIC_UNHEALTHY, f"reports an NVLink fabric that is {gpu.fabric}")
    if gpu.throttle is not None and gpu.throttle & HARDWARE_THROTTLE:
        yield seen(FaultCode.HARDWARE_SLOWDOWN, "is slowed down by its hardware")


def _of_links(gpu: GpuReading, accepted: AcceptedGpu | None) -> Iterator[tuple[FaultCode, str]]:
    """The faults of its NVLinks and of its link to the host, as code and detail."""
    links = gpu.links if accepted is None or accepted.nvlinks is None else accepted.nvlinks
    if links is not None and gpu.active_links is not None and gpu.active_links < links:
        yield FaultCode.NVLINK_DOWN, f"has {gpu.active_links} of {links} NVLinks"
    if accepted is not None and _is_loaded(gpu) and _pcie_below(gpu, accepted):
        before = _link(accepted.pcie_generation, accepted.pcie_width)
        now = f"{_link(gpu.pcie_generation, gpu.pcie_width)} at {gpu.utilisation_percent} % use"
        yield FaultCode.PCIE_REDUCED, f"has PCIe {now}, and had {before} before"


OF_XIDS: Mapping[XidClass, FaultCode] = {
    XidClass.MACHINE_OUT: FaultCode.MACHINE_ERROR,
    XidClass.GPU_OUT: FaultCode.GPU_ERROR,
    XidClass.WEAR: FaultCode.MEMORY_WEARS,
    XidClass.IN_DOUBT: FaultCode.PROGRAM_ERRORS,
    XidClass.UNKNOWN: FaultCode.UNKNOWN_ERROR,
}
"""The fault that an error of each class is; the others are none."""
_OF_RECOVERIES: Mapping[RecoveryClass, FaultCode] = {
    RecoveryClass.OUT: FaultCode.RECOVERY_NEEDED,
    RecoveryClass.REDUCED: FaultCode.RESET_ADVISED,
    RecoveryClass.FABRIC: FaultCode.FABRIC_UNHEALTHY,
}
