"""Parses the errors that the NVIDIA driver writes to the kernel log.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=1122, name=python3, Ch 00000008
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)

A line contains text that tenants choose, such as the name of a process, so only the beginning of a line is read.
Every user with root can write to the log, so only records of the kernel's own facility are read. They can still be
forged, but no more easily than everything else on the machine.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

LINE_BYTES_MAX = 8192
"""The kernel's limit for a record (CONSOLE_EXT_LOG_MAX)."""

_PCI = r"PCI:([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"
_INSTANCE = r"(?: GPU-I:[0-9]{2,10}(?: GPU-CI:[0-9]{2,10})?)?"
"""The instance on a card in MIG mode. An error is attributed to the card, whichever instance it happened in."""
_LINES: "tuple[tuple[Literal['xid', 'sxid'], re.Pattern[str]], ...]" = (
    ("xid", re.compile(rf"NVRM: Xid \({_PCI}{_INSTANCE}\): ([0-9]{{1,6}})(?![0-9])")),
    ("sxid", re.compile(rf"nvidia-nvswitch[0-9]{{1,3}}: SXid \({_PCI}\): ([0-9]{{1,6}})(?![0-9])")),
)
_KERNEL = 0
"""The facility of the kernel's own records. Records that programs write to /dev/kmsg have another."""


@dataclass(frozen=True)
class Sighting:
    kind: Literal["xid", "sxid"]
    number: int
    bus_id: str
    """Such as `0000:3b:00.0`."""
    microseconds: int
    """The record's time: since boot for /dev/kmsg, since 1970 for the journal."""


def kmsg(record: bytes) -> "Sighting | None":
    """The error in one record of /dev/kmsg (`priority,sequence,microseconds,flags;text`); None if there is none."""
    prefix, separator, text = record[:LINE_BYTES_MAX].partition(b";")
    numbers = prefix.split(b",")
    if not separator or len(numbers) < 4 or not all(re.fullmatch(rb"[0-9]{1,19}", n) for n in numbers[:3]):
        return None
    if int(numbers[0]) >> 3 != _KERNEL:
        return None
    return message(text.decode("ascii", "replace").partition("\n")[0], int(numbers[2]))


def journal(line: bytes) -> "Sighting | None":
    """The error in one line of `journalctl --dmesg --output=json`; None if there is none."""
    try:
        entry = json.loads(line[: 2 * LINE_BYTES_MAX])
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    record = cast("dict[str, Any]", entry)
    text, at = record.get("MESSAGE"), record.get("__REALTIME_TIMESTAMP")
    if record.get("SYSLOG_FACILITY") != str(_KERNEL) or not isinstance(text, str):
        return None
    if not isinstance(at, str) or not re.fullmatch("[0-9]{1,19}", at):
        return None
    return message(text, int(at))


def message(text: str, microseconds: int) -> "Sighting | None":
    """The error in the text of one record, which has no prefix; None if there is none."""
    for kind, pattern in _LINES:
        found = pattern.match(text)
        if found:
            domain, bus, device, function, number = found.groups()
            # The driver omits the PCI function. A GPU is function 0 of its device.
            bus_id = f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}".lower()
            return Sighting(kind, int(number), bus_id, microseconds)
    return None
