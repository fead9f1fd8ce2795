"""Reads the hardware around the cards from the kernel's sysfs: NUMA nodes, NVMe devices, network devices.

Every file may be missing, unreadable or malformed. A value that cannot be read is None, and nothing here raises.
"""

import re
from pathlib import Path

from data_plane.documents.inventory import BUS_ID, DEVICES_MAX, Nic, NumaNode, Nvme
from data_plane.documents.records import fitting

SYSFS = Path("/sys")

_BUS_ID = re.compile(BUS_ID)
_SECTOR_BYTES = 512  # The unit of sysfs, whatever the device's own block size is.


def locality(sysfs: Path, bus_id: "str | None") -> "tuple[int | None, str | None]":
    """The NUMA node and the local CPUs of a PCI device. The kernel's -1 for `none` becomes None."""
    if bus_id is None:
        return None, None
    device = sysfs / "bus/pci/devices" / bus_id
    node = _number(device / "numa_node")
    return (None if node == -1 else node), _line(device / "local_cpulist")


def numa_nodes(sysfs: Path) -> "tuple[NumaNode, ...]":
    found = []
    for path in _named(sysfs / "devices/system/node", "node[0-9]{1,4}"):
        total = re.search(r"MemTotal:\s+([0-9]+) kB", _text(path / "meminfo"))
        found.append(
            fitting(
                NumaNode,
                node=int(path.name[len("node") :]),
                cpus=_line(path / "cpulist"),
                memory_mib=None if total is None else int(total[1]) >> 10,
            )
        )
    return tuple(sorted(found, key=lambda one: one.node)[:DEVICES_MAX])


def nvmes(sysfs: Path) -> "tuple[Nvme, ...]":
    found = []
    for path in _named(sysfs / "class/nvme", "nvme[0-9]{1,4}"):
        sizes = [_number(disk / "size") for disk in _named(path, f"{path.name}(c[0-9]+)?n[0-9]+")]
        bus_id = _bus_id(path / "device")
        found.append(
            fitting(
                Nvme,
                name=path.name,
                model=_line(path / "model"),
                size_bytes=sum(size for size in sizes if size) * _SECTOR_BYTES if sizes else None,
                bus_id=bus_id,
                numa_node=locality(sysfs, bus_id)[0],
            )
        )
    return tuple(found[:DEVICES_MAX])


def nics(sysfs: Path) -> "tuple[Nic, ...]":
    """Network devices that are hardware; bridges, tunnels and the like are left out."""
    found = []
    for path in _named(sysfs / "class/net", "[!-~]{1,15}"):
        if not (path / "device").exists():
            continue
        speed = _number(path / "speed")
        bus_id = _bus_id(path / "device")
        rdma = [one.name for one in _named(path / "device/infiniband", "[A-Za-z0-9_.-]{1,64}")]
        found.append(
            fitting(
                Nic,
                name=path.name,
                driver=_target(path / "device/driver"),
                speed_mbps=None if speed == -1 else speed,
                bus_id=bus_id,
                numa_node=locality(sysfs, bus_id)[0],
                rdma=tuple(rdma[:8]),
            )
        )
    return tuple(found[:DEVICES_MAX])


def _named(folder: Path, pattern: str) -> "list[Path]":
    """The entries of a folder whose names match the pattern, ordered by the numbers in their names."""
    try:
        found = [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: ([int(n) for n in re.findall("[0-9]+", path.name)], path.name))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4096).decode("ascii", "replace")  # All files that are read here are shorter.
    except OSError:
        return ""


def _line(path: Path) -> "str | None":
    return _text(path).strip() or None


def _number(path: Path) -> "int | None":
    text = _text(path).strip()
    return int(text) if re.fullmatch("-?[0-9]{1,19}", text) else None


def _target(path: Path) -> "str | None":
    """The name of the file or folder that a symbolic link points at."""
    try:
        return path.resolve(strict=True).name
    except (OSError, RuntimeError):  # RuntimeError: a circle of links, on Python 3.10.
        return None


def _bus_id(device: Path) -> "str | None":
    """The PCI address of a device, or of the nearest PCI device above it (virtio devices have one above them)."""
    try:
        real = device.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return next((part for part in reversed(real.parts) if _BUS_ID.fullmatch(part)), None)
