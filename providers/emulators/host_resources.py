"""The host's resources for real machines: a slot, a bridge, control groups; and their clean-up.

Several emulators may run on a host at once, for example a demo and a parallel test run. Each claims
a numbered slot with a file lock that ends with its process; everything it creates carries the slot's
number. A slot that has a folder and no lock belonged to a process that died. The next emulator to
start removes what that process left, and nothing else. The functions block for milliseconds: call
them in a thread.
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
"""Bridges take their /24 from this rarely used range, and avoid what the host already routes."""
KILL_WAIT_SECONDS = 5.0
FILTERS_BRIDGES = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
"""Reads 1 where the host's firewall also judges what passes between two ports of a bridge. Docker switches that on, and
lets the firewall forward only what it knows."""


class HostResourceError(Exception):
    """The host could not provide an interface, an address, a slot or a folder."""


@dataclass
class Slot:
    number: int
    folder: Path
    lock: IO[str]

    @property
    def bridge(self) -> str:
        return f"spbr{self.number}"

    def machine(self, number: int) -> str:
        """The name of a machine. It is short because an interface, `vb-` and this name, has at most 15 characters."""
        return f"sp{self.number}m{number}"

    def release(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def claim_slot(state: Path) -> Slot:
    """The first free slot. Also removes what dead processes left in any slot.

    Raises HostResourceError when all slots are taken.
    """
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
        _clean_up(slot)
        if claimed is None:
            folder.mkdir(mode=0o700)
            claimed = slot
        else:
            lock.close()
    if claimed is None:
        raise HostResourceError(f"all {SLOTS_MAX} slots for local clouds are taken")
    return claimed


def sweep(state: Path) -> None:
    """Remove what dead processes left in any slot. What belongs to a living process stays."""
    for folder in state.glob("slot-*/"):
        lock = _try_lock(folder.with_suffix(".lock"))
        if lock is not None:
            _clean_up(Slot(int(folder.name.removeprefix("slot-")), folder, lock))
            lock.close()


def _try_lock(path: Path) -> IO[str] | None:
    lock = path.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _clean_up(slot: Slot) -> None:
    for folder in slot.folder.glob("*/"):
        clear_machine(folder)
    remove_bridge(slot)
    shutil.rmtree(slot.folder, ignore_errors=True)


def clear_machine(folder: Path) -> None:
    """End and remove everything that a machine may have left: processes, control groups, interface, files."""
    _remove_control_groups(_read_control_groups(folder))
    delete_link(f"vb-{folder.name}")
    # systemd-nspawn removes this folder itself unless it was killed.
    shutil.rmtree(Path("/run/systemd/nspawn/propagate") / folder.name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def make_bridge(slot: Slot) -> IPv4Network:
    """Create the slot's bridge, with the first address of a /24 that no route of this host overlaps."""
    subnet = _free_subnet(_routes(), slot.number)
    gateway = f"{subnet[1]}/{subnet.prefixlen}"
    _ip("link", "add", slot.bridge, "type", "bridge", "forward_delay", "0")
    _ip("address", "add", gateway, "dev", slot.bridge)
    _ip("link", "set", slot.bridge, "up")
    # Ask for a booting machine's address five times per second instead of once: that shortens its boot.
    Path(f"/proc/sys/net/ipv4/neigh/{slot.bridge}/retrans_time_ms").write_text("200")
    if FILTERS_BRIDGES.exists() and FILTERS_BRIDGES.read_text().strip() == "1":
        _iptables("--insert", slot)
    return subnet


def remove_bridge(slot: Slot) -> None:
    """Remove the slot's bridge, and its rule in the host's firewall, if they exist."""
    if _iptables("--check", slot):
        _iptables("--delete", slot)
    delete_link(slot.bridge)


