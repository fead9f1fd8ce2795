"""Hosts with a network of their own, between them an internet with NAT: real tunnels at the price of a few processes.

A host is a set of Linux namespaces (network, processes, mounts) that ends with the process which began it. Its `/etc`,
`/run` and `/usr/local/lib` are the machine's, with what the host writes in memory. It has no systemd: a small `systemctl`
starts and stops the units of tunnels.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from data_plane.access.port import StepFailed, Target, Unreachable
from data_plane.access.step import Answer, Step, detail_of

PACKAGES = {
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "wg": "wireguard-tools",
    "wireguard-go": "wireguard-go",
}

_PATH = (
    f"{Path(sys.executable).resolve().parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

SYSTEMCTL = """#!/bin/sh
exec 9>&-  # The lock of the script that calls; a daemon would hold it for ever.
active=/run/active-units
mkdir -p "$active"
action=$1
shift
now=
for unit in "$@"; do
  case $unit in --now) now=yes ;; esac
done
name=${unit#*@}
name=${name%.service}
stop() {
  case $unit in
    wg-quick@*) wg-quick down "$name" ;;
    *)
      nsenter --net="/run/netns/splitplane-$name" -- ip link del dev "spmesh$name"
      ip netns del "splitplane-$name"
      ;;
  esac
  rm -f "$active/$unit"
}
start() {
  case $unit in
    wg-quick@*) wg-quick up "$name" ;;
    *) /usr/local/lib/splitplane/mesh-up "$name" ;;
  esac && touch "$active/$unit"
}
case $action in
  is-active) [ -e "$active/$unit" ] ;;
  start) [ -e "$active/$unit" ] || start ;;
  restart) stop; start ;;
  stop) [ ! -e "$active/$unit" ] || stop ;;
  disable) [ -z "$now" ] || [ ! -e "$active/$unit" ] || stop ;;
  enable | daemon-reload | reset-failed) ;;
  *) echo "no such action: $action" >&2; exit 64 ;;
esac
"""

_BEGIN = """
set -e
mount -t tmpfs host /run
mkdir -p /run/lock /run/netns
for folder in /etc /usr/local/lib; do
  mkdir -p "/run/disk$folder" "/run/work$folder"
  mount -t overlay host -o "lowerdir=$folder,upperdir=/run/disk$folder,workdir=/run/work$folder" "$folder"
done
ip link set lo up
echo up
exec sleep infinity
"""


def missing_requirements() -> list[str]:
    """What this machine lacks for such hosts, one line each."""
    if os.geteuid() != 0:
        return ["this process is not root: hosts need network interfaces and mounts"]
    if not Path("/dev/net/tun").exists():
        return ["there is no /dev/net/tun: tunnels need a TUN device"]
    lacking = sorted({package for tool, package in PACKAGES.items() if shutil.which(tool) is None})
    return [f"packages are missing: {', '.join(lacking)}"] if lacking else []


@dataclass
class Host:
    """One host. `data_plane.access.port.Session` on it, without SSH."""

    name: str
    process: asyncio.subprocess.Process
    path: str
    away: bool = False
    """Whether we do not reach it. Its tunnels do not notice."""
    ran: list[str] = field(default_factory=list[str])
    """The names of the steps that it was given."""

    @property
    def pid(self) -> int:
        """Of the first process inside, as the machine outside sees it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def command(self, *words: str) -> list[str]:
        inside = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--"]
        return [*inside, "env", f"PATH={self.path}", *words]

    async def sh(self, script: str, *arguments: str, stdin: bytes = b"") -> str:
        """Run a script inside. Returns its output; raises AssertionError with its errors when it fails."""
        status, output, errors = await self._run(self.command("sh", "-ec", script, "sh", *arguments), stdin)
        assert status == 0, f"{self.name}: {errors.decode()}"
        return output.decode()

    async def run(
        self, step: Step, arguments: Sequence[str] = (), *, stdin: bytes = b"", private: Sequence[str] = ()
    ) -> Answer:
        self.ran.append(step.name)
        if self.away:
            raise Unreachable(f"{self.name}: no route to host")
        command = self.command(
            "timeout", "-k", "5", str(step.seconds), "sh", "-c", step.script, "host", *arguments
        )
        status, output, errors = await self._run(command, stdin)
        if status == 124:
            raise StepFailed(step.name, None, "out of time")
        assert len(output) <= step.output_bytes_max
        return Answer(status, output, detail_of(errors, private))

    def converse(self, step: Step, arguments: Sequence[str] = ()) -> NoReturn:
        raise NotImplementedError

    async def _run(self, command: list[str], stdin: bytes) -> tuple[int, bytes, bytes]:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate(stdin)
        return process.returncode or 0, output, errors


