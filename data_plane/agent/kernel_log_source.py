"""Reads the kernel log: /dev/kmsg if it is readable, otherwise the journal if that is readable.

Many systems let no unprivileged user read either (`dmesg_restrict`). The health document says so then.
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
"""How many records are read at once. A log buffer of 16 MiB holds fewer."""
JOURNAL_SECONDS = 10

_MICRO = 1_000_000


class KernelLog(Protocol):
    """A log of errors."""

    name: 'Literal["kmsg", "journal", "unreadable"]'

    def new(self) -> "list[tuple[Sighting, int]]":
        """The errors since the last call, or since boot, each with its unix second. Returns soon."""
        ...


class Kmsg:
    """/dev/kmsg. Every read returns one record, beginning with the oldest that the kernel still has."""

    name: Literal["kmsg", "journal", "unreadable"] = "kmsg"

    def __init__(self, path: Path, boot: "Callable[[], float]") -> None:
        """`boot` returns the unix second from which records count. Raises OSError if the file is not readable."""
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
                continue  # The kernel overwrote unread records. The next read continues after them.
            except OSError:
                return
            if not record:
                return
            yield from record.splitlines()  # The further lines of a record begin with a space.


class Journal:
    """The journal, which members of its groups can read. A line may be returned twice."""

    name: Literal["kmsg", "journal", "unreadable"] = "journal"

    def __init__(self, run: "Callable[[list[str]], bytes]") -> None:
        """`run` returns the output of a command. Raises OSError if there is no such command, or no line to read."""
        self._run = run
        self._since: int | None = None
        self._first: list[bytes] | None = self._lines()
        if not self._first:
            # A kernel that has booted has written lines, so we are not allowed to read them.
            raise PermissionError("the journal shows no kernel log")

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
    """A kernel log that we are not allowed to read."""

    name: Literal["kmsg", "journal", "unreadable"] = "unreadable"

    def new(self) -> "list[tuple[Sighting, int]]":
        return []


def find(boot: "Callable[[], float]", path: Path = KMSG) -> KernelLog:
    """The best log that is readable. `boot` returns the unix second from which /dev/kmsg counts."""
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
