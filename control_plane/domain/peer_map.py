"""Who has a WireGuard tunnel with whom in a cluster, and what each end lists about the other.

  - A node has a tunnel with every server of its cluster.
  - Two nodes have one if they are of one organization, and at least one of them can be reached from outside.
  - Two nodes of one organization that are both behind NAT meet through a relay: a place on the hub for their cluster
    and organization alone.
  - Nodes of two organizations have no tunnel and no relay in common. A node of no organization has tunnels with servers
    only.

A configuration has a version, which changes exactly when the configuration does. Versions are computed from digests of
groups, so that those of a whole fleet take time in proportion to its members and not to its tunnels.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain

from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import address_of, pods_of

Holder = int | OrganizationId
"""Who has a configuration: a member, by its number, or the relay of an organization."""
Version = str


@dataclass(frozen=True, slots=True)
class Member:
    """A server or a node."""

    number: int
    """Its place in the overlay, from which its address follows."""
    public_key: str
    """WireGuard public key, base64, that its packets are accepted with."""
    pod_block: int | None = None
    """Which range its pods have; None when it runs none."""
    endpoint: str | None = None
    """`host:port` at which it can be reached from outside; None behind NAT."""
    next_key: str | None = None
    """During a rotation: the key that it changes to. Others answer its handshakes, and accept no packet with it yet."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.public_key,) if self.next_key is None else (self.public_key, self.next_key)


@dataclass(frozen=True, slots=True)
class Relay:
    """How nodes reach the place of their organization on the hub."""

    public_key: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Overlay:
    """The members of one cluster. Raises ValueError if two of them share what only one can have.

    WireGuard itself would silently give a range that two keys claim to the last of them.
    """

    block: int
    servers: Sequence[Member] = ()
    """In the order of their numbers. Every one has an endpoint."""
    nodes: Mapping[OrganizationId | None, Sequence[Member]] = field(default_factory=dict)
    """By organization, in the order of their numbers. Under None: nodes that wait for one."""
    relays: Mapping[OrganizationId, Relay] = field(default_factory=dict)
    """Those that the hub has already."""

    def __post_init__(self) -> None:
        members = [*self.servers, *chain.from_iterable(self.nodes.values())]
        _distinct("number", (member.number for member in members))
        _distinct("range of pods", (member.pod_block for member in members if member.pod_block is not None))
        relays = (relay.public_key for relay in self.relays.values())
        _distinct("key", chain(relays, chain.from_iterable(member.keys for member in members)))
        for server in self.servers:
            if server.endpoint is None:
                raise ValueError(f"server {server.number} has no endpoint")


def _distinct(what: str, values: Iterable[object]) -> None:
    listed = list(values)
    if len(set(listed)) != len(listed):
        raise ValueError(f"two members share a {what}")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a tunnel, as one end lists it."""

    public_key: str
    allowed: tuple[str, ...]
    """Exactly the ranges that packets may come from and are sent to. Empty for the next key of a rotation."""
    endpoint: str | None
    """None when only the other end can open the tunnel."""
    keepalive: bool
    """Whether this end keeps the tunnel open: the one behind NAT, which forgets UDP mappings after 30 s or more."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a member has to be set up as."""

    address: str
    member: Member
    peers: tuple[Peer, ...]
    """Servers, then the relay, then nodes, each in the order of their numbers."""


def configurations(overlay: Overlay, only: Collection[int] | None = None) -> Iterator[Configuration]:
    """The peer map: the configurations of all members, or of those with these numbers."""

    def is_wanted(member: Member) -> bool:
        return only is None or member.number in only

    wanted_servers = any(is_wanted(server) for server in overlay.servers)
    nodes = _listed(overlay, _all_nodes(overlay), keepalive=False) if wanted_servers else []
    servers = {
        keepalive: _listed(overlay, overlay.servers, keepalive=keepalive) for keepalive in (False, True)
    }
    for place, server in enumerate(overlay.servers):
        if is_wanted(server):
            yield _configuration(overlay, server, _others(servers[False], place), nodes)
    for organization_id, group in _groups(overlay):
        if not any(is_wanted(node) for node in group):
            continue
        quiet, reachable = _listed(overlay, group, keepalive=False), _reachable(overlay, group)
        relayed = _relayed(overlay, organization_id, group)
        for place, node in enumerate(group):
            if not is_wanted(node):
                continue
            if node.endpoint is None:
                through = _through(relayed, overlay, node)
                yield _configuration(overlay, node, servers[True], through, reachable)
            else:
                yield _configuration(overlay, node, servers[False], _others(quiet, place))


def _all_nodes(overlay: Overlay) -> list[Member]:
    return sorted(chain.from_iterable(overlay.nodes.values()), key=lambda node: node.number)


def _groups(overlay: Overlay) -> Iterator[tuple[OrganizationId | None, Sequence[Member]]]:
    """Nodes that may have tunnels with each other. A node of no organization is alone."""
    for organization_id, nodes in overlay.nodes.items():
        if organization_id is None:
            yield from ((None, (node,)) for node in nodes)
        else:
            yield organization_id, nodes


_Listed = list[tuple[Peer, ...]]
"""For each member of a group, what others list for it."""


def _configuration(overlay: Overlay, member: Member, *listed: _Listed) -> Configuration:
    peers = tuple(chain.from_iterable(chain.from_iterable(listed)))
    return Configuration(address_of(overlay.block, member.number), member, peers)


def _listed(overlay: Overlay, members: Iterable[Member], *, keepalive: bool) -> _Listed:
    return [_peers(overlay, member, keepalive=keepalive) for member in members]


def _reachable(overlay: Overlay, group: Sequence[Member]) -> _Listed:
    """What nodes behind NAT list of their group."""
    return _listed(overlay, (node for node in group if node.endpoint is not None), keepalive=True)


