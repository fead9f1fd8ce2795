"""Private networks on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.network import MEMBERS_MAX, Member, Network
from control_plane.wire.networks import NetworkMemberView, NetworkView


def network_view(network: Network) -> NetworkView:
    return NetworkView(
        id=on_wire(Prefix.NETWORK, network.id),
        project_id=on_wire(Prefix.PROJECT, network.project_id),
        name=network.name,
        range=str(network.range),
        members=network.members,
        members_max=MEMBERS_MAX,
        labels=dict(network.labels),
        created_at=network.created_at,
    )


def member_view(member: Member) -> NetworkMemberView:
    return NetworkMemberView(
        lease_id=on_wire(Prefix.LEASE, member.lease_id),
        lease=member.lease_name,
        address=member.address,
        joined_at=member.joined_at,
    )
