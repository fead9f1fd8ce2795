"""One cloud per checkout: a lock that ends with the process that holds it, and what that process says about itself."""

import fcntl
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from demo.processes import DemoError


class AlreadyRunningError(DemoError):
    """Another process runs the cloud of this checkout; the message says which, since when and where."""


@dataclass
class Lock:
    """Held until the process ends, however it ends: the kernel releases it, so a dead holder is never in the way."""

    file: IO[str]
    facts: dict[str, str]

    def tell(self, **facts: str) -> None:
        """Write down what somebody who finds the lock held is told."""
        self.facts |= facts
        self.file.seek(0)
        self.file.truncate()
        self.file.write(json.dumps(self.facts))
        self.file.flush()

    def release(self) -> None:
        self.file.close()


def hold(path: Path, command: str, now: datetime) -> Lock:
    """Take the lock. Raises AlreadyRunningError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        text = file.read()
        file.close()
        raise AlreadyRunningError(_about(text)) from None
    lock = Lock(file, {})
    lock.tell(command=command, pid=str(os.getpid()), since=f"{now:%Y-%m-%d %H:%M:%S} UTC")
    return lock


def _about(text: str) -> str:
    try:
        facts = json.loads(text)
        pid, since, command = facts["pid"], facts["since"], facts["command"]
    except (ValueError, KeyError, TypeError):  # Its holder has just taken it and written nothing yet.
        return "the cloud of this checkout is starting in another process"
    where = f"at {facts['url']}" if "url" in facts else "and is not up yet"
    return f"`{command}` already runs here (pid {pid}, since {since}) {where}. To stop it: kill {pid}"
