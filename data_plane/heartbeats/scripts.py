"""What runs on the hub, and on the servers of clusters, so that agents can report: the collector, and a way to it.

    agent --tunnel--> socket in the network's namespace --systemd-socket-proxyd--> collector --SSH--> reconciler
    agent on a node --tunnel--> socket at the server's address in the overlay ---> collector --SSH--> reconciler

The collector is in no namespace of a network and has no network at all. On the hub, the proxies are systemd's own, one
for each network, so one network's connections do not use up those of another one. An overlay has one socket for the
nodes of all tenants, so systemd hands it to the collector itself, which sees who connects and bounds each node.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network

from data_plane.access.step import Step
from data_plane.access.turns import alone
from data_plane.documents.heartbeat import PORT
from data_plane.heartbeats import relay_units
from data_plane.heartbeats.collector.exchange import ANSWER_BYTES_MAX
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.heartbeats.units import FOLDER, LIBRARY, PROXY, SANDBOX, network_socket, overlay_socket

MISSING = 66
"""The exit status of an exchange on a host without this collector: EX_NOINPUT. One that waited in vain for another
exchange has `turns.BUSY`: a push would restart a collector that works, which then forgets what it holds."""

_SERVICE = "splitplane-heartbeats.service"
_SERVER_SOCKET = "splitplane-heartbeats.socket"

_COLLECTOR = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane collector of heartbeats
{{bound}}
[Service]
ExecStart=/usr/bin/python3 -I {LIBRARY}/collector.pyz collect {FOLDER}{{nodes}}
Restart=always
RestartSec=2
{SANDBOX}RuntimeDirectory=splitplane-heartbeats
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
MemoryMax=512M
TasksMax=16
CPUQuota=50%
"""

_NETWORK_PROXY = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane heartbeats of network %i
Requires=splitplane-heartbeats.service
After=splitplane-heartbeats.service

[Service]
ExecStart={PROXY} {FOLDER}/reports
{SANDBOX}PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
MemoryMax=64M
TasksMax=8
"""


def hub_units(ingest: IngestPlace | None = None) -> Sequence[str]:
    """The units of the hub: name and content of each. A unit without content is to be removed."""
    return (
        *(_SERVICE, _COLLECTOR.format(bound="", nodes="")),
        *("splitplane-heartbeats@.socket", network_socket("heartbeats", PORT)),
        *("splitplane-heartbeats@.service", _NETWORK_PROXY),
        *relay_units.hub_units(ingest),
    )


def server_units(address: str, nodes: str, ingest: IngestPlace | None = None) -> Sequence[str]:
    """The units of a cluster's server with this address in its overlay, whose range is `nodes`, as above."""
    bound = f"BindsTo={_SERVER_SOCKET}\nAfter={_SERVER_SOCKET}\n"
    return (
        *(_SERVICE, _COLLECTOR.format(bound=bound, nodes=f" {IPv4Network(nodes)}")),
        *(_SERVER_SOCKET, overlay_socket("heartbeats", address, PORT)),
        *relay_units.server_units(address, nodes, ingest),
    )


# Argument: the collector's digest. Input: the collector.
PUSH_COLLECTOR = Step(
    "push collector",
    f"""set -eu
umask 022
install -d -m 755 {LIBRARY}
new=$(mktemp {LIBRARY}/collector.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new"
[ "$(sha256sum < "$new" | cut -c 1-64)" = "$1" ] || {{ echo 'what arrived has another digest' >&2; exit 65; }}
chmod 644 "$new"
mv -f "$new" {LIBRARY}/collector.pyz
[ ! -e /etc/systemd/system/{_SERVICE} ] || systemctl try-restart {_SERVICE}
[ ! -e /etc/systemd/system/{relay_units.SERVER_SERVICE} ] || systemctl try-restart {relay_units.SERVER_SERVICE}
""",
    seconds=20,
    user="root",
)

_ALONE = alone("/run/lock/splitplane-heartbeats.lock", "exchange", 8)
# Arguments: the collector's digest, then name and content of each unit. Input: a request; prints the answer. A socket
# that is there already is left alone, so that a call without news costs one systemctl. Sockets of templates are started
# for each network; what is no template is started itself, and anew when one of them has changed. Of a template that has
# changed, what runs is stopped. A unit without content is stopped and removed.
EXCHANGE = Step(
    "exchange heartbeats",
    f"""set -eu
umask 022
{_ALONE}[ "$(sha256sum < {LIBRARY}/collector.pyz 2>/dev/null | cut -c 1-64)" = "$1" ] || exit {MISSING}
shift
units=/etc/systemd/system
started=
changed=
templates=
outdated=
put() {{
  [ "$(cat "$units/$1" 2>/dev/null)" = "$(printf '%s' "$2")" ] && return
  case $1 in *@*) outdated="$outdated ${{1%@*}}@*.${{1##*.}}" ;; *) outdated="$outdated $1" ;; esac
  changed=yes
  if [ -z "$2" ]; then
    rm -f "$units/$1"
    return
  fi
  printf '%s' "$2" > "$units/$1.new"
  mv -f "$units/$1.new" "$units/$1"
}}
while [ $# -ge 2 ]; do
  put "$1" "$2"
  if [ -n "$2" ]; then
    case $1 in *@.socket) templates="$templates ${{1%.socket}}" ;; *@*) ;; *) started="$started $1" ;; esac
  fi
  shift 2
done
if [ -n "$changed" ]; then
  systemctl daemon-reload
  set -f  # What matches is for systemctl to find, among units.
  systemctl stop $started $outdated 2>/dev/null || true
  set +f
fi
for space in /run/netns/splitplane-*; do
  number=${{space##*-}}
  case $number in *[!0-9]*|'') continue ;; esac
  for template in $templates; do started="$started $template$number.socket"; done
done
systemctl start --no-block $started
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -S {FOLDER}/exchange ] || break
  sleep 0.2
done
exec python3 -I {LIBRARY}/collector.pyz exchange {FOLDER}
""",
    seconds=40,
    user="root",
    output_bytes_max=ANSWER_BYTES_MAX,
)

REMOVE_COLLECTOR = Step(
    "remove collector",
    f"""set -eu
for unit in {_SERVER_SOCKET} {_SERVICE} {relay_units.SERVER_SOCKET} {relay_units.SERVER_SERVICE}; do
  systemctl stop $unit 2>/dev/null || true
  rm -f /etc/systemd/system/$unit
done
rm -f {LIBRARY}/collector.pyz
rmdir {LIBRARY} 2>/dev/null || true
systemctl daemon-reload
systemctl reset-failed 'splitplane-heartbeats*' 'splitplane-samples*' 2>/dev/null || true
""",
    seconds=30,
    user="root",
)
