"""How a machine joins its tenant's network: the scripts that run on it and the file that they write.

Every script can be repeated. Scripts get public values as arguments and the file by stdin. No secret is sent to a
machine: its WireGuard key is made there and never leaves it.
"""

from ipaddress import IPv4Address, IPv4Network

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step
from data_plane.mesh.port import ENDPOINT, MeshLink
from data_plane.mesh.shell import MAKE_KEY, WANTED, WIREGUARD_TOOLS
from data_plane.mesh.wireguard import public_key, wireguard_key

INTERFACE = "splitplane"
KEEPALIVE_SECONDS = 25
"""Most rented machines are behind NAT, which forgets UDP mappings after 30 s or more."""

_MAKE_KEY = f"set -eu\numask 077\n{WIREGUARD_TOOLS}\nkey=/etc/wireguard/{INTERFACE}.key\n{MAKE_KEY}"
_TAKE_KEY = f"PostUp = wg set %i private-key /etc/wireguard/{INTERFACE}.key"
MESH_KEY = Step(
    "make mesh key",
    _MAKE_KEY,
    seconds=60,  # For a machine whose image lacks the tools; otherwise it takes well under 1 s.
    user="root",
)
# wg-quick@ is the distribution's own unit: it survives a reboot and falls back to wireguard-go by itself.
_UNIT = f"""unit=wg-quick@{INTERFACE}.service
conf=/etc/wireguard/{INTERFACE}.conf
wanted() {{
  mkdir -p {WANTED}
  for template in /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
    template=$template/wg-quick@.service
    [ ! -e "$template" ] || break
  done
  ln -sf "$template" "{WANTED}/$unit"
}}
start() {{
  systemctl stop "$unit" 2>/dev/null || true
  ip link del dev {INTERFACE} 2>/dev/null || true  # Left by a wg-quick that died halfway.
  systemctl start "$unit" || {{ journalctl --no-pager --output cat --lines 8 --unit "$unit" >&2 || true; exit 70; }}
}}
"""
# The interface of a machine that has no network yet: it has its key, no address and no peer, so it reaches nobody and
# lets nobody in. A machine that has been in a network is left as it is.
WARM_MESH = Step(
    "warm mesh",
    f"""{_MAKE_KEY}
{_UNIT}
if [ ! -e "$conf" ]; then
  printf '%s\\n' '[Interface]' '{_TAKE_KEY}' > "$conf.new"
  mv -f "$conf.new" "$conf"
  wanted
  start
fi
""",
    seconds=60,
    user="root",
)

# An ICMP echo with a random token, bound to the tunnel's device so that nothing on another route can answer. It is
# written in Python because small images have no ping, and the agent needs Python anyway.
_PROVE_HUB = r"""
import os, select, socket, struct, sys, time

hub, device, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
token = os.urandom(16)

def echo(number):
    blank = struct.pack("!BBHHH", 8, 0, 0, 1, number) + token
    total = sum(struct.unpack("!12H", blank))
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return blank[:2] + struct.pack("!H", ~total & 0xFFFF) + blank[4:]

end, number = time.monotonic() + seconds, 0
while time.monotonic() < end:
    number += 1
    try:
        link.sendto(echo(number), (hub, 0))
    except OSError:
        pass  # No session yet; the attempt itself starts the handshake.
    again = time.monotonic() + 0.5
    while time.monotonic() < again:
        if select.select([link], [], [], max(0, again - time.monotonic()))[0]:
            packet, sender = link.recvfrom(2048)
            if sender[0] == hub and packet[20:21] == b"\0" and packet[28:44] == token:
                sys.exit(0)
sys.exit(f"the hub did not answer through the tunnel within {seconds} s")
"""

