"""The firewall of a machine: one nftables table of ours, `inet splitplane`, beside whatever else filters there.

It decides before destinations are translated (`prerouting`, priority -150), because a port that Docker publishes never
reaches the input chain: its packets are sent on to the container. So one chain sees each new connection, with the port
that it was made to, whoever will get it. Packets of a connection that was let through are not judged again.

Other tables stay. A packet has to pass all of them, so a customer's own rules may close more, and cannot open what this
one drops. With root, the customer can delete it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Literal

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step
from data_plane.access.turns import alone
from data_plane.mesh.machine import INTERFACE, KEEPALIVE_SECONDS
from data_plane.mesh.shell import INSTALL_PACKAGE, WANTED

TABLE = "inet splitplane"
FILE = "/etc/splitplane/firewall.nft"
UNIT = "splitplane-firewall.service"
SSH_PORT = 22
WIREGUARD_PORT = 51_820
"""Where WireGuard listens that waits for others. A tunnel that the machine opens itself needs no open port."""
_OWN_INTERFACES = ("lo", INTERFACE)
_LOCAL_INTERFACES = (
    *("docker*", "br-*", "podman*", "cni*", "virbr*"),
    *("wg*", "tailscale*", "tun*"),
)
"""Bridges of containers and virtual machines, and tunnels that the customer makes: nobody arrives there from outside
whom the customer did not let in."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Ports that are open to somebody."""

    protocol: Literal["tcp", "udp"]
    first_port: int
    last_port: int
    sources: tuple[str, ...]
    """Networks such as `203.0.113.0/24` or `2001:db8::/32`."""


# `nft -f` replaces the table in one transaction of the kernel: a file that it does not accept leaves the old table. The
# file that is loaded at boot is replaced after that, so a broken one never gets there. Where the distribution loads
# rules of its own at boot, ours are loaded after them, because such files often begin with `flush ruleset`. What the
# kernel then has is printed as a digest, without counters and handles.
#
# The unit is for the next boot, which reads it: systemd needs not be told now.
#
# The kernel tracks connections only while some rule asks for it. So where no rule did, the tunnel of the private
# network is unknown to it, and what comes from the hub is dropped until the machine sends something: a keepalive, which
# a tunnel sends at once when it is switched on.
_DIGEST = f"nft --stateless list table {TABLE} | sha256sum | cut -d ' ' -f 1\n"
APPLY_FIREWALL = Step(
    "apply firewall",
    f"""set -eu
umask 022
{INSTALL_PACKAGE}
command -v nft >/dev/null || install_package nftables nft
{alone("/run/lock/splitplane-firewall.lock", "change of the firewall", 5)}mkdir -p /etc/splitplane
new=$(mktemp {FILE}.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new"
nft -f "$new"
mv -f "$new" {FILE}
unit=/etc/systemd/system/{UNIT}
cat > "$unit.new" <<END
[Unit]
Description=Firewall of Splitplane
DefaultDependencies=no
After=local-fs.target nftables.service ufw.service netfilter-persistent.service
Before=network.target ssh.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$(command -v nft) -f {FILE}

[Install]
WantedBy=multi-user.target
END
if cmp -s "$unit.new" "$unit"; then rm -f "$unit.new"; else mv -f "$unit.new" "$unit"; fi
mkdir -p {WANTED}
ln -sf "$unit" {WANTED}/{UNIT}
for peer in $(wg show {INTERFACE} peers 2>/dev/null); do
  wg set {INTERFACE} peer "$peer" persistent-keepalive 0
  wg set {INTERFACE} peer "$peer" persistent-keepalive {KEEPALIVE_SECONDS}
done
{_DIGEST}""",
    seconds=60,  # For a machine whose image lacks nftables; otherwise it takes well under 1 s.
    user="root",
)
READ_FIREWALL = Step(
    "read firewall",
    f"set -u\nnft list table {TABLE} >/dev/null 2>&1 || {{ echo none; exit 0; }}\n{_DIGEST}",
    seconds=5,
    user="root",
)

