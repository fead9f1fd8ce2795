"""The scripts that run on the hub. Their arguments are public; the networks' private keys never leave the hub."""

from collections.abc import Sequence
from itertools import pairwise

from data_plane.access.step import Step
from data_plane.access.turns import alone, fenced
from data_plane.mesh.port import Network, Peer
from data_plane.mesh.wireguard import wireguard_key

_DIRECTORY = "/etc/splitplane/mesh"

# What the unit starts, at boot and whenever `sync` finds no interface. It uses nsenter instead of `ip netns exec`,
# because the latter mounts a new /sys, which containers are not allowed to do.
UP = f"""#!/bin/sh
# Brings up tenant network $1 from {_DIRECTORY}/$1.conf. Written by Splitplane; changes are lost.
set -eu
address=$(cat {_DIRECTORY}/$1.address)
device=spmesh$1
space=splitplane-$1
inside() {{ nsenter --net="/run/netns/$space" -- "$@"; }}
[ -e "/run/netns/$space" ] || ip netns add "$space"
ip link del dev "$device" 2>/dev/null || true  # Left by a run that died before it moved the device.
ip link add dev "$device" type wireguard 2>/dev/null || wireguard-go "$device"
# Before the move, because wireguard-go looks its device up by name in this namespace.
wg setconf "$device" {_DIRECTORY}/$1.conf
ip link set dev "$device" netns "$space"
inside ip address add "$address" dev "$device"
inside ip link set dev lo up
inside ip link set dev "$device" mtu 1420 up
while read -r range; do inside ip route replace "$range" dev "$device"; done < "{_DIRECTORY}/$1.routes"
# Machines reach each other through this one device; an ICMP redirect would tell them to bypass the hub.
inside sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward
  for name in all default '"$device"'; do echo 0 > "/proc/sys/net/ipv4/conf/$name/send_redirects"; done'
"""

UNIT = """# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane tenant network %i
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/splitplane/mesh-up %i
# The link is deleted first, which frees the UDP port at once; deleting the namespace frees it some time later.
ExecStopPost=-/bin/sh -c 'nsenter --net=/run/netns/splitplane-%i -- ip link del dev spmesh%i'
ExecStopPost=-/bin/sh -c 'ip netns del splitplane-%i'

[Install]
WantedBy=multi-user.target
"""

# Only one run at a time for each network. wireguard-go is started by systemd only, so no daemon inherits the lock's
# descriptor and holds it for ever.
_HEAD = f"""set -eu
umask 077
number=$1
device=spmesh$number
space=splitplane-$number
unit=splitplane-mesh@$number.service
wanted=/etc/systemd/system/multi-user.target.wants
{alone("/run/lock/splitplane-mesh-$number.lock", "sync of this network", 8)}mkdir -p {_DIRECTORY}
cd {_DIRECTORY}
# The highest fence stays after the network was dropped.
{fenced("$number.fence", "this network was set up by a later worker")}"""

