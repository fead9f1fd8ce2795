"""What the units of ours on the hub and on the servers of clusters have in common."""

from ipaddress import IPv4Address

from data_plane.mesh.pod_filter import INTERFACE

LIBRARY = "/usr/local/lib/splitplane"
FOLDER = "/run/splitplane-heartbeats"
"""The collector's sockets, and what it writes down for the relay of samples."""
SANDBOX = """DynamicUser=yes
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

CONNECTIONS_MAX = 32
"""Of the agents of one network to one service, at the same time. Others wait in the socket's queue."""
PROXY = f"/usr/lib/systemd/systemd-socket-proxyd --connections-max={CONNECTIONS_MAX} --exit-idle-time=120s"


def network_socket(what: str, port: int) -> str:
    """The template of a socket in the namespace of each network."""
    return f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane {what} of network %i
BindsTo=splitplane-mesh@%i.service
After=splitplane-mesh@%i.service

[Socket]
ListenStream={port}
NetworkNamespacePath=/run/netns/splitplane-%i
Backlog=64
"""


def overlay_socket(what: str, address: str, port: int) -> str:
    """A socket of a cluster's server at its address in the overlay.

    It is bound to the interface, not to its name, so it ends with the interface, and its service with the socket: the
    next exchange starts both again. The default dependencies would want it before what the tunnel needs.
    """
    return f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane {what} of nodes
DefaultDependencies=no
BindsTo=wg-quick@{INTERFACE}.service
After=wg-quick@{INTERFACE}.service
Conflicts=shutdown.target
Before=shutdown.target

[Socket]
ListenStream={IPv4Address(address)}:{port}
BindToDevice={INTERFACE}
FreeBind=yes
Backlog=128
"""
