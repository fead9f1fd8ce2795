"""Hosts that the servers of clusters run on."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import AddressText, Name, NextCursor, RegionName, Request, Timestamp, View
from control_plane.wire.vocabulary import ClusterIdText

Port = Annotated[int, Meta(ge=1, le=65_535, description="A TCP port, 1 to 65535.", examples=[22])]
HostKeyText = Annotated[
    str,
    Meta(
        max_length=8_192,
        description="One line of an OpenSSH public key file.",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"],
    ),
]


class ServerHostRequest(Request):
    """A host for the server of a cluster. docs/clusters.md says how to prepare it."""

    name: Name
    """Unique among the server hosts."""
    region: RegionName
    """Where it is. Clusters are created in the regions of server hosts."""
    address: AddressText
    """Where the reconciler reaches its sshd."""
    host_key: HostKeyText
    """Its SSH host key: one line of an OpenSSH public key file."""
    ssh_port: Port = 22
    """The port of its sshd."""
    outside: AddressText | None = None
    """The address at which nodes and customers reach it; null when that is `address`."""


class ServerHostView(View):
    """A host of the operator's that the server of one cluster can run on."""

    name: str
    """Its name."""
    region: str
    """Where it is."""
    address: str
    """Where the reconciler reaches its sshd."""
    ssh_port: int
    """The port of its sshd."""
    host_key: str
    """Its SSH host key."""
    outside: str
    """The address at which nodes and customers reach it."""
    cluster_id: ClusterIdText | None
    """The cluster whose server is there; null while it is free."""
    cluster: str | None
    """The name of that cluster; null while the host is free."""
    added_at: Timestamp
    """When it was added."""


class ServerHostPage(View):
    """A page of server hosts."""

    items: tuple[ServerHostView, ...]
    """The hosts, in order of name."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
