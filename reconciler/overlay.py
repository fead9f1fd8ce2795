"""Brings the peer map of a cluster to its members and to the hub."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network

from control_plane.db.overlays import MemberRow
from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import PODS, SERVER_NUMBER, address_of, range_of
from control_plane.domain.peer_map import Configuration, Member, Overlay, Relay, relay_peers
from data_plane.access.port import Session
from data_plane.mesh.node import apply_peers
from data_plane.mesh.port import Hub, HubIdentity, Network, OverlayPeer, OverlayPlace, Peer
from data_plane.mesh.tunnels import Interface

PORT = 51_820
"""The UDP port that members listen on."""


def server_member(key: str, outside: str, next_key: str | None = None) -> Member:
    """The server of a cluster, as its peer map has it."""
    host = f"[{outside}]" if ":" in outside else outside
    return Member(SERVER_NUMBER, key, endpoint=f"{host}:{PORT}", next_key=next_key)


def map_of(
    block: int,
    server: Member,
    found: Sequence[MemberRow],
    relays: Mapping[OrganizationId, Relay] | None = None,
) -> Overlay:
    """The members of an overlay, as the rows say."""
    nodes: dict[OrganizationId | None, list[Member]] = {}
    for row in found:
        member = Member(row.number, row.public_key, row.pod_block, row.endpoint, row.next_key)
        nodes.setdefault(row.organization_id, []).append(member)
    return Overlay(block, (server,), nodes, relays or {})


async def configure(
    session: Session, overlay: Overlay, configuration: Configuration, *, fence: int | None = None
) -> Interface:
    """Set a member up as the peer map wants it; returns what its interface lists afterwards. Raises AccessError."""
    return await apply_peers(session, place_of(overlay, configuration), peers_of(configuration), fence=fence)


async def sync_relay(
    hub: Hub, overlay: Overlay, organization_id: OrganizationId, number: int, *, fence: int | None = None
) -> HubIdentity:
    """Set up the relay of an organization, in the place with this number on the hub. Raises AccessError."""
    return await hub.sync(relay_network(overlay, number), hub_peers(overlay, organization_id), fence=fence)


def place_of(overlay: Overlay, configuration: Configuration) -> OverlayPlace:
    """Where a member is in its overlay."""
    return OverlayPlace(
        configuration.address,
        str(range_of(overlay.block)),
        str(PODS),
        servers=tuple(
            address_of(overlay.block, server.number)
            for server in overlay.servers
            if server.number != configuration.member.number
        ),
    )


def peers_of(configuration: Configuration) -> list[OverlayPeer]:
    """The tunnels of a member."""
    return [
        OverlayPeer(peer.public_key, peer.allowed, peer.endpoint, peer.keepalive)
        for peer in configuration.peers
    ]


def relay_network(overlay: Overlay, number: int) -> Network:
    """The network of a relay of this cluster with this place on the hub."""
    return Network(number, range_of(overlay.block), pods=PODS)


def hub_peers(overlay: Overlay, organization_id: OrganizationId) -> list[Peer]:
    """What the relay of an organization is given; empty when it needs none."""
    found: list[Peer] = []
    for peer in relay_peers(overlay, organization_id):
        if not peer.allowed:  # The next key of the node before it.
            found[-1] = Peer(found[-1].address, found[-1].public_key, found[-1].pods, peer.public_key)
            continue
        address, *pods = peer.allowed
        own = IPv4Network(pods[0]) if pods else None
        found.append(Peer(address.removesuffix("/32"), peer.public_key, own))
    return found
