"""What the agent does when an answer of the hub names a task. Each is one of a few words, and takes no argument."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from data_plane.agent.spool import Spool
from data_plane.documents import protocol, strict
from data_plane.documents.health import Health
from data_plane.documents.heartbeat import Heartbeat, Result, Task
from data_plane.documents.inventory import Inventory

SECONDS = 60
"""A driver that hangs is given up by the command itself, after 35 s."""
_CGROUP = Path("/sys/fs/cgroup")

Read = Callable[[str], bytes]
"""Runs a command of the agent's in a process of its own, because a driver may hang, and returns what it printed."""


def read_by(agent: Path) -> Read:
    """Runs `inventory` and `health` of this agent. Raises OSError and subprocess.SubprocessError."""

    def read(command: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-I", os.fspath(agent), command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    return read


def perform(task: Task, agent: Path, spool: "Spool[Heartbeat]", read: Read) -> Result:
    """Do a task. What goes wrong is said by the result."""
    try:
        return _DO[task](task, agent, spool, read)
    except (OSError, subprocess.SubprocessError, strict.Malformed) as error:
        return Result(
            task, done=False, digest=None, detail=strict.printable(f"{type(error).__name__}: {error}")
        )


def _look(task: Task, _: Path, __: "Spool[Heartbeat]", read: Read) -> Result:
    """Topology and report: read the GPUs. The digest tells whether anything differs from an earlier reading."""
    printed = read("inventory" if task == "topology" else "health")
    document = protocol.decode(printed)
    if isinstance(document, Inventory):
        detail = f"{len(document.gpus)} GPUs, driver {document.driver_version}, {document.source}"
    elif isinstance(document, Health):
        lost = sum(gpu.lost for gpu in document.gpus)
        detail = f"{len(document.gpus)} GPUs, {lost} lost, {len(document.xids)} errors, {document.source}"
    else:
        return Result(
            task, done=False, digest=None, detail=strict.printable(f"{document.code}: {document.detail}")
        )
    return Result(task, done=True, digest=_sha256(printed), detail=strict.printable(detail))


def _verify(task: Task, agent: Path, _: "Spool[Heartbeat]", __: Read) -> Result:
    limits = ", ".join(f"{name} {_limit(name)}" for name in ("memory.max", "cpu.max", "pids.max"))
    return Result(task, done=True, digest=_sha256(agent.read_bytes()), detail=strict.printable(limits))


def _limit(name: str) -> str:
    """A limit of the agent's own control group."""
    try:
        own = Path("/proc/self/cgroup").read_text().partition("::")[2].strip().lstrip("/")
        return (_CGROUP / own / name).read_text().strip()
    except OSError:
        return "not readable"


def _clean(task: Task, _: Path, spool: "Spool[Heartbeat]", __: Read) -> Result:
    return Result(task, done=True, digest=None, detail=f"{spool.clean()} files deleted")


_Doing = Callable[[Task, Path, "Spool[Heartbeat]", Read], Result]
_DO: "dict[Task, _Doing]" = {"topology": _look, "verify": _verify, "report": _look, "clean": _clean}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
