"""What machines on this host need of it: a slot of their own, a bridge, control groups; and the sweeping up.

Several emulators may run here at once (a demo beside a parallel test run). Each claims a numbered
slot by a file lock that dies with its process; everything it makes carries the slot's number.
A slot that nobody locks but that still has a folder belonged to a process that died: whoever comes
next ends what it left, and nothing else. Everything here blocks, for milliseconds: call it in a thread.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import IO

SLOTS_MAX = 64
SUBNETS = IPv4Network("10.208.0.0/12")
"""Bridges take their /24 from here, where few networks live; routes that exist are respected."""
KILL_WAIT_SECONDS = 5.0


class HostResourceError(Exception):
    """The host refused an interface, an address or a folder."""


@dataclass
class Slot:
    number: int
    folder: Path
    lock: IO[str]

    @property
    def bridge(self) -> str:
        return f"spbr{self.number}"

    def machine(self, number: int) -> str:
        """A short name: the kernel allows an interface 15 characters, and `vb-` is put in front."""
        return f"sp{self.number}m{number}"

    def release(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def claim_slot(state: Path) -> Slot:
    """The first free slot; ends what dead owners left in any slot. Raises HostResourceError when all are taken."""
    state.mkdir(parents=True, exist_ok=True)
    claimed = None
    for number in range(SLOTS_MAX):
        folder = state / f"slot-{number}"
        if claimed is not None and not folder.exists():
            continue
        lock = _try_lock(state / f"slot-{number}.lock")
        if lock is None:
            continue
        slot = Slot(number, folder, lock)
        _sweep(slot)
        if claimed is None:
            folder.mkdir(mode=0o700)
            claimed = slot
        else:
            lock.close()
    if claimed is None:
        raise HostResourceError(f"all {SLOTS_MAX} slots for local clouds are taken")
    return claimed


def _try_lock(path: Path) -> IO[str] | None:
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _sweep(slot: Slot) -> None:
    for folder in slot.folder.glob("*/"):
        clear_machine(folder)
    delete_link(slot.bridge)
    shutil.rmtree(slot.folder, ignore_errors=True)


def clear_machine(folder: Path) -> None:
    """End and remove everything a machine may have left: processes, groups, interface, files."""
    _remove_control_groups(_read_control_groups(folder))
    delete_link(f"vb-{folder.name}")
    # nspawn removes this itself unless it was killed.
    shutil.rmtree(Path("/run/systemd/nspawn/propagate") / folder.name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def make_bridge(slot: Slot) -> IPv4Network:
    """The slot's bridge with the first address of a /24 that no route of this host touches."""
    subnet = _free_subnet(_routes(), slot.number)
    gateway = f"{subnet[1]}/{subnet.prefixlen}"
    _ip("link", "add", slot.bridge, "type", "bridge", "forward_delay", "0")
    _ip("address", "add", gateway, "dev", slot.bridge)
    _ip("link", "set", slot.bridge, "up")
    # Ask for a booting machine's address five times a second, not once: it shows in the boot time.
    Path(f"/proc/sys/net/ipv4/neigh/{slot.bridge}/retrans_time_ms").write_text("200")
    return subnet


def _free_subnet(routes: list[IPv4Network], number: int) -> IPv4Network:
    candidates = list(SUBNETS.subnets(new_prefix=24))
    # Start at a place of the slot's own: two that look for a subnet at once do not pick the same.
    for candidate in candidates[number:] + candidates[:number]:
        if not any(candidate.overlaps(route) for route in routes):
            return candidate
    raise HostResourceError(f"no free /24 in {SUBNETS}")


def _routes() -> list[IPv4Network]:
    listed = json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]")
    return [IPv4Network(route["dst"], strict=False) for route in listed if route["dst"] != "default"]


def delete_link(name: str) -> None:
    """Remove an interface; one that is not there is no error."""
    if Path(f"/sys/class/net/{name}").exists():
        try:
            _ip("link", "delete", name)
        except HostResourceError:
            if Path(f"/sys/class/net/{name}").exists():  # Not merely gone between the look and the call.
                raise


def _ip(*arguments: str) -> str:
    answer = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        raise HostResourceError(f"ip {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout


def make_control_groups(folder: Path) -> list[Path]:
    """A control group for one machine in every hierarchy, below our own, so that our limits bind it.

    Without it the systemds of all machines would share one group and see each other's units.
    """
    made = []
    for parent in _own_control_groups():
        group = parent / "splitplane" / folder.name
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue  # A read-only hierarchy. The machine then shares ours, which works, less tidily.
        made.append(group)
    (folder / "control-groups").write_text("\n".join(map(str, made)))
    return made


def _read_control_groups(folder: Path) -> list[Path]:
    try:
        return [Path(line) for line in (folder / "control-groups").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _own_control_groups() -> list[Path]:
    mounted = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounted[""] = Path(mount)
        elif kind == "cgroup":
            for option in options.split(","):
                mounted[option] = Path(mount)
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        hierarchy = controllers.split(",")[0]
        # A new cpuset group has no CPUs and takes no process until it is given some.
        if hierarchy == "cpuset" or hierarchy not in mounted:
            continue
        own = mounted[hierarchy] / path.lstrip("/")
        found.append(own if own.is_dir() else mounted[hierarchy])
    return found


def _remove_control_groups(groups: list[Path]) -> None:
    """Kill whatever still lives in these groups, then remove them."""
    deadline = time.monotonic() + KILL_WAIT_SECONDS
    while (living := _members(groups)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):  # Gone by itself.
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for group in groups:
        for folder in [*sorted(group.glob("**/"), reverse=True), group.parent]:
            with contextlib.suppress(OSError):  # In use, or gone: the parent is shared with other machines.
                folder.rmdir()


def _members(groups: list[Path]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        for listing in group.glob("**/cgroup.procs"):
            try:
                found.update(int(pid) for pid in listing.read_text().split())
            except OSError:
                continue  # The group vanished while we looked.
    # Our own process is never in there; 0 is a process of another namespace.
    return found - {0, os.getpid()}