def _iptables(action: str, slot: Slot) -> bool:
    """Change or look for the rule that lets machines of a bridge reach each other. Whether it was done or found."""
    rule = ("FORWARD", "--in-interface", slot.bridge, "--out-interface", slot.bridge, "--jump", "ACCEPT")
    program = shutil.which("iptables")
    done = program is not None and (
        subprocess.run([program, "--wait", "5", action, *rule], check=False, capture_output=True).returncode
        == 0
    )
    if action != "--check" and not done:
        raise HostResourceError(
            f"the host's firewall filters bridges: iptables {action} {' '.join(rule)} failed"
        )
    return done


def _free_subnet(routes: list[IPv4Network], number: int) -> IPv4Network:
    candidates = list(SUBNETS.subnets(new_prefix=24))
    # Each slot begins at another candidate, so that two searches at once do not pick the same subnet.
    for candidate in candidates[number:] + candidates[:number]:
        if not any(candidate.overlaps(route) for route in routes):
            return candidate
    raise HostResourceError(f"no free /24 in {SUBNETS}")


def _routes() -> list[IPv4Network]:
    listed = json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]")
    return [IPv4Network(route["dst"], strict=False) for route in listed if route["dst"] != "default"]


def delete_link(name: str) -> None:
    """Remove an interface if it exists."""
    if Path(f"/sys/class/net/{name}").exists():
        try:
            _ip("link", "delete", name)
        except HostResourceError:
            if Path(f"/sys/class/net/{name}").exists():  # Otherwise it vanished after the check above.
                raise


def _ip(*arguments: str) -> str:
    answer = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        raise HostResourceError(f"ip {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout


def make_control_groups(folder: Path, *, cpusets: bool = False) -> list[Path]:
    """Create a control group for one machine in every hierarchy, below our own so that our limits bind it.

    Without it the init systems of all machines would share one group and see each other's units. Only a machine
    that runs containers needs one in the hierarchy of CPU sets.
    """
    made = []
    for parent in _own_control_groups(cpusets=cpusets):
        group = parent / "splitplane" / folder.name
        try:
            group.mkdir(parents=True, exist_ok=True)
            for inner in (group.parent, group):
                _inherit_cpus(inner)
        except OSError:
            continue  # The hierarchy is read-only. The machine then shares our group there, which works too.
        made.append(group)
    (folder / "control-groups").write_text("\n".join(map(str, made)))
    return made


def _read_control_groups(folder: Path) -> list[Path]:
    try:
        return [Path(line) for line in (folder / "control-groups").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _inherit_cpus(group: Path) -> None:
    """Give a group of CPU sets, and those made in it later, what its parent has. Other groups have no such files."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if file.exists() and not file.read_text().strip():
            file.write_text((group.parent / name).read_text())
            (group / "cgroup.clone_children").write_text("1")


def _own_control_groups(*, cpusets: bool) -> list[Path]:
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
        # A new cpuset group has no CPUs, and accepts no process until it is given some.
        if (hierarchy == "cpuset" and not cpusets) or hierarchy not in mounted:
            continue
        own = mounted[hierarchy] / path.lstrip("/")
        found.append(own if own.is_dir() else mounted[hierarchy])
    return found


def _remove_control_groups(groups: list[Path]) -> None:
    """Kill the processes that are left in these groups, then remove the groups."""
    deadline = time.monotonic() + KILL_WAIT_SECONDS
    while (living := _members(groups)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):  # It ended by itself.
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for group in groups:
        for folder in [*sorted(group.glob("**/"), reverse=True), group.parent]:
            with contextlib.suppress(
                OSError
            ):  # It is gone, or in use: the parent is shared with other machines.
                folder.rmdir()


def _members(groups: list[Path]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        for listing in group.glob("**/cgroup.procs"):
            try:
                found.update(int(pid) for pid in listing.read_text().split())
            except OSError:
                continue  # The group was removed meanwhile.
    # Our own process is never killed; 0 stands for a process of another namespace.
    return found - {0, os.getpid()}
