"""Private networks, which the machines of a project's leases join."""

from msgspec import field

from control_plane.wire.common import Labels, Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, NetworkIdText, ProjectIdText


class NetworkRequest(Request):
    """A network to be made."""

    name: Name
    """Unique in the project, such as `training`. It must not begin with `net_`."""
    labels: Labels = field(default_factory=dict)
    """Words of your own."""


class NetworkLabelsRequest(Request):
    """The labels that a network shall have."""

    labels: Labels
    """They replace all labels that the network has."""


class NetworkView(View):
    """A private network of a project. Its machines reach each other, and no machine of another network."""

    id: NetworkIdText
    """The id of the network."""
    project_id: ProjectIdText
    """The project."""
    name: str
    """Every project starts with a network called `default`, which leases join that name none."""
    range: str
    """Its addresses, such as `10.64.4.0/22`. No other network of the organization has them."""
    members: int
    """How many machines are in it now."""
    members_max: int
    """How many machines it can hold."""
    labels: dict[str, str]
    """The words that you gave it."""
    created_at: Timestamp
    """When it was created."""


class NetworkPage(View):
    """A page of networks."""

    items: tuple[NetworkView, ...]
    """The networks, oldest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class NetworkMemberView(View):
    """The machine of a lease in a network."""

    lease_id: LeaseIdText
    """The lease."""
    lease: str
    """The name of the lease."""
    address: str
    """The machine's address in the network."""
    joined_at: Timestamp
    """When it joined."""


class NetworkMemberPage(View):
    """A page of a network's members."""

    items: tuple[NetworkMemberView, ...]
    """The members by their addresses."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
