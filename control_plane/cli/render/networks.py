"""Private networks on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, table
from control_plane.cli.render.leases import labels
from control_plane.cli.words import both, coarse
from control_plane.wire.networks import NetworkMemberView, NetworkView


def network_table(networks: Sequence[NetworkView], now: datetime) -> RenderableType:
    if not networks:
        return Text("No networks that you may see.")
    rows = [
        (network.name, network.id, network.range, str(network.members), coarse(now - network.created_at))
        for network in networks
    ]
    columns = ("NAME", "ID", "RANGE", "MEMBERS", "AGE")
    return table(columns, rows, right=("MEMBERS", "AGE"), whole=("ID", "RANGE"))


def member_table(members: Sequence[NetworkMemberView], now: datetime) -> RenderableType:
    rows = [
        (member.address, member.lease, member.lease_id, coarse(now - member.joined_at)) for member in members
    ]
    return table(("ADDRESS", "LEASE", "ID", "SINCE"), rows, right=("SINCE",), whole=("ADDRESS", "ID"))


def network_page(
    network: NetworkView, members: Sequence[NetworkMemberView] | None, now: datetime
) -> RenderableType:
    """A network; `members` is None when they were not asked for."""
    parts: list[RenderableType] = [
        Text(network.name, style="bold"),
        Text(),
        facts(
            ("Network", network.id),
            ("Range", network.range),
            ("Members", f"{network.members} of at most {network.members_max}"),
            ("Labels", labels(network.labels)),
            ("Created", both(network.created_at, now)),
        ),
    ]
    if members:
        parts += [Text(), member_table(members, now)]
    return Group(*parts)
