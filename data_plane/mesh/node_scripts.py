"""The scripts that run on a member of an overlay. Arguments and input are public; a member's keys are made on it.

The interface is brought up by wg-quick, which uses wireguard-go where the kernel has no WireGuard. Routes are
static, so peers come and go without touching them. What arrives by a tunnel is for the machine itself: a routing
rule drops the rest, so that no member carries packets from one tunnel to another, whoever sends them. Pods' packets
come in VXLAN inside a tunnel, which is left to a packet filter (`pod_filter.py`).
"""

from data_plane.access.step import Step
from data_plane.access.turns import alone, fenced
from data_plane.mesh.pod_filter import INTERFACE
from data_plane.mesh.pod_filter import TABLE as FILTER_TABLE
from data_plane.mesh.shell import MAKE_KEY, WIREGUARD_TOOLS

MTU = 1_420
"""The same on every provider: 1,500 less 80 for WireGuard over IPv6. Paths that carry less are found by
`PROBE_PATH`."""
PORT = 51_820
"""The UDP port that members listen on."""
TABLE = 7_650
"""The number of the routing table and of the rule for what arrives by a tunnel. The rule is after the machine's own
addresses (0) and before its other routes (32766)."""

_FILES = f"""
key=/etc/wireguard/{INTERFACE}.key
conf=/etc/wireguard/{INTERFACE}.conf
peers=/etc/wireguard/{INTERFACE}.peers
sections=/etc/wireguard/{INTERFACE}.sections
routes=/etc/wireguard/{INTERFACE}.routes
filter=/etc/wireguard/{INTERFACE}.nft
fences=/etc/wireguard/{INTERFACE}.fence
unit=wg-quick@{INTERFACE}.service
"""

_ALONE = alone(f"/run/lock/splitplane-{INTERFACE}.lock", "change of this interface", 8)

LISTING_BYTES_MAX = 1_048_576
"""The interface of a server with 4,092 peers is 470 kB, and twice as much while all of them rotate their keys."""

# The first line of `wg show dump` has the private key, so it is cut off before anything is printed. What is
# left of each line: public key, endpoint, ranges, time of the last handshake, keepalive.
_SHOW = f"""
show() {{
  printf '%s %s %s\\n' "$(wg show {INTERFACE} public-key)" "$(wg show {INTERFACE} listen-port)" "$(date +%s)"
  wg show {INTERFACE} dump | tail -n +2 | cut -f 1,3,4,5,8
}}
"""

MAKE_NODE_KEY = Step(
    "make node key",
    f"""set -eu
umask 077
{WIREGUARD_TOOLS}
command -v nft >/dev/null || install_package nftables nft
key=/etc/wireguard/{INTERFACE}.key
{MAKE_KEY}""",
    seconds=60,  # For a machine whose image lacks the tools; otherwise it takes well under 1 s.
    user="root",
)

# Argument: `fresh` when a next key that is there already must not be used, because it may have leaked.
MAKE_NEXT_KEY = Step(
    "make next node key",
    f"""set -eu
umask 077
key=/etc/wireguard/{INTERFACE}.key.next
[ "$1" != fresh ] || rm -f "$key"
{MAKE_KEY}""",
    seconds=5,
    user="root",
)

# Peers are compared as facts, one a line, because WireGuard lists ranges in an order of its own. An endpoint that
# differs counts only once its tunnel is silent: until then, it is where the other end has moved to.
_COMPARE = f"""
facts() {{
  awk -F '\\t' '{{
    print $1, "endpoint", $2
    print $1, "keepalive", $3
    count = $4 == "-" ? 0 : split($4, ranges, ",")
    for (i = 1; i <= count; i++) print $1, "range", ranges[i]
  }}' | sort
}}
listed() {{
  wg show {INTERFACE} dump | tail -n +2 | awk -F '\\t' -v OFS='\\t' -v now="$(date +%s)" '
    FILENAME == ARGV[1] {{ wanted[$1] = $2; next }}
    {{
      endpoint = $3 == "(none)" ? "-" : $3
      fresh = $5 > 0 && now - $5 <= 180
      if ($1 in wanted && (fresh || wanted[$1] == "-")) endpoint = wanted[$1]
      print $1, endpoint, $8, $4 == "(none)" ? "-" : $4
    }}' "$peers.new" -
}}
in_place() {{
  [ "$(wg show {INTERFACE} public-key)" = "$(wg pubkey < "$key")" ] || return 1
  [ "$(wg show {INTERFACE} listen-port)" = "$port" ] || return 1
  facts < "$peers.new" > "$work/wanted"
  listed | facts | cmp -s - "$work/wanted"
}}
standing() {{
  systemctl is-active --quiet "$unit" && ip link show dev {INTERFACE} up 2>/dev/null | grep -q .
}}
"""

