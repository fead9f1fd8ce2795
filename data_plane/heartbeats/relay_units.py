"""The units with which samples get to the ingest process: on the hub, and on the servers of clusters.

    agent --tunnel--> socket in the network's namespace --systemd-socket-proxyd--> ingest process
    agent on a node --tunnel--> socket at the server's address in the overlay --relay--> ingest process

Bytes are passed on as they are. A network has a proxy of its own, so its connections use up those of no other one. An
overlay has one socket for the nodes of all tenants, behind which the collector's file bounds each node.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from data_plane.documents.sample_delivery import PORT
from data_plane.heartbeats.units import FOLDER, LIBRARY, PROXY, SANDBOX, network_socket, overlay_socket

SERVER_SERVICE, SERVER_SOCKET = "splitplane-samples.service", "splitplane-samples.socket"
_HUB_SERVICE, _HUB_SOCKET = "splitplane-samples@.service", "splitplane-samples@.socket"
_HOST = re.compile("[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class IngestPlace:
    """Where the ingest process listens, as the hub and the servers of clusters reach it."""

    host: str
    """A name or an IPv4 address."""
    port: int

    def __post_init__(self) -> None:
        if not _HOST.fullmatch(self.host) or not 1 <= self.port <= 65_535:
            raise ValueError("must be a host name or an IPv4 address and a port, such as 10.0.0.5:9450")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


_NETWORK_PROXY = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane samples of network %i

[Service]
ExecStart={PROXY} {{place}}
{SANDBOX}RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
MemoryMax=64M
TasksMax=8
"""

_RELAY = f"""# Written by Splitplane; changes are lost.
[Unit]
Description=Splitplane relay of samples
BindsTo={SERVER_SOCKET}
After={SERVER_SOCKET}

[Service]
ExecStart=/usr/bin/python3 -I {LIBRARY}/collector.pyz relay {{host}} {{port}} {{nodes}} {FOLDER}
Restart=always
RestartSec=2
{SANDBOX}RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
MemoryMax=256M
TasksMax=16
CPUQuota=50%
"""


def hub_units(place: IngestPlace | None) -> Sequence[str]:
    """The units of the hub: name and content of each. A unit without content is to be removed."""
    if place is None:
        return (_HUB_SERVICE, "", _HUB_SOCKET, "")
    return (_HUB_SERVICE, _NETWORK_PROXY.format(place=place), _HUB_SOCKET, network_socket("samples", PORT))


def server_units(address: str, nodes: str, place: IngestPlace | None) -> Sequence[str]:
    """The units of a cluster's server with this address in its overlay, whose range is `nodes`, as above."""
    if place is None:
        return (SERVER_SERVICE, "", SERVER_SOCKET, "")
    return (
        *(SERVER_SERVICE, _RELAY.format(host=place.host, port=place.port, nodes=IPv4Network(nodes))),
        *(SERVER_SOCKET, overlay_socket("samples", address, PORT)),
    )