@dataclass
class HostAccess:
    """`data_plane.access.port.Access` to one host, whatever the target says."""

    host: Host

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator[Host]:
        if self.host.away:
            raise Unreachable(f"{target.address}: no route to host")
        yield self.host


@dataclass
class Underlay:
    """The internet, with 198.51.100.0/24 on it, and the hosts that are connected to it."""

    folder: str
    hosts: dict[str, Host] = field(default_factory=dict[str, Host])

    async def internet(self) -> None:
        await self._host("internet")
        await self.hosts["internet"].sh("ip link add net type bridge; ip link set net up")

    async def connect(self, name: str, number: int) -> Host:
        """A host at 198.51.100.`number`, which everybody can reach."""
        host = await self._host(name)
        await self._plug(host, number)
        return host

    async def connect_behind_nat(self, name: str, number: int) -> Host:
        """A host behind a NAT of its own, whose address outside is 198.51.100.`number`."""
        gateway, host = await asyncio.gather(self._host(f"nat of {name}"), self._host(name))
        await self._plug(gateway, number)
        await self._link(gateway, "inside", host, "up0")
        await gateway.sh(
            "ip address add 192.168.1.1/24 dev inside; ip link set inside up; echo 1 > /proc/sys/net/ipv4/ip_forward;"
            "iptables -t nat -A POSTROUTING -o up0 -j MASQUERADE"
        )
        await host.sh(
            "ip address add 192.168.1.2/24 dev up0; ip link set up0 up; ip route add default via 192.168.1.1"
        )
        return host

    async def close(self) -> None:
        for host in self.hosts.values():
            host.process.kill()
        for host in self.hosts.values():
            await host.process.communicate()

    async def _plug(self, host: Host, number: int) -> None:
        await self._link(self.hosts["internet"], f"to{number}", host, "up0")
        await self.hosts["internet"].sh('ip link set "$1" master net up', f"to{number}")
        await host.sh('ip address add "198.51.100.$1/24" dev up0; ip link set up0 up', str(number))

    async def _link(self, one: Host, interface: str, other: Host, its: str) -> None:
        await _done("ip", "link", "add", interface, "netns", str(one.pid), "type", "veth", "peer", "name", its,
                    "netns", str(other.pid))  # fmt: skip

    async def _host(self, name: str) -> Host:
        process = await asyncio.create_subprocess_exec(
            *(
                "setpriv",
                "--pdeathsig",
                "KILL",
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
            ),
            *("--mount-proc", "sh", "-c", _BEGIN),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n", f"{name} did not begin"
        self.hosts[name] = Host(name, process, f"{self.folder}:{_PATH}")
        return self.hosts[name]


async def _done(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 0, f"{command}: {errors.decode()}"


@asynccontextmanager
async def underlay() -> AsyncIterator[Underlay]:
    with TemporaryDirectory() as folder:
        await asyncio.to_thread(_write_systemctl, Path(folder) / "systemctl")
        found = Underlay(folder)
        try:
            await found.internet()
            yield found
        finally:
            await found.close()


def _write_systemctl(path: Path) -> None:
    path.write_text(SYSTEMCTL)
    path.chmod(0o755)


REACHES = r"""
import os, select, socket, struct, sys, time

seconds, source, targets = float(sys.argv[1]), sys.argv[2], set(sys.argv[3:])
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
if source != "-":
    link.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT: also an address that it does not have.
    link.bind((source, 0))
blank = struct.pack("!BBHHH", 8, 0, 0, 77, 1) + os.urandom(16)
total = sum(struct.unpack("!12H", blank))
total = (total >> 16) + (total & 0xFFFF)
echo = blank[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + blank[4:]
end, left = time.monotonic() + seconds, set(targets)
while left and time.monotonic() < end:
    for target in left:
        try:
            link.sendto(echo, (target, 0))
        except OSError:
            pass
    again = time.monotonic() + 0.2
    while left and select.select([link], [], [], max(0, again - time.monotonic()))[0]:
        packet, sender = link.recvfrom(2048)
        if packet[20] == 0 and packet[28:44] == blank[8:]:
            left.discard(sender[0])
print(*sorted(targets - left))
"""


PATIENCE_SECONDS = 12.0
"""Two ends that begin a handshake at the same moment may both fail, and try again after 5 s."""


async def reaches(
    host: Host, *targets: str, seconds: float = PATIENCE_SECONDS, source: str = "-"
) -> set[str]:
    """Which of the addresses answer the host within the time. Waits for all of it unless all of them do."""
    program = 'program=$1; shift; exec python3 -I -c "$program" "$@"'
    return set((await host.sh(program, REACHES, str(seconds), source, *targets)).split())