# Arguments: the hub's address, the proof, the hub's key, the network, the hub's endpoint, our address with its prefix.
# Input: the file that says the same.
#
# The unit is restarted only if the file differs or the hub does not answer, so that repeating the step does not cut the
# customer's connections. A hub can be silent although it knows this machine: if the machine was removed and added
# again, the hub has lost the session, which WireGuard notices only minutes later. A restart makes a new handshake at
# once.
JOIN_MESH = Step(
    "join mesh",
    f"""set -eu
umask 077
hub=$1 prove=$2 peer=$3 allowed=$4 endpoint=$5 address=$6
{_UNIT}
[ -s /etc/wireguard/{INTERFACE}.key ] || {{ echo 'this machine has no mesh key' >&2; exit 66; }}
hub_answers() {{
  python3 -I -c "$prove" "$hub" {INTERFACE} "$1"
}}
# Nothing has to be started when the interface is up and empty, as on a machine that waited for its customer. The route
# to the network comes with the address.
joined_as_it_is() {{
  systemctl is-active --quiet "$unit" && [ -z "$(wg show {INTERFACE} peers 2>/dev/null)" ] &&
    [ -z "$(ip -4 -oneline address show dev {INTERFACE} 2>/dev/null)" ] &&
    wg set {INTERFACE} peer "$peer" allowed-ips "$allowed" endpoint "$endpoint" \\
      persistent-keepalive {KEEPALIVE_SECONDS} &&
    ip -4 address add "$address" dev {INTERFACE} && hub_answers 4
}}
new=$(mktemp "$conf.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
if cmp -s "$new" "$conf" && systemctl is-active --quiet "$unit" && wg show {INTERFACE} >/dev/null 2>&1 &&
  hub_answers 3 2>/dev/null
then
  exit 0
fi
mv -f "$new" "$conf"
wanted
if joined_as_it_is; then
  exit 0
fi
start
hub_answers 12
""",
    seconds=40,
    user="root",
)
JOIN_MESH_PROOF = _PROVE_HUB


async def mesh_public_key(session: Session) -> str:
    """The machine's WireGuard public key, base64.

    The key is made on the machine at the first call and survives a reboot; its private half never leaves the machine.
    Raises Unreachable and StepFailed.
    """
    return public_key(MESH_KEY, await must(session, MESH_KEY))


async def warm_mesh(session: Session) -> str:
    """The same for a machine that waits for its customer. Its interface is brought up as well, without an address and
    without a peer, which is most of the work of joining. Raises Unreachable and StepFailed.
    """
    return public_key(WARM_MESH, await must(session, WARM_MESH))


async def join_mesh(session: Session, link: MeshLink) -> None:
    """Join the tenant's network, and check that the hub answers through the tunnel.

    The hub must know the machine already: call `mesh_public_key`, then `Hub.sync`, then this. The link survives a
    reboot. Raises Unreachable, and StepFailed if the hub does not answer within about 15 s.
    """
    try:
        config = machine_config(link)
    except ValueError as error:
        raise StepFailed(JOIN_MESH.name, None, str(error)) from None
    address = f"{link.address}/{IPv4Network(link.network).prefixlen}"
    of_hub = [link.hub_public_key, link.network, link.hub_endpoint]
    arguments = [link.hub_address, JOIN_MESH_PROOF, *of_hub, address]
    await must(session, JOIN_MESH, arguments, stdin=config.encode())


def machine_config(link: MeshLink) -> str:
    """The machine's wg-quick file. Raises ValueError if a value is malformed.

    The values are checked although they come from us: a line break inside one could add a `PostUp` command, which
    wg-quick runs as root. The private key is in a file of its own, so this one is not a secret.
    """
    network = IPv4Network(link.network)
    address = IPv4Address(link.address)
    if address not in network or IPv4Address(link.hub_address) not in network:
        raise ValueError("an address is outside the network")
    if not ENDPOINT.fullmatch(link.hub_endpoint):
        raise ValueError("the hub's endpoint is not host:port")
    return f"""[Interface]
Address = {address}/{network.prefixlen}
{_TAKE_KEY}

[Peer]
PublicKey = {wireguard_key(link.hub_public_key)}
AllowedIPs = {network}
Endpoint = {link.hub_endpoint}
PersistentKeepalive = {KEEPALIVE_SECONDS}
"""