# Arguments: network number, hub's address with prefix, UDP port, UP, UNIT, ranges beyond the network's or nothing, the
# fence or `-`.
# Input: `key address/32` lines, with the range of its pods besides for the node of a cluster, or a key alone.
# `syncconf` keeps the sessions of unchanged peers. It runs only if the peers differ, because wireguard-go reopens its
# socket at every configuration, and a sync without changes must cost nothing.
SYNC = Step(
    "sync hub",
    _HEAD
    + """
inside() { nsenter --net="/run/netns/$space" -- "$@"; }
put() {
  printf '%s' "$3" > "$1.$number"  # With the network's number, because other networks may be synced at the same time.
  chmod "$2" "$1.$number"
  mv -f "$1.$number" "$1"
}
# A range a line, because WireGuard lists those of a peer in an order of its own.
ranges() {
  while read -r key address pods; do
    printf '%s\\n' "$key ${address#'(none)'}" ${pods:+"$key $pods"}
  done | sort
}
mkdir -p /usr/local/lib/splitplane
keep_fence "$7"
put /usr/local/lib/splitplane/mesh-up 755 "$4"
template=/etc/systemd/system/splitplane-mesh@.service
if [ "$(cat "$template" 2>/dev/null)" != "$(printf '%s' "$5")" ]; then
  put "$template" 644 "$5"
  systemctl daemon-reload
fi
put "$number.address" 600 "$2"
put "$number.routes" 600 "${6:+$6
}"
if [ ! -s "$number.key" ]; then
  wg genkey > "$number.key.new"
  mv -f "$number.key.new" "$number.key"
fi
sort > "$number.peers"
{
  printf '[Interface]\\nListenPort = %s\\nPrivateKey = ' "$3"
  cat "$number.key"
  while read -r key address pods; do
    printf '[Peer]\\nPublicKey = %s\\n' "$key"
    [ -z "$address" ] || printf 'AllowedIPs = %s\\n' "$address${pods:+, $pods}"
  done < "$number.peers"
} > "$number.conf.new"
mv -f "$number.conf.new" "$number.conf"
mkdir -p "$wanted"
ln -sf "$template" "$wanted/$unit"  # What `systemctl enable` does, without making systemd reload all units.
# Its key may have been removed on the hub, because it leaked: then it has another one by now.
as_wanted() {
  [ "$(inside wg show "$device" public-key 2>/dev/null)" = "$(wg pubkey < "$number.key")" ] || return 1
  inside wg show "$device" allowed-ips > "$number.shown" 2>/dev/null || return 1
  tr '\\t' ' ' < "$number.shown" | ranges | cmp -s - "$number.wanted"
}
ranges < "$number.peers" > "$number.wanted"
if systemctl is-active --quiet "$unit" && inside ip link show dev "$device" up 2>/dev/null | grep -q .; then
  as_wanted || inside wg syncconf "$device" "$number.conf"
else
  systemctl restart "$unit" || { journalctl --no-pager --output cat --lines 8 --unit "$unit" >&2 || true; exit 70; }
fi
# What it lists is the evidence that a machine which left is not let in any more.
as_wanted || { echo 'the hub has another key, or lists other peers than it was given' >&2; exit 70; }
rm -f "$number.shown" "$number.wanted"
wg pubkey < "$number.key"
""",
    seconds=15,  # Usually well under 1 s, even for a full network; waiting for the lock takes up to 8 s.
    user="root",
)

# Arguments: network number, the fence or `-`. The fence stays: what an older worker brings later is refused.
DROP = Step(
    "drop network",
    _HEAD
    + """
keep_fence "$2"
rm -f "$wanted/$unit"
systemctl stop "$unit" 2>/dev/null || true
systemctl reset-failed "$unit" 2>/dev/null || true
ip netns del "$space" 2>/dev/null || true
find . -maxdepth 1 -name "$number.*" ! -name "$number.fence" -delete
[ ! -e "/run/netns/$space" ] || { echo "namespace $space is still there" >&2; exit 70; }
""",
    seconds=20,
    user="root",
)


def peers_text(network: Network, peers: Sequence[Peer]) -> str:
    """The hub's list of peers. Raises ValueError for anything that would let one machine pose as another.

    WireGuard itself would silently give an address that two keys claim to the last of them.
    """
    if len(peers) > network.peers_max:
        raise ValueError(f"more than {network.peers_max} machines in one network")
    for peer in peers:
        _check(network, peer)
    _distinct("an address", [peer.address for peer in peers])
    _distinct("a key", [key for peer in peers for key in _keys(peer)])
    pods = sorted(peer.pods for peer in peers if peer.pods is not None)
    if any(one.overlaps(other) for one, other in pairwise(pods)):
        raise ValueError("two machines share addresses of pods")
    return "".join(_lines(peer) for peer in peers)


def _check(network: Network, peer: Peer) -> None:
    if not network.holds(peer.address):
        raise ValueError(f"{peer.address} is not a machine's address in {network.subnet}")
    if any(wireguard_key(key) != key for key in _keys(peer)):
        raise ValueError("a key ends in a line break")
    if peer.pods is not None and not (network.pods and peer.pods.subnet_of(network.pods)):
        raise ValueError(f"{peer.pods} is no range of pods here")


def _keys(peer: Peer) -> tuple[str, ...]:
    return (peer.public_key,) if peer.next_key is None else (peer.public_key, peer.next_key)


def _distinct(what: str, values: Sequence[str]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"two machines share {what}")


def _lines(peer: Peer) -> str:
    pods = "" if peer.pods is None else f" {peer.pods}"
    following = "" if peer.next_key is None else f"{peer.next_key}\n"
    return f"{peer.public_key} {peer.address}/32{pods}\n{following}"
