"""What runs on the hub so that agents can report: the collector, and a way to it from the namespace of each network.

    agent --tunnel--> socket in the network's namespace --systemd-socket-proxyd--> collector --SSH--> reconciler

The collector is in no namespace of a network and has no network at all. The proxies are systemd's own, one for each
network, so one network's connections do not use up those of another one.
"""

from data_plane.access.step import Step
from data_plane.documents.heartbeat import PORT
from data_plane.heartbeats.collector.exchange import ANSWER_BYTES_MAX

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

COLLECTOR = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane collector of heartbeats

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

[Install]
WantedBy=multi-user.target
"""

SOCKET = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane heartbeats of network %i
BindsTo=splitplane-mesh@%i.service
After=splitplane-mesh@%i.service

[Socket]
ListenStream={PORT}
NetworkNamespacePath=/run/netns/splitplane-%i
Backlog=64
"""

PROXY = f"""# Written by Splitplane; changes are lost.
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
[ ! -e /etc/systemd/system/splitplane-heartbeats.service ] || systemctl try-restart splitplane-heartbeats.service
""",
    seconds=20,
    user="root",
)

# Arguments: the collector's digest, and the three units. Input: a request; prints the answer. A socket that is there
# already is left alone, so that a call without news costs one systemctl.
EXCHANGE = Step(
    "exchange heartbeats",
    f"""set -eu
umask 022
exec 9> /run/lock/splitplane-heartbeats.lock
flock -w 8 9 || {{ echo 'another exchange is running' >&2; exit 74; }}
[ "$(sha256sum < {_LIBRARY}/collector.pyz 2>/dev/null | cut -c 1-64)" = "$1" ] || exit {MISSING}
units=/etc/systemd/system
changed=
put() {{
  [ "$(cat "$units/$1" 2>/dev/null)" = "$(printf '%s' "$2")" ] && return
  printf '%s' "$2" > "$units/$1.new"
  mv -f "$units/$1.new" "$units/$1"
  changed=yes
}}
put splitplane-heartbeats.service "$2"
put splitplane-heartbeats@.socket "$3"
put splitplane-heartbeats@.service "$4"
if [ -n "$changed" ]; then
  systemctl daemon-reload
  systemctl enable --quiet splitplane-heartbeats.service
  systemctl restart splitplane-heartbeats.service
fi
sockets=
for space in /run/netns/splitplane-*; do
  number=${{space##*-}}
  case $number in *[!0-9]*|'') continue ;; esac
  sockets="$sockets splitplane-heartbeats@$number.socket"
done
systemctl start --no-block splitplane-heartbeats.service $sockets
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
