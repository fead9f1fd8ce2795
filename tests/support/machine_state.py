"""What is on a machine: processes, mounts, links, packet filters, files, settings. Two such states can be compared."""

import json
import shlex
from dataclasses import dataclass

from tests.support.machines import Machine

# What comes and goes on every machine: logins, timers, logs, name caches.
_PASSING = (
    *(
        "/run/systemd",
        "/run/udev",
        "/run/user",
        "/run/sudo",
        "/run/log",
        "/run/utmp",
        "/run/lock",
        "/run/dbus",
    ),
    *("/var/log", "/var/lib/systemd", "/var/lib/sudo", "/var/lib/private", "/etc/resolv.conf", "/run/host"),
    *(
        "/var/lib/dhcp",
        "/etc/ld.so.cache",
        "/run/sshd",
        "/run/kernel-settings",
        "/run/cloud-init",
        "/var/lib/cloud",
    ),
)
_PROGRAM = """
import json, os, subprocess, sys

passing = tuple(json.loads(sys.argv[1]))

def printed(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return []

def files():
    for root in ("/etc", "/opt", "/root", "/home", "/usr/local", "/var", "/run", "/srv"):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not os.path.join(folder, name).startswith(passing)]
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                if not path.startswith(passing) and not path.startswith("/opt/kubernetes-parts"):
                    yield path

def processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline").read().split("\\0")
            groups = open(f"/proc/{pid}/cgroup").read()
        except OSError:
            continue
        if words[0] and "ssh" not in groups and "session" not in groups and "sshd" not in words[0]:
            yield " ".join(words)[:80]

def setting(path):
    try:
        return f"{path} {open(path).read().strip()}"
    except OSError:
        return path

SETTINGS = [f"/proc/sys/{name}" for name in (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/default/forwarding",
)]
# The kernel routes to a link-local address once it has seen that nobody else has it, a moment after the link is up.
routes = [
    line for line in printed("ip", "route", "show", "table", "all") + printed("ip", "rule")
    if not line.startswith("local fe80::")
]
filters = [line for tool in ("iptables-save", "ip6tables-save") for line in printed(tool)]
print(json.dumps({
    "processes": sorted(processes()),
    "mounts": sorted(" ".join(line.split()[:3]) for line in open("/proc/self/mounts")),
    "links": sorted(line.split()[0].partition("@")[0] for line in printed("ip", "-br", "link")),
    "routes": sorted(routes),
    "filters": sorted(line for line in filters if line.startswith(("-A", ":")) and "ACCEPT [" not in line),
    "files": sorted(files()),
    "settings": [setting(path) for path in SETTINGS],
    "units": sorted(line.split()[0] for line in printed("systemctl", "list-unit-files", "--no-legend")),
}))
"""


@dataclass(frozen=True, slots=True)
class State:
    things: dict[str, frozenset[str]]
    """Names of things by their kind."""

    def missing_in(self, other: "State") -> dict[str, list[str]]:
        """What the other has, and this one has not."""
        more = {kind: sorted(other.things[kind] - things) for kind, things in self.things.items()}
        return {kind: things for kind, things in more.items() if things}


async def state_of(machine: Machine) -> State:
    command = ("sudo", "python3", "-I", "-c", _PROGRAM, json.dumps(_PASSING))
    found = json.loads(await machine.sh(shlex.join(command)))
    return State({kind: frozenset(things) for kind, things in found.items()})
