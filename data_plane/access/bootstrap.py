"""What we run on a machine we rented: the scripts and the files they write, as text.

Everything here may be run twice. Scripts take public values as arguments and data by stdin; nothing
secret is ever sent to a machine: its WireGuard key is born there and stays there.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network

from data_plane.access.port import MeshLink
from data_plane.access.shell import CUSTOMER, Step

INTERFACE = "splitplane"
MISSING = 75
"""Exit status of the agent's steps: no file with that digest is here. EX_TEMPFAIL, which Python never uses itself."""

_WIREGUARD_KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")  # 32 bytes in base64, and only those.
_SSH_KEY = re.compile(
    r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)"
    r" [A-Za-z0-9+/]{40,8192}={0,2}(?: [^\x00-\x1f\x7f]{1,512})?"
)
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_AUTHORIZED_KEYS_MAX = 1_000

# As the customer, not as root: the directory is the customer's after the first time, and a root that writes
# through a link laid there would write anywhere. The rename makes the list whole at every moment.
INSTALL_KEYS = Step(
    "install keys",
    """set -eu
umask 077
mkdir -p "$HOME/.ssh"
chmod 700 "$HOME/.ssh"
new=$(mktemp "$HOME/.ssh/.authorized_keys.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
chmod 600 "$new"
mv -f "$new" "$HOME/.ssh/authorized_keys"
""",
    seconds=10,
    user="customer",
)

# wireguard-go only where the kernel cannot: containers, and kernels without the module. Trying is the only
# sure test; a module list knows nothing of built-in or forbidden modules. The installation is a unit of its
# own, because killing dpkg halfway breaks the machine: if it takes longer than we wait, or the line is cut, it
# goes on, and the next try finds it done or still running (a refusal: the unit's name is taken).
_WIREGUARD_TOOLS = """
install_package() {
  timeout 50 systemd-run --quiet --collect --wait --unit=splitplane-install --property=RuntimeMaxSec=900 \\
    --setenv=DEBIAN_FRONTEND=noninteractive sh -c "apt-get -q update
      apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $1" </dev/null >&2 || {
    status=$?
    journalctl --no-pager --output cat --lines 4 --unit splitplane-install >&2 || true
    echo "could not install $1" >&2
    exit $status
  }
}
kernel_can() {
  ip link add dev "wgtry$$" type wireguard 2>/dev/null && ip link del dev "wgtry$$"
}
command -v wg >/dev/null && command -v wg-quick >/dev/null || install_package wireguard-tools
command -v wireguard-go >/dev/null || kernel_can || install_package wireguard-go
"""

MESH_KEY = Step(
    "make mesh key",
    """set -eu
umask 077
"""
    + _WIREGUARD_TOOLS
    + f"""
mkdir -p /etc/wireguard
key=/etc/wireguard/{INTERFACE}.key
if [ ! -s "$key" ]; then
  new=$(mktemp "$key.XXXXXX")
  trap 'rm -f "$new"' EXIT
  wg genkey > "$new"
  # A link refuses to replace: of two replicas that get here at once, the first one's key stays.
  [ ! -e "$key" ] || [ -s "$key" ] || rm -f "$key"
  ln "$new" "$key" 2>/dev/null || [ -s "$key" ]
fi
wg pubkey < "$key"
""",
    seconds=60,  # For a machine whose image lacks the tools; otherwise well under one.
    user="root",
)

# The proof is an ICMP echo with a random token, bound to the tunnel's device, so that no other route can
# answer. Python, because small images have no ping and the agent needs Python anyway.
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

# wg-quick@ is the distribution's own unit: it survives a reboot and falls back to wireguard-go by itself.
# Restarted only if something differs or nobody answers, so that repeating the step does not cut the customer's
# connections. Silence from a hub that knows us happens: one that forgot us and learnt us again has lost our
# session, and WireGuard would notice by itself only minutes later; a new start shakes hands at once.
JOIN_MESH = Step(
    "join mesh",
    f"""set -eu
umask 077
hub=$1
prove=$2
unit=wg-quick@{INTERFACE}.service
conf=/etc/wireguard/{INTERFACE}.conf
[ -s /etc/wireguard/{INTERFACE}.key ] || {{ echo 'this machine has no mesh key' >&2; exit 66; }}
hub_answers() {{
  python3 -I -c "$prove" "$hub" {INTERFACE} "$1"
}}
start() {{
  systemctl stop "$unit" 2>/dev/null || true
  ip link del dev {INTERFACE} 2>/dev/null || true  # Left by a wg-quick that died halfway.
  systemctl start "$unit" || {{ journalctl --no-pager --output cat --lines 8 --unit "$unit" >&2 || true; exit 70; }}
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
systemctl enable --quiet "$unit"
start
hub_answers 12
""",
    seconds=40,
    user="root",
)
JOIN_MESH_PROOF = _PROVE_HUB

