"""A machine that boots a bare Debian with systemd and reaches nothing but itself; commands run in it as root."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BOOT_SECONDS_MAX = 60


class BareMachine:
    def __init__(self, leader: int) -> None:
        self._leader = leader
        """Its first process, as this host counts."""

    def run(self, script: str, *, seconds: float = 120) -> str:
        """Run a script of bash, which ends at its first error. Returns what it printed; fails with it."""
        done = subprocess.run(
            [
                *("nsenter", f"--target={self._leader}", "--all", "--wdns=/root"),
                *("env", "-i", "HOME=/root", "LANG=C.UTF-8"),
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                *("bash", "-euo", "pipefail", "-c", script),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-6000:]}"
        return done.stdout


@contextmanager
def booted(root: Path, bound: Mapping[Path, str], scratch: Path) -> Iterator[BareMachine]:
    """A machine with folders of this host in it, read-only; what it writes is in memory, and gone with it."""
    console = scratch / "console.log"
    command = [
        *("setpriv", "--pdeathsig", "KILL"),
        *("systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay", "--boot"),
        *(f"--machine=bare-{os.getpid()}", "--register=no", "--keep-unit", "--kill-signal=SIGKILL"),
        *("--private-network", "--hostname=host"),
        "--bind-ro=/dev/null:/etc/cloud/cloud-init.disabled",
        *(f"--bind-ro={folder}:{place}" for folder, place in bound.items()),
    ]
    with console.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield BareMachine(_leader(process, console))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _leader(process: "subprocess.Popen[bytes]", console: Path) -> int:
    """Wait until the machine's systemd has started what it starts at boot."""
    end = time.monotonic() + BOOT_SECONDS_MAX
    while time.monotonic() < end:
        assert process.poll() is None, console.read_text(errors="replace")[-3000:]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and _is_up(int(children[0])):
            return int(children[0])
        time.sleep(0.2)
    raise AssertionError(f"not up in {BOOT_SECONDS_MAX} s:\n{console.read_text(errors='replace')[-3000:]}")


def _is_up(leader: int) -> bool:
    asked = ["nsenter", f"--target={leader}", "--all", "systemctl", "is-system-running"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return said in ("running", "degraded")
