"""The kernel log itself: /dev/kmsg where we may read it, the journal where not, and else nothing.

Many systems keep both from users without rights (`dmesg_restrict`). Then nobody looks, and the document says so.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, Protocol

from data_plane.agent import kernel_log
from data_plane.agent.kernel_log import Sighting

KMSG = Path("/dev/kmsg")
RECORDS_MAX = 200_000
"""Looked at in one go; a log buffer of 16 MiB holds fewer."""
JOURNAL_SECONDS = 10

_MICRO = 1_000_000


class KernelLog(Protocol):
    """Where errors are looked for."""

    name: 'Literal["kmsg", "journal", "unreadable"]'

    def new(self) -> "list[tuple[Sighting, int]]":
        """What was written since the last look, from boot at the first, each with its unix second. Never waits long."""
        ...


class Kmsg:
    """/dev/kmsg: every read answers one record, from the oldest that the kernel still holds."""

    name: Literal["kmsg", "journal", "unreadable"] = "kmsg"

    def __init__(self, path: Path, boot: "Callable[[], float]") -> None:
        """`boot` is when records count from, in unix seconds. Raises OSError if it may not be read."""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._boot = boot

    def new(self) -> "list[tuple[Sighting, int]]":
        seen = [sighting for sighting in map(kernel_log.kmsg, self._records()) if sighting is not None]
        boot = self._boot()
        return [(sighting, int(boot + sighting.microseconds / _MICRO)) for sighting in seen]

    def _records(self) -> "Iterator[bytes]":
        for _ in range(RECORDS_MAX):
            try:
                record = os.read(self._file, kernel_log.LINE_BYTES_MAX)
            except BrokenPipeError:
                continue  # The kernel overwrote what we had not read yet; the next read goes on behind.
            except OSError:
                return
            if not record:
                return
            yield from record.splitlines()  # Lines that belong to a record begin with a blank.


class Journal:
    """The journal, for those in its groups. Lines seen twice are the reader's to tell apart."""

    name: Literal["kmsg", "journal", "unreadable"] = "journal"

    def __init__(self, run: "Callable[[list[str]], bytes]") -> None:
        """`run` gives a command's output; OSError if there is no such command. Raises OSError without lines."""
        self._run = run
        self._since: int | None = None
        self._first: list[bytes] | None = self._lines()
        if not self._first:
            raise PermissionError(
                "the journal shows no kernel log"
            )  # A kernel that booted has said something.

    def new(self) -> "list[tuple[Sighting, int]]":
        lines = self._lines() if self._first is None else self._first
        self._first = None
        seen = [sighting for sighting in map(kernel_log.journal, lines) if sighting is not None]
        if seen:
            self._since = max(sighting.microseconds for sighting in seen) // _MICRO
        return [(sighting, sighting.microseconds // _MICRO) for sighting in seen]

    def _lines(self) -> "list[bytes]":
        since = [] if self._since is None else [f"--since=@{self._since}"]
        command = ["journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output=json", *since]
        return self._run([*command, f"--lines={RECORDS_MAX}"]).splitlines()


class Unreadable:
    """No kernel log may be read here."""

    name: Literal["kmsg", "journal", "unreadable"] = "unreadable"

    def new(self) -> "list[tuple[Sighting, int]]":
        return []


def find(boot: "Callable[[], float]", path: Path = KMSG) -> KernelLog:
    """The best there is. `boot` is the unix second that /dev/kmsg counts from."""
    try:
        return Kmsg(path, boot)
    except OSError:
        pass
    try:
        return Journal(_output)
    except OSError:
        return Unreadable()


def _output(command: "list[str]") -> bytes:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=JOURNAL_SECONDS).stdout
    except subprocess.TimeoutExpired:
        return b""