def _peers(overlay: Overlay, member: Member, *, keepalive: bool) -> tuple[Peer, ...]:
    """The entries for a member: two during a rotation."""
    entry = Peer(member.public_key, _ranges(overlay, member), member.endpoint, keepalive)
    if member.next_key is None:
        return (entry,)
    return entry, Peer(member.next_key, (), member.endpoint, keepalive)


def _ranges(overlay: Overlay, member: Member) -> tuple[str, ...]:
    own = f"{address_of(overlay.block, member.number)}/32"
    return (own,) if member.pod_block is None else (own, pods_of(member.pod_block))


def _others(listed: _Listed, place: int) -> _Listed:
    return listed[:place] + listed[place + 1 :]


# Relays.


@dataclass(frozen=True, slots=True)
class _Relayed:
    """The nodes of an organization that meet through its relay."""

    relay: Relay
    nodes: Sequence[Member]
    ranges: Sequence[tuple[str, ...]]


def _behind_nat(group: Iterable[Member]) -> list[Member]:
    return [node for node in group if node.endpoint is None]


def _relayed(
    overlay: Overlay, organization_id: OrganizationId | None, group: Sequence[Member]
) -> _Relayed | None:
    relay = None if organization_id is None else overlay.relays.get(organization_id)
    nodes = _behind_nat(group)
    if relay is None or len(nodes) < 2:
        return None
    return _Relayed(relay, nodes, [_ranges(overlay, node) for node in nodes])


def _through(relayed: _Relayed | None, overlay: Overlay, node: Member) -> _Listed:
    """The relay as a node lists it, with exactly the members that it reaches through it."""
    if relayed is None:
        return []
    own = _ranges(overlay, node)
    allowed = tuple(chain.from_iterable(ranges for ranges in relayed.ranges if ranges != own))
    return [(Peer(relayed.relay.public_key, allowed, relayed.relay.endpoint, keepalive=True),)]


def relays_needed(overlay: Overlay) -> frozenset[OrganizationId]:
    """The organizations with two nodes behind NAT. The hub has a place for each of them, and for no other."""
    return frozenset(
        organization_id
        for organization_id, nodes in overlay.nodes.items()
        if organization_id is not None and len(_behind_nat(nodes)) > 1
    )


def relay_peers(overlay: Overlay, organization_id: OrganizationId) -> tuple[Peer, ...]:
    """What the relay of an organization lists: its nodes behind NAT. Empty when it needs no relay."""
    if organization_id not in relays_needed(overlay):
        return ()
    nodes = _behind_nat(overlay.nodes[organization_id])
    return tuple(chain.from_iterable(_listed(overlay, nodes, keepalive=False)))


# Versions.


def versions(overlay: Overlay) -> dict[Holder, Version]:
    """The version of every member's configuration, and of every relay's that is needed."""
    lines = {member.number: repr(member) for member in chain(overlay.servers, _all_nodes(overlay))}
    servers = _digest(lines, overlay.servers)
    nodes = _digest(lines, _all_nodes(overlay))
    found: dict[Holder, Version] = {
        server.number: _hash("server", overlay.block, lines[server.number], servers, nodes)
        for server in overlay.servers
    }
    for organization_id, group in _groups(overlay):
        found.update(_versions_of_group(overlay, lines, organization_id, group, servers))
    return found


def _versions_of_group(
    overlay: Overlay,
    lines: Mapping[int, str],
    organization_id: OrganizationId | None,
    group: Sequence[Member],
    servers: str,
) -> Iterator[tuple[Holder, Version]]:
    behind_nat = _behind_nat(group)
    reachable = _digest(lines, (node for node in group if node.endpoint is not None))
    everybody = _digest(lines, behind_nat)
    # A node behind NAT lists neither keys nor endpoints of others that are behind NAT, so they are not in its version.
    places = [(node.number, node.pod_block) for node in behind_nat]
    relayed = _relayed(overlay, organization_id, group)
    through = "" if relayed is None else _hash(relayed.relay, places)
    for node in group:
        seen = through if node.endpoint is None else everybody
        yield node.number, _hash("node", overlay.block, lines[node.number], servers, reachable, seen)
    if organization_id is not None and len(behind_nat) > 1:
        yield organization_id, _hash("relay", overlay.block, everybody)


def _digest(lines: Mapping[int, str], members: Iterable[Member]) -> str:
    return _hash(*(lines[member.number] for member in members))


def _hash(*values: object) -> str:
    # A value's `repr` quotes text, so two lists of values never read the same.
    return sha256(repr(values).encode()).hexdigest()[:32]


def holders_of(overlay: Overlay, member: Member) -> frozenset[Holder]:
    """Whose configuration lists a key of this member. They have to be told before it is removed."""
    if member in overlay.servers:
        others = chain(overlay.servers, *overlay.nodes.values())
        return frozenset(other.number for other in others) - {member.number}
    found: set[Holder] = {server.number for server in overlay.servers}
    for organization_id, group in _groups(overlay):
        if member in group:
            found.update(
                other.number for other in group if other.endpoint is not None or member.endpoint is not None
            )
            if member.endpoint is None and organization_id in relays_needed(overlay):
                found.add(organization_id)
    return frozenset(found - {member.number})


def may_list(overlay: Overlay, member: Member) -> frozenset[Holder]:
    """Who lists a key of this member, or did before the map changed: a node that was behind NAT a moment ago, say.

    For a removal, which has to be sure: the servers, and the nodes of its organization.
    """
    if member in overlay.servers:
        return holders_of(overlay, member)
    group = next((group for _, group in _groups(overlay) if member in group), ())
    found = {other.number for other in chain(overlay.servers, group)} - {member.number}
    return holders_of(overlay, member) | found