# An expired account admits no key, wherever keys may lie by now. Whoever holds a GPU is ended as well, as a customer
# with root may have processes of any name; only the driver's own daemons stay. Three times, to outrun what forks.
END_CUSTOMER = Step(
    "end customer",
    f"""set -eu
usermod --expiredate 1 {CUSTOMER}
for round in 1 2 3; do
  {{
    find /proc -maxdepth 1 -name '[0-9]*' -user {CUSTOMER}
    find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*'
  }} 2>/dev/null | cut -d / -f 3 | sort -u | while read -r pid; do
    case "$(cat "/proc/$pid/comm" 2>/dev/null)" in nvidia-persiste* | nv-fabricmanage* | nv-hostengine) continue ;; esac
    kill -KILL "$pid" 2>/dev/null || true
  done
done
""",
    seconds=20,
    user="root",
)

# Neither as root nor as the customer: NVML needs no rights, and the file must not be the customer's to change.
# The digest guards against a broken push or disk; a customer with root can fake any answer, so callers check.
_FIND_AGENT = f"""set -eu
agent="$HOME/.splitplane/agent-$1.pyz"
[ -f "$agent" ] || exit {MISSING}
[ "$(sha256sum < "$agent" | cut -c 1-64)" = "$1" ] || exit {MISSING}
"""
_THE_AGENT = _FIND_AGENT + 'exec python3 -I "$agent" '
FIND_AGENT = Step("find agent", _FIND_AGENT, seconds=10, user="login")
RUN_AGENT = Step(
    "run agent",
    _THE_AGENT + "inventory\n",
    seconds=40,  # Without a persistence daemon a driver wakes its cards at every start, seconds for each.
    user="login",
)
READ_HEALTH = Step("read health", _THE_AGENT + "health\n", seconds=40, user="login")
# A conversation, and so the longest step: about 20 s on a healthy machine, and the challenger gives up after a
# minute. Should we vanish without a word, the machine is rid of it after this.
PROVE = Step("prove", _THE_AGENT + "prove\n", seconds=120, user="login")
PUSH_AGENT = Step(
    "push agent",
    """set -eu
umask 077
mkdir -p "$HOME/.splitplane"
new=$(mktemp "$HOME/.splitplane/new.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
[ "$(sha256sum < "$new" | cut -c 1-64)" = "$1" ] || { echo 'what arrived has another digest' >&2; exit 65; }
mv -f "$new" "$HOME/.splitplane/agent-$1.pyz"
""",
    seconds=20,
    user="login",
)


def authorized_keys_text(keys: Sequence[str]) -> str:
    """The file for exactly these keys. Raises ValueError for anything but plain OpenSSH public key lines.

    Options (`command=...`) and line breaks are refused: what we install must be what the customer asked for.
    """
    if len(keys) > _AUTHORIZED_KEYS_MAX:
        raise ValueError(f"more than {_AUTHORIZED_KEYS_MAX} keys")
    for number, key in enumerate(keys, start=1):
        if not _SSH_KEY.fullmatch(key.strip()):
            raise ValueError(f"key {number} is not one plain OpenSSH public key line")
    return "".join(f"{key.strip()}\n" for key in keys)


def wireguard_key(text: str) -> str:
    """A WireGuard public key as the tools print it, without the newline. Raises ValueError otherwise."""
    key = text.removesuffix("\n")
    if not _WIREGUARD_KEY.fullmatch(key):
        raise ValueError("not a WireGuard public key")
    return key


def machine_config(link: MeshLink) -> str:
    """The machine's wg-quick file. Raises ValueError if a value is not what its field says.

    Checked although it comes from us: a line break smuggled into this file is a command run by root
    (wg-quick obeys `PostUp`). The private key stays in its own file, so this one is no secret.
    """
    network = IPv4Network(link.network)
    address = IPv4Address(link.address)
    if address not in network or IPv4Address(link.hub_address) not in network:
        raise ValueError("an address is outside the network")
    if not _ENDPOINT.fullmatch(link.hub_endpoint):
        raise ValueError("the hub's endpoint is not host:port")
    # Keepalive: most rented machines sit behind NAT, whose UDP mappings last 30 s and more.
    return f"""[Interface]
Address = {address}/{network.prefixlen}
PostUp = wg set %i private-key /etc/wireguard/{INTERFACE}.key

[Peer]
PublicKey = {wireguard_key(link.hub_public_key)}
AllowedIPs = {network}
Endpoint = {link.hub_endpoint}
PersistentKeepalive = 25
"""