_DIGEST_LENGTH = 64


async def apply_firewall(session: Session, openings: Sequence[Opening], *, ssh_port: int = SSH_PORT) -> str:
    """Close every port of the machine but SSH's, WireGuard's and these. Returns a digest of what the kernel has now.

    The rules survive a reboot. Connections that are open stay open, also those that a new one would not be let in.
    Raises Unreachable, and StepFailed: then the machine has the rules that it had.
    """
    return _digest(APPLY_FIREWALL, await _output(session, APPLY_FIREWALL, ruleset(openings, ssh_port)))


async def read_firewall(session: Session) -> str | None:
    """The digest of what the kernel has now; None when our table is gone. Raises Unreachable and StepFailed."""
    output = await _output(session, READ_FIREWALL, "")
    return None if output == "none" else _digest(READ_FIREWALL, output)


async def _output(session: Session, step: Step, stdin: str) -> str:
    answer = await must(session, step, stdin=stdin.encode())
    return answer.output.decode("ascii", "replace").strip()


def _digest(step: Step, output: str) -> str:
    if len(output) != _DIGEST_LENGTH or not output.strip("0123456789abcdef") == "":
        raise StepFailed(step.name, None, "the answer is not a digest")
    return output


def ruleset(openings: Sequence[Opening], ssh_port: int = SSH_PORT) -> str:
    """The file for `nft -f`. Raises ValueError for a value that is none.

    Its first two lines make the table unless it exists and delete it, so that what follows replaces it.
    """
    rules = [line for opening in openings for line in _rules(opening)]
    own = ", ".join(f'"{name}"' for name in _OWN_INTERFACES)
    local = [f'iifname "{name}" accept' for name in _LOCAL_INTERFACES]
    lines = [
        "ct state established,related accept",
        "ct state invalid drop",
        f"iifname {{ {own} }} accept",
        *local,
        # ICMP and ICMPv6, with which the largest packet of a path and IPv6 neighbours are found. Small images lack the
        # names of protocols.
        "meta l4proto { 1, 58 } accept",
        "udp sport 67 udp dport 68 accept",
        "udp sport 547 udp dport 546 accept",
        f"tcp dport {{ {', '.join(str(port) for port in sorted({SSH_PORT, _port(ssh_port)}))} }} accept",
        f"udp dport {WIREGUARD_PORT} accept",
        *rules,
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"# Written by Splitplane; changes are lost.\ntable {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n"
        f"  chain arriving {{\n    type filter hook prerouting priority -150; policy drop;\n{body}  }}\n}}\n"
    )


def _rules(opening: Opening) -> list[str]:
    if opening.protocol not in ("tcp", "udp") or opening.first_port > opening.last_port:
        raise ValueError(f"{opening} opens no ports")
    first, last = _port(opening.first_port), _port(opening.last_port)
    ports = str(first) if first == last else f"{first}-{last}"
    found = [ip_network(source) for source in opening.sources]
    # nft refuses ranges of one set that overlap.
    v4 = list(collapse_addresses(network for network in found if isinstance(network, IPv4Network)))
    v6 = list(collapse_addresses(network for network in found if isinstance(network, IPv6Network)))
    where = [_from("ipv4", "ip", v4)] if v4 else []
    where += [_from("ipv6", "ip6", v6)] if v6 else []
    return [f"{source} {opening.protocol} dport {ports} accept" for source in where]


def _from(family: str, header: str, networks: Sequence[IPv4Network | IPv6Network]) -> str:
    if any(network.prefixlen == 0 for network in networks):
        return f"meta nfproto {family}"
    return f"{header} saddr {{ {', '.join(str(network) for network in networks)} }}"


def _port(number: int) -> int:
    if not 1 <= number <= 65_535:
        raise ValueError(f"{number} is no port")
    return number