# Arguments: the member's address, its port, the overlay's range, the range of all pods, and the fence or `-`. That is
# kept first: whatever fails later, what is older is refused.
# Input: a line for each peer, with tabs between: key, endpoint or `-`, keepalive or `off`, ranges with commas or `-`.
# Then an empty line, and the packet filter. That is loaded every time, in one transaction, before any peer changes: the
# table may have been deleted. At boot, it is there before the interface is, and so before flannel's device.
# `syncconf` keeps the sessions of peers that stay. It runs only if something differs, because wireguard-go reopens its
# socket at every configuration. At boot, peers are added after the key: a handshake without it would fail, and the next
# one comes 5 s later.
APPLY_PEERS = Step(
    "apply peers",
    "set -eu\numask 077\nexport LC_ALL=C\n"
    + _FILES
    + _ALONE
    + _SHOW
    + fenced("$fences", "this machine was set up by a later worker")
    + f"""
address=$1
port=$2
range=$3
pods=$4
keep_fence "$5"
[ -s "$key" ] || {{ echo 'this machine has no node key' >&2; exit 66; }}
work=$(mktemp -d /run/{INTERFACE}.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat > "$work/input"
awk '/^$/ {{ exit }} {{ print }}' "$work/input" > "$peers.new"
awk 'rest {{ print }} /^$/ {{ rest = 1 }}' "$work/input" > "$filter.new"
"""
    + _COMPARE
    + f"""
nft -f "$filter.new"
nft list table {FILTER_TABLE} > "$work/filter"
mv -f "$filter.new" "$filter"
awk -F '\\t' '{{
  print "[Peer]"; print "PublicKey = " $1
  if ($4 != "-") print "AllowedIPs = " $4
  if ($2 != "-") print "Endpoint = " $2
  print "PersistentKeepalive = " $3  # Also when off: a keepalive that is not named stays as it is.
}}' "$peers.new" > "$sections.new"
cat > "$routes.new" <<END
# Written by Splitplane; changes are lost. Changes nothing that is as it should be, so it also repairs.
set -eu
ip link set dev {INTERFACE} mtu {MTU}
ip route replace $range dev {INTERFACE} src $address
ip route replace unreachable $pods  # Those that flannel has no route for yet: the provider's network gets no packet.
ip route replace blackhole default table {TABLE}
ip rule show priority {TABLE} | grep -q . || ip rule add iif {INTERFACE} priority {TABLE} lookup {TABLE}
END
cat > "$conf.new" <<END
[Interface]
Address = $address/32
ListenPort = $port
MTU = {MTU}
Table = off
PreUp = nft -f $filter
PostUp = wg set %i private-key $key
PostUp = sh $routes
PostUp = wg addconf %i $sections
PostDown = ip rule del priority {TABLE} || true; ip route flush table {TABLE} || true
PostDown = ip route del unreachable $pods || true
END
# Restarting the interface deletes flannel's device, which lies on it, and nothing makes that again.
if cmp -s "$conf.new" "$conf" && cmp -s "$routes.new" "$routes" && standing; then
  sh "$routes"
  if ! cmp -s "$peers.new" "$peers" || ! in_place; then
    {{
      printf '[Interface]\\nListenPort = %s\\nPrivateKey = ' "$port"
      cat "$key" "$sections.new"
    }} > "$work/sync"
    # A keepalive that is switched on again is sent at once, so that a NAT opens the way to an end that has moved.
    sort "$peers" > "$work/before" 2>/dev/null || true
    sort "$peers.new" | comm -13 "$work/before" - | awk -F '\\t' '$3 != "off" {{ print $1 }}' > "$work/moved"
    while read -r moved; do wg set {INTERFACE} peer "$moved" persistent-keepalive 0; done < "$work/moved"
    wg syncconf {INTERFACE} "$work/sync"
    mv -f "$sections.new" "$sections"
  fi
else
  systemctl stop "$unit" 2>/dev/null || true
  ip link del dev {INTERFACE} 2>/dev/null || true  # Left by a wg-quick that died halfway.
  mv -f "$sections.new" "$sections"
  mv -f "$routes.new" "$routes"
  mv -f "$conf.new" "$conf"
  systemctl enable --quiet "$unit"
  systemctl start "$unit" || {{ journalctl --no-pager --output cat --lines 8 --unit "$unit" >&2 || true; exit 70; }}
fi
rm -f "$sections.new" "$routes.new" "$conf.new"
mv -f "$peers.new" "$peers"
show
""",
    seconds=30,  # Usually well under 1 s, also for a server with 4,000 peers.
    user="root",
    output_bytes_max=LISTING_BYTES_MAX,
)

READ_PEERS = Step(
    "read peers",
    f"""set -eu
{_SHOW}
wg show {INTERFACE} public-key > /dev/null 2>&1 || {{ echo 'there is no interface' >&2; exit 66; }}
show
""",
    seconds=5,
    user="root",
    output_bytes_max=LISTING_BYTES_MAX,
)

