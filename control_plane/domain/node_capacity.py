"""What a node says it has, against what the provider sold.

A node reports its own capacity, and the scheduler believes it. A node that claims GPUs it does not have would attract
workloads, so a claim beyond what was sold is a reason for quarantine, and less than was sold is a broken delivery.

Disk ends nothing. Providers list the smallest disk of a machine type and deliver larger ones, so a larger disk is no
lie, and a claim of one attracts only pods of the project that the node serves. A smaller one may be a broken delivery,
or a machine with other disks that its kubelet does not use, so operators read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CPU_EXCESS_PERCENT = 0
MEMORY_EXCESS_PERCENT = 5
"""Providers sell in GB or GiB, and round."""
MEMORY_SHORTFALL_PERCENT = 15
"""What the kernel and the firmware keep, with the same rounding."""
DISK_SHORTFALL_PERCENT = 15
"""GB for GiB, and what the file system keeps."""
PODS_MAX = 110
"""Pods for which a kubelet has room unless it is told otherwise, which no node of ours is
(https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/, maxPods, 2026-11-23)."""
DEVICES_NAMED_MAX = 8
"""A node can claim thousands of devices, with long names."""
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Capacity:
    cpu_millis: int
    memory_bytes: int
    """With what is set aside as huge pages."""
    devices: Mapping[str, int]
    """Extended resources by name, such as `nvidia.com/gpu`. Those of 0 may be left out."""
    pods: int = PODS_MAX


class Finding(StrEnum):
    FITS = "fits"
    SHORT = "short"
    """Less than was sold: it is not admitted, and nobody pays for it."""
    EXCESS = "excess"
    """More than was sold: quarantine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    finding: Finding
    reasons: tuple[str, ...]
    """Sentences for people; empty when it fits."""


def judge_capacity(sold: Capacity, claimed: Capacity) -> Verdict:
    """An excess weighs more than a shortfall: who lies about one figure is not believed in another."""
    excess = [*_excess_of_devices(sold, claimed), *_excess_of_machine(sold, claimed)]
    short = _shortfall(sold, claimed)
    finding = Finding.EXCESS if excess else Finding.SHORT if short else Finding.FITS
    return Verdict(finding, tuple(excess + short))


def disk_shortfall(sold_gib: int, claimed_bytes: int) -> str | None:
    """What operators read of a node whose pods get less disk than its SKU has; None if they do not, or if unknown."""
    if not claimed_bytes or claimed_bytes * 100 >= sold_gib * 2**30 * (100 - DISK_SHORTFALL_PERCENT):
        return None
    return f"its pods have {claimed_bytes // 2**30:,} GiB of disk, of {sold_gib:,} that were sold"


def _excess_of_devices(sold: Capacity, claimed: Capacity) -> list[str]:
    names = sorted(name for name, count in claimed.devices.items() if count > sold.devices.get(name, 0))
    reasons = [
        f"claims {claimed.devices[name]} {name}, {sold.devices.get(name, 0)} were sold"
        for name in names[:DEVICES_NAMED_MAX]
    ]
    more = len(names) - len(reasons)
    return [*reasons, f"claims {more} more devices that were not sold"] if more else reasons


def _excess_of_machine(sold: Capacity, claimed: Capacity) -> list[str]:
    reasons = []
    if claimed.cpu_millis * 100 > sold.cpu_millis * (100 + CPU_EXCESS_PERCENT):
        reasons.append(f"claims {claimed.cpu_millis}m of CPU, {sold.cpu_millis}m were sold")
    if claimed.memory_bytes * 100 > sold.memory_bytes * (100 + MEMORY_EXCESS_PERCENT):
        reasons.append(f"claims {claimed.memory_bytes} bytes of memory, {sold.memory_bytes} were sold")
    if claimed.pods > sold.pods:
        reasons.append(f"claims room for {claimed.pods} pods, a node has room for {sold.pods}")
    return reasons


def _shortfall(sold: Capacity, claimed: Capacity) -> list[str]:
    reasons = [
        f"has {claimed.devices.get(name, 0)} {name}, {count} were sold"
        for name, count in sorted(sold.devices.items())
        if claimed.devices.get(name, 0) < count
    ]
    if claimed.cpu_millis < sold.cpu_millis:
        reasons.append(f"has {claimed.cpu_millis}m of CPU, {sold.cpu_millis}m were sold")
    if claimed.memory_bytes * 100 < sold.memory_bytes * (100 - MEMORY_SHORTFALL_PERCENT):
        reasons.append(f"has {claimed.memory_bytes} bytes of memory, {sold.memory_bytes} were sold")
    return reasons
