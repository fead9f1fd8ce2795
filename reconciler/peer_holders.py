"""Who lists the keys of a node: its tunnels at the other ends."""

from control_plane.db import overlays, relays, server_hosts
from control_plane.db.connection import Connection
from control_plane.domain import peer_map
from control_plane.domain.node import Node
from reconciler.overlay import map_of, server_member
from reconciler.peer_evidence import member_with, numbers


async def who_lists(connection: Connection, node: Node) -> frozenset[int]:
    """Who has to list a new key of this node, by number. Empty while it is not on the peer map."""
    return (await _holders(connection, node))[0]


async def who_may_list(connection: Connection, node: Node) -> frozenset[int]:
    """Who may list a key of this node, by number, also if the map has changed a moment ago."""
    return (await _holders(connection, node))[1]


async def _holders(connection: Connection, node: Node) -> tuple[frozenset[int], frozenset[int]]:
    row = await overlays.get(connection, node.cluster_id)
    hosts = await server_hosts.of_cluster(connection, node.cluster_id)
    if node.public_key is None or row is None or row.public_key is None or not hosts:
        return frozenset(), frozenset()
    has_relay = await relays.exists(connection, node.cluster_id, node.organization_id)
    found = await overlays.members(connection, node.cluster_id)
    overlay = map_of(row.block, server_member(row.public_key, hosts[0].outside), found)
    own = member_with(overlay, node.number)
    if own is None:
        return frozenset(), frozenset()
    wanted, possible = peer_map.holders_of(overlay, own), peer_map.may_list(overlay, own)
    through = node.organization_id in wanted
    return numbers(wanted, has_relay=has_relay and through), numbers(possible, has_relay=has_relay or through)