# Argument: the public key to change to. The file is renamed first: whatever happens between the lines, the next run
# finds the key in its place and sets it.
SWITCH_KEY = Step(
    "switch node key",
    f"""set -eu
{_FILES}
{_ALONE}
named() {{
  [ -s "$1" ] && [ "$(wg pubkey < "$1")" = "$2" ]
}}
if ! named "$key" "$1"; then
  named "$key.next" "$1" || {{ echo 'this machine has another next key' >&2; exit 66; }}
  mv -f "$key.next" "$key"
fi
[ "$(wg show {INTERFACE} public-key)" = "$1" ] || wg set {INTERFACE} private-key "$key"
""",
    seconds=15,
    user="root",
)

LEAVE_OVERLAY = Step(
    "leave overlay",
    f"""set -eu
{_FILES}
{_ALONE}
systemctl disable --quiet --now "$unit" 2>/dev/null || true
ip link del dev {INTERFACE} 2>/dev/null || true
ip rule del priority {TABLE} 2>/dev/null || true
ip route flush table {TABLE} 2>/dev/null || true
nft delete table {FILTER_TABLE} 2>/dev/null || true
rm -f /etc/wireguard/{INTERFACE}.*
rmdir /run/wireguard 2>/dev/null || true  # Of wireguard-go, for the sockets of all interfaces.
! ip link show dev {INTERFACE} > /dev/null 2>&1 || {{ echo 'the interface is still there' >&2; exit 70; }}
! nft list table {FILTER_TABLE} > /dev/null 2>&1 || {{ echo 'the packet filter is still there' >&2; exit 70; }}
""",
    seconds=20,
    user="root",
)

# Arguments: an address of a peer, then packet sizes in bytes, the IP header included. Prints the sizes that were
# answered. Each echo has a random token, and is bound to the interface, so that nothing on another route can answer. It
# is written in Python because small images have no ping, and the agent needs Python anyway.
PROBE = rf"""
import errno, os, select, socket, struct, sys, time

peer, sizes = sys.argv[1], [int(size) for size in sys.argv[2:]]
link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
try:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"{INTERFACE}\0")
except OSError as error:
    if error.errno != errno.ENODEV:
        raise
    sys.exit(0)  # The interface is not made yet, or not now, so nothing passes.
token = os.urandom(16)

def echo(number, size):
    body = token + bytes(max(0, size - 44))
    blank = struct.pack("!BBHHH", 8, 0, 0, 7650, number) + body
    words = blank + bytes(len(blank) % 2)
    total = sum(struct.unpack(f"!{{len(words) // 2}}H", words))
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return blank[:2] + struct.pack("!H", ~total & 0xFFFF) + blank[4:]

def answered(number, size):
    end = time.monotonic() + (1.5 if number else 8)  # The first one may have to wait for a second handshake.
    while time.monotonic() < end:
        try:
            link.sendto(echo(number, size), (peer, 0))
        except OSError:
            pass  # No session yet; the attempt itself starts the handshake.
        again = time.monotonic() + 0.5
        while select.select([link], [], [], max(0, again - time.monotonic()))[0]:
            packet, sender = link.recvfrom(4096)
            same = packet[26:28] == struct.pack("!H", number) and packet[28:44] == token
            if sender[0] == peer and packet[20] == 0 and same:
                return True
    return False

for number, size in enumerate(sizes):
    if answered(number, size):
        print(size, flush=True)
    elif number == 0:
        break
"""

PROBE_PATH = Step(
    "probe path",
    """program=$1
shift
exec python3 -I -c "$program" "$@"
""",
    seconds=20,
    user="root",
)

# Arguments: a UDP port, and for how many seconds. Prints the tokens of `KNOCK` that arrive there. A raw socket gets
# what passes the machine's packet filter, whether or not WireGuard has the port already.
HEARING = r"""
import select, socket, sys, time

port, seconds, sockets = int(sys.argv[1]), float(sys.argv[2]), {}
for family in (socket.AF_INET, socket.AF_INET6):
    try:
        sockets[socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_UDP)] = family
    except OSError:
        pass  # A machine without IPv6.
end, found = time.monotonic() + seconds, set()
while time.monotonic() < end and len(found) < 32:
    for ready in select.select(list(sockets), [], [], max(0, end - time.monotonic()))[0]:
        packet = ready.recv(2048)
        if sockets[ready] == socket.AF_INET:
            packet = packet[(packet[0] & 15) * 4:]
        token = packet[24:56]
        good = len(token) == 32 and not token.strip(b"0123456789abcdef")
        if int.from_bytes(packet[2:4], "big") == port and packet[8:24] == b"splitplane-knock" and good:
            found.add(token.decode())
print(*sorted(found))
"""
HEARING_SECONDS = 4

HEAR = Step(
    "hear",
    """program=$1
shift
exec python3 -I -c "$program" "$@"
""",
    seconds=10,
    user="root",
)

# Arguments: an address, a UDP port, a token. From a port that the system chooses: a NAT has no way open for it.
KNOCKING = r"""
exec 3<>"/dev/udp/$1/$2"
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
  printf 'splitplane-knock%s' "$3" >&3 2>/dev/null || true  # A refusal of the one before.
  sleep 0.25
done
"""

KNOCK = Step(
    "knock",
    """program=$1
shift
exec bash -c "$program" bash "$@"
""",
    seconds=10,
    user="login",
)
