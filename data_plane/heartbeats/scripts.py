"""What runs on the hub, and on the servers of clusters, so that agents can report: the collector, and a way to it.

    agent --tunnel--> socket in the network's namespace --systemd-socket-proxyd--> collector --SSH--> reconciler
    agent on a node --tunnel--> socket at the server's address in the overlay ---> collector --SSH--> reconciler

The collector is in no namespace of a network and has no network at all. On the hub, the proxies are systemd's own, one
for each network, so one network's connections do not use up those of another one. An overlay has one socket for the
nodes of all tenants, so systemd hands it to the collector itself, which sees who connects and bounds each node.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address

from data_plane.access.step import Step
from data_plane.documents.heartbeat import PORT
from data_plane.heartbeats.collector.exchange import ANSWER_BYTES_MAX
from data_plane.mesh.pod_filter import INTERFACE

MISSING = 75
FOLDER = "/run/splitplane-heartbeats"
_LIBRARY = "/usr/local/lib/splitplane"
CONNECTIONS_MAX = 32
"""Of the agents of one network, at the same time. Others wait in the socket's queue."""

_SANDBOX = """DynamicUser=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""

_SERVICE = "splitplane-heartbeats.service"
_SERVER_SOCKET = "splitplane-heartbeats.socket"

_COLLECTOR = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane collector of heartbeats
{{bound}}
[Service]
ExecStart=/usr/bin/python3 -I {_LIBRARY}/collector.pyz collect {FOLDER}
Restart=always
RestartSec=2
{_SANDBOX}RuntimeDirectory=splitplane-heartbeats
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
MemoryMax=512M
TasksMax=16
CPUQuota=50%
"""

_NETWORK_SOCKET = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane heartbeats of network %i
BindsTo=splitplane-mesh@%i.service
After=splitplane-mesh@%i.service

[Socket]
ListenStream={PORT}
NetworkNamespacePath=/run/netns/splitplane-%i
Backlog=64
"""

_NETWORK_PROXY = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane heartbeats of network %i
Requires=splitplane-heartbeats.service
After=splitplane-heartbeats.service

[Service]
ExecStart=/usr/lib/systemd/systemd-socket-proxyd --connections-max={CONNECTIONS_MAX} --exit-idle-time=120s \\
    {FOLDER}/reports
{_SANDBOX}PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
MemoryMax=64M
TasksMax=8
"""

# A socket is bound to an interface, not to its name, so it ends with the interface, and the collector with the socket:
# the next exchange starts both again. The default dependencies would want it before what the tunnel needs.
_OVERLAY_SOCKET = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane heartbeats of nodes
DefaultDependencies=no
BindsTo=wg-quick@{INTERFACE}.service
After=wg-quick@{INTERFACE}.service
Conflicts=shutdown.target
Before=shutdown.target

[Socket]
ListenStream={{address}}:{PORT}
BindToDevice={INTERFACE}
FreeBind=yes
Backlog=128
"""

HUB_UNITS = (
    *(_SERVICE, _COLLECTOR.format(bound="")),
    *("splitplane-heartbeats@.socket", _NETWORK_SOCKET),
    *("splitplane-heartbeats@.service", _NETWORK_PROXY),
)
"""The units of the hub: name and content of each."""


def server_units(address: str) -> Sequence[str]:
    """The units of a cluster's server with this address in its overlay: name and content of each."""
    bound = f"BindsTo={_SERVER_SOCKET}\nAfter={_SERVER_SOCKET}\n"
    return (
        *(_SERVICE, _COLLECTOR.format(bound=bound)),
        *(_SERVER_SOCKET, _OVERLAY_SOCKET.format(address=IPv4Address(address))),
    )


# Argument: the collector's digest. Input: the collector.
PUSH_COLLECTOR = Step(
    "push collector",
    f"""set -eu
umask 022
install -d -m 755 {_LIBRARY}
new=$(mktemp {_LIBRARY}/collector.XXXXXX)
trap 'rm -f "$new"' EXIT
cat > "$new"
[ "$(sha256sum < "$new" | cut -c 1-64)" = "$1" ] || {{ echo 'what arrived has another digest' >&2; exit 65; }}
chmod 644 "$new"
mv -f "$new" {_LIBRARY}/collector.pyz
[ ! -e /etc/systemd/system/{_SERVICE} ] || systemctl try-restart {_SERVICE}
""",
    seconds=20,
    user="root",
)

# Arguments: the collector's digest, then name and content of each unit. Input: a request; prints the answer. A socket
# that is there already is left alone, so that a call without news costs one systemctl. Templates are started for each
# network; what is no template is started itself, and anew when one of them has changed.
EXCHANGE = Step(
    "exchange heartbeats",
    f"""set -eu
umask 022
exec 9> /run/lock/splitplane-heartbeats.lock
flock -w 8 9 || {{ echo 'another exchange is running' >&2; exit 74; }}
[ "$(sha256sum < {_LIBRARY}/collector.pyz 2>/dev/null | cut -c 1-64)" = "$1" ] || exit {MISSING}
shift
units=/etc/systemd/system
started=
changed=
put() {{
  [ "$(cat "$units/$1" 2>/dev/null)" = "$(printf '%s' "$2")" ] && return
  printf '%s' "$2" > "$units/$1.new"
  mv -f "$units/$1.new" "$units/$1"
  changed=yes
}}
while [ $# -ge 2 ]; do
  put "$1" "$2"
  case $1 in *@*) ;; *) started="$started $1" ;; esac
  shift 2
done
if [ -n "$changed" ]; then
  systemctl daemon-reload
  systemctl stop $started
fi
for space in /run/netns/splitplane-*; do
  number=${{space##*-}}
  case $number in *[!0-9]*|'') continue ;; esac
  started="$started splitplane-heartbeats@$number.socket"
done
systemctl start --no-block $started
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -S {FOLDER}/exchange ] || break
  sleep 0.2
done
exec python3 -I {_LIBRARY}/collector.pyz exchange {FOLDER}
""",
    seconds=40,
    user="root",
    output_bytes_max=ANSWER_BYTES_MAX,
)

REMOVE_COLLECTOR = Step(
    "remove collector",
    f"""set -eu
systemctl stop {_SERVER_SOCKET} {_SERVICE} 2>/dev/null || true
rm -f /etc/systemd/system/{_SERVICE} /etc/systemd/system/{_SERVER_SOCKET} {_LIBRARY}/collector.pyz
rmdir {_LIBRARY} 2>/dev/null || true
systemctl daemon-reload
systemctl reset-failed {_SERVICE} {_SERVER_SOCKET} 2>/dev/null || true
""",
    seconds=30,
    user="root",
)
