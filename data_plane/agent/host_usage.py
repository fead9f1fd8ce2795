"""Reads how busy the host is, from the kernel's /proc and /sys.

Every file may be missing, unreadable or malformed. A value that cannot be read is None, and nothing here raises.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from data_plane.documents.records import fitting
from data_plane.documents.sample import (
    DISKS_MAX,
    FILESYSTEMS_MAX,
    NICS_MAX,
    Disk,
    Filesystem,
    Host,
    Nic,
    Pressure,
)
from data_plane.documents.strict import Malformed

_FILE_BYTES_MAX = 256 * 1024
_SECTOR_BYTES = 512  # The unit of /proc/diskstats, whatever the device's own block size is.
_ON_DISKS = ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "xfs", "zfs")
"""Others are in memory, or on a network: asking these for their size may hang."""
_WHOLE = re.compile("-?[0-9]{1,20}")


@dataclass(frozen=True)
class _Times:
    """Of all CPUs since the system started, in ticks."""

    whole: int
    idle: int
    wait: int
    steal: int


@dataclass(frozen=True)
class _Requests:
    """Of a disk since the system started."""

    reads: int
    read_ms: int
    writes: int
    write_ms: int


@dataclass
class HostUsage:
    """Each call of `read` tells about the time since the previous call."""

    root: Path = Path("/")
    size: "Callable[[str], os.statvfs_result]" = os.statvfs
    _times: "_Times | None" = None
    _requests: "dict[str, _Requests]" = field(default_factory=dict)

    def read(self) -> Host:
        memory = _named_numbers(self._text("proc/meminfo"))
        counted = _named_numbers(self._text("proc/vmstat"))
        before, self._times = self._times, _times(self._text("proc/stat"))
        return fitting(
            Host,
            cpus=len(re.findall(r"^cpu[0-9]+ ", self._text("proc/stat"), re.MULTILINE)) or None,
            **_shares(before, self._times),
            load_1m_hundredths=_hundredths(self._text("proc/loadavg").partition(" ")[0]),
            memory_total_mib=_mib(memory.get("MemTotal")),
            memory_available_mib=_mib(memory.get("MemAvailable")),
            swap_total_mib=_mib(memory.get("SwapTotal")),
            swap_free_mib=_mib(memory.get("SwapFree")),
            swapped_in_pages=counted.get("pswpin"),
            oom_kills=counted.get("oom_kill"),
            processes=self._processes(),
            pressure=self._pressure(),
            disks=tuple(self._disks())[:DISKS_MAX],
            filesystems=tuple(self._filesystems())[:FILESYSTEMS_MAX],
            nics=tuple(self._nics())[:NICS_MAX],
        )

    def _processes(self) -> "int | None":
        return sum(name.isdecimal() for name in _names(self.root / "proc")) or None

    def _pressure(self) -> Pressure:
        kinds = {kind: self._text(f"proc/pressure/{kind}") for kind in ("cpu", "memory", "io")}
        return fitting(
            Pressure,
            cpu_some_bp=_stalled(kinds["cpu"], "some"),
            memory_some_bp=_stalled(kinds["memory"], "some"),
            memory_full_bp=_stalled(kinds["memory"], "full"),
            io_some_bp=_stalled(kinds["io"], "some"),
            io_full_bp=_stalled(kinds["io"], "full"),
        )

    def _disks(self) -> "Iterator[Disk]":
        """Hardware only: what is made of other disks would count twice."""
        before, self._requests = self._requests, {}
        for line in self._text("proc/diskstats").splitlines():
            words = line.split()
            if len(words) < 14 or not all(_WHOLE.fullmatch(word) for word in words[3:14]):
                continue
            name, numbers = words[2], [int(word) for word in words[3:14]]
            if not (self.root / "sys/block" / name / "device").exists():
                continue
            now = _Requests(reads=numbers[0], read_ms=numbers[3], writes=numbers[4], write_ms=numbers[7])
            self._requests[name] = now
            then = before.get(name, now)
            try:
                yield fitting(
                    Disk,
                    name=name,
                    read_bytes=numbers[2] * _SECTOR_BYTES,
                    written_bytes=numbers[6] * _SECTOR_BYTES,
                    busy_ms=numbers[9],
                    read_us=_mean_us(now.read_ms - then.read_ms, now.reads - then.reads),
                    write_us=_mean_us(now.write_ms - then.write_ms, now.writes - then.writes),
                )
            except Malformed:  # The name of a device that no disk has.
                continue

    def _filesystems(self) -> "Iterator[Filesystem]":
        seen: set[str] = set()
        for line in self._text("proc/self/mountinfo").splitlines():
            before, _, after = line.partition(" - ")
            words, kind = before.split(), after.partition(" ")[0]
            # Sandboxes and containers mount the same device many times.
            if len(words) < 5 or kind not in _ON_DISKS or words[2] in seen:
                continue
            if (kind == "overlay" and words[4] != "/") or "\\" in words[
                4
            ]:  # A name that the kernel had to escape.
                continue
            seen.add(words[2])
            try:
                room = self.size(words[4])
                yield fitting(
                    Filesystem,
                    mount=words[4],
                    size_mib=room.f_blocks * room.f_frsize >> 20,
                    used_mib=(room.f_blocks - room.f_bfree) * room.f_frsize >> 20,
                    files_used_bp=_share(room.f_files - room.f_ffree, room.f_files),
                )
            except (OSError, Malformed):
                continue

    def _nics(self) -> "Iterator[Nic]":
        """Hardware, and what the default route leads to, which in a container is no hardware."""
        folder = self.root / "sys/class/net"
        default = _default_device(self._text("proc/net/route"))
        for name in sorted(_names(folder)):
            if name != default and not (folder / name / "device").exists():
                continue
            count = {key: self._number(f"sys/class/net/{name}/statistics/{key}") for key in _NIC_COUNTERS}
            state = self._text(f"sys/class/net/{name}/operstate").strip()
            try:
                yield fitting(
                    Nic,
                    name=name,
                    up={"up": True, "down": False}.get(state),
                    received_bytes=count["rx_bytes"],
                    sent_bytes=count["tx_bytes"],
                    received_dropped=count["rx_dropped"],
                    sent_dropped=count["tx_dropped"],
                    received_errors=count["rx_errors"],
                    sent_errors=count["tx_errors"],
                )
            except Malformed:
                continue

    def _text(self, path: str) -> str:
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_FILE_BYTES_MAX).decode("ascii", "replace")
        except OSError:
            return ""

    def _number(self, path: str) -> "int | None":
        text = self._text(path).strip()
        return int(text) if _WHOLE.fullmatch(text) else None


_NIC_COUNTERS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")


def _names(folder: Path) -> "list[str]":
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _named_numbers(text: str) -> "dict[str, int]":
    """`name value` or `name: value kB`, a line each."""
    found = re.findall(r"^([A-Za-z0-9_()]{1,64}):?\s+([0-9]{1,19})(?:\s|$)", text, re.MULTILINE)
    return {name: int(value) for name, value in found}


def _times(text: str) -> "_Times | None":
    words = text.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu" or not all(_WHOLE.fullmatch(word) for word in words[1:9]):
        return None
    ticks = [int(word) for word in words[1:9]]  # What guests get is part of the first two.
    return _Times(whole=sum(ticks), idle=ticks[3], wait=ticks[4], steal=ticks[7])


def _shares(before: "_Times | None", now: "_Times | None") -> "dict[str, int | None]":
    if before is None or now is None or now.whole <= before.whole:
        return {"cpu_bp": None, "cpu_wait_bp": None, "cpu_steal_bp": None}
    whole = now.whole - before.whole
    wait, steal = now.wait - before.wait, now.steal - before.steal
    return {
        "cpu_bp": _share(whole - (now.idle - before.idle) - wait, whole),
        "cpu_wait_bp": _share(wait, whole),
        "cpu_steal_bp": _share(steal, whole),
    }


def _share(part: int, whole: int) -> "int | None":
    """In hundredths of a per cent. Counters of the kernel may go back a little."""
    return min(10_000, max(0, round(10_000 * part / whole))) if whole > 0 else None


def _mean_us(milliseconds: int, requests: int) -> "int | None":
    return round(1000 * milliseconds / requests) if requests > 0 and milliseconds >= 0 else None


def _mib(kib: "int | None") -> "int | None":
    return None if kib is None else kib >> 10


def _hundredths(text: str) -> "int | None":
    return round(100 * float(text)) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", text) else None


def _stalled(text: str, kind: str) -> "int | None":
    found = re.search(rf"^{kind} avg10=([0-9]{{1,3}}\.[0-9]{{1,2}}) ", text, re.MULTILINE)
    return None if found is None else _hundredths(found[1])


def _default_device(text: str) -> "str | None":
    """From the kernel's table of IPv4 routes."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == "00000000":
            return words[0]
    return None
