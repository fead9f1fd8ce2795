"""Installs the agent as a service on a machine, with the credential of its lease, and removes it.

The service runs as a user of its own that exists only while it runs, within limits, and reads the credential from
systemd. It can do one thing as root: end with the status `ENDED`, upon which systemd runs our script that removes it.
The lease's customer may be root there and change all of this, which then gains nothing: the credential is good for
reports about this machine alone.
"""

import json
from dataclasses import asdict

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Step
from data_plane.documents.agent_config import ENDED, Config
from data_plane.inspection.agent import MISSING, PUSH_AGENT
from data_plane.inspection.bundle import Bundle

_LIBRARY = "/usr/local/lib/splitplane"
_UNIT = "/etc/systemd/system/splitplane-agent.service"
BELONGINGS = (
    *(_UNIT, "/etc/systemd/system/multi-user.target.wants/splitplane-agent.service"),
    *("/etc/splitplane/agent.json", f"{_LIBRARY}/agent.pyz", f"{_LIBRARY}/remove-agent"),
    *("/var/lib/private/splitplane-agent", "/var/lib/splitplane-agent"),
)
"""All files and folders of the service."""

# Without PrivateDevices and ProtectProc, which would hide the GPUs from the driver's library.
UNIT = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane agent
After=network-online.target wg-quick@splitplane.service wg-quick@spoverlay.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 -I {_LIBRARY}/agent.pyz serve
ExecStopPost=+/bin/sh -c 'test "$EXIT_STATUS" != {ENDED} || \\
    systemd-run --quiet --collect --no-block {_LIBRARY}/remove-agent'
Restart=always
RestartSec=5
RestartPreventExitStatus={ENDED}
SuccessExitStatus={ENDED}
DynamicUser=yes
LoadCredential=agent:/etc/splitplane/agent.json
StateDirectory=splitplane-agent
StateDirectoryMode=0700
RuntimeDirectory=splitplane
RuntimeDirectoryMode=0755
CPUQuota=10%
CPUWeight=10
IOWeight=10
MemoryMax=256M
MemorySwapMax=0
TasksMax=64
LimitNOFILE=256
OOMScoreAdjust=900
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077

[Install]
WantedBy=multi-user.target
"""

REMOVE = f"""#!/bin/sh
# Removes the agent and all that belongs to it. Written by Splitplane.
systemctl disable --now splitplane-agent.service 2>/dev/null
rm -rf {" ".join(BELONGINGS)}
rmdir /etc/splitplane {_LIBRARY} 2>/dev/null
systemctl daemon-reload
systemctl reset-failed splitplane-agent.service 2>/dev/null
exit 0
"""
REMOVE_AGENT = Step("remove agent", REMOVE, seconds=30, user="root")

# Arguments: the agent's digest, the unit, the script that removes it. Input: the configuration, with the credential. A
# service that runs is restarted, because its credential is a new one.
INSTALL_AGENT = Step(
    "install agent",
    f"""set -eu
umask 077
from="$(getent passwd "$SUDO_USER" | cut -d : -f 6)/.splitplane/agent-$1.pyz"
[ -f "$from" ] || exit {MISSING}
mkdir -p /etc/splitplane
install -d -m 755 {_LIBRARY}
new=$(mktemp {_LIBRARY}/agent.XXXXXX)
trap 'rm -f "$new"' EXIT
cat "$from" > "$new"
[ "$(sha256sum < "$new" | cut -c 1-64)" = "$1" ] || exit {MISSING}
chmod 644 "$new"
cat > /etc/splitplane/agent.json.new
mv -f /etc/splitplane/agent.json.new /etc/splitplane/agent.json
mv -f "$new" {_LIBRARY}/agent.pyz
printf '%s' "$3" > {_LIBRARY}/remove-agent
chmod 755 {_LIBRARY}/remove-agent
printf '%s' "$2" > {_UNIT}
chmod 644 {_UNIT}
systemctl daemon-reload
systemctl enable --quiet splitplane-agent.service
systemctl restart splitplane-agent.service
""",
    seconds=30,
    user="root",
)


async def install_agent(session: Session, agent: Bundle, config: Config) -> None:
    """Install and start the service, or replace the one that is there. Raises Unreachable and StepFailed."""
    arguments = [agent.sha256, UNIT, REMOVE]
    content = json.dumps(asdict(config)).encode()
    answer = await session.run(INSTALL_AGENT, arguments, stdin=content)
    if answer.exit_status == MISSING:
        await must(session, PUSH_AGENT, [agent.sha256], stdin=agent.content)
        answer = await session.run(INSTALL_AGENT, arguments, stdin=content)
    if answer.exit_status != 0:
        raise StepFailed(INSTALL_AGENT.name, answer.exit_status, answer.detail)


async def remove_agent(session: Session) -> None:
    """Take the service and all that belongs to it off a machine, if it is there. Raises AccessError."""
    await must(session, REMOVE_AGENT)
