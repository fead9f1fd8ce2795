"""The programs that K3s runs inside itself and the stand-in runs beside itself: they end together."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class PartEndedError(Exception):
    """A part ended by itself, so that the whole has to."""


def say(text: str) -> None:
    """A line of the journal."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dataclass
class Parts:
    running: dict[str, asyncio.subprocess.Process] = field(
        default_factory=dict[str, asyncio.subprocess.Process]
    )

    async def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a part that the kernel kills when we end, and none of what it started in turn: containers live on."""
        self.running[name] = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL"),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            # systemd listens to us alone, and warns about everybody else who tells it something.
            env={k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"} | dict(environment or {}),
        )

    async def wait(self) -> None:
        """Wait until one ends. Raises PartEndedError."""
        waiting = {asyncio.create_task(part.wait()): name for name, part in self.running.items()}
        ended, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        raise PartEndedError(", ".join(f"{waiting[task]} ended with {task.result()}" for task in ended))

    async def until(self, what: str, is_true: Callable[[], Awaitable[bool]], *, seconds: float = 120) -> None:
        """Raises PartEndedError when a part ends first, or the time does."""
        end = asyncio.get_running_loop().time() + seconds
        while not await is_true():
            for name, part in self.running.items():
                if part.returncode is not None:
                    raise PartEndedError(f"{name} ended with {part.returncode} while waiting: {what}")
            if asyncio.get_running_loop().time() > end:
                raise PartEndedError(f"not within {seconds:.0f} s: {what}")
            await asyncio.sleep(0.1)


def tell_systemd(state: str) -> None:
    """`READY=1` ends the start of a unit of Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sender.send(state.encode())


def write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
