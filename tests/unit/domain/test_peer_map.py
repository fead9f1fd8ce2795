"""The peer map of a cluster, compared with what each pair of members is to have."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import address_of, pods_of
from control_plane.domain.peer_map import (
    Configuration,
    Holder,
    Member,
    Overlay,
    Peer,
    Relay,
    configurations,
    holders_of,
    may_list,
    relay_peers,
    relays_needed,
    versions,
)

ALICE, BOB = OrganizationId(UUID(int=1)), OrganizationId(UUID(int=2))
BLOCK = 3


@dataclass(frozen=True)
class Node:
    """A node with its organization, beside `Member`, which has none."""

    member: Member
    organization_id: OrganizationId | None


@dataclass(frozen=True)
class Cluster:
    servers: tuple[Member, ...]
    nodes: tuple[Node, ...]
    relays: Mapping[OrganizationId, Relay]

    def overlay(self, order: int = 1) -> Overlay:
        organizations = list(dict.fromkeys(node.organization_id for node in self.nodes))[::order]
        grouped = {
            organization_id: [node.member for node in self.nodes if node.organization_id == organization_id]
            for organization_id in organizations
        }
        return Overlay(BLOCK, self.servers, grouped, self.relays)


def a_member(
    number: int, *, reachable: bool = True, pods: bool = True, key: str = "k", next_key: bool = False
) -> Member:
    return Member(
        number,
        f"{key}{number}",
        pod_block=number if pods else None,
        endpoint=f"198.51.100.{number}:51820" if reachable else None,
        next_key=f"next{number}" if next_key else None,
    )


def members(number: int) -> st.SearchStrategy[Member]:
    return st.builds(
        a_member,
        st.just(number),
        reachable=st.booleans(),
        pods=st.booleans(),
        key=st.sampled_from("kl"),
        next_key=st.booleans(),
    )


# Made once: making a strategy takes longer than drawing from it.
MEMBERS = {number: members(number) for number in range(1, 20)}
SERVERS = st.integers(0, 2)
NUMBERS = st.sets(st.integers(10, 19), max_size=6)
OWNERS = st.sampled_from((None, ALICE, ALICE, BOB))
RELAYED = st.sets(st.sampled_from((ALICE, BOB)))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    servers = tuple(replace(draw(MEMBERS[n]), endpoint=f"hub{n}:1") for n in range(1, 1 + draw(SERVERS)))
    nodes = tuple(Node(draw(MEMBERS[number]), draw(OWNERS)) for number in sorted(draw(NUMBERS)))
    relays = draw(RELAYED)
    return Cluster(servers, nodes, {who: Relay(f"relay of {who.int}", "hub:20001") for who in sorted(relays)})


def changed(cluster: Cluster) -> st.SearchStrategy[Cluster]:
    """The same cluster after something small happened to it."""

    def with_node(place: int, node: Node | None) -> Cluster:
        kept = (*cluster.nodes[:place], *((node,) if node else ()), *cluster.nodes[place + 1 :])
        return replace(cluster, nodes=kept)

    ways = [cluster, replace(cluster, relays={}), replace(cluster, servers=cluster.servers[1:])]
    ways.append(replace(cluster, relays={ALICE: Relay("another", "hub:2")}))
    for place, node in enumerate(cluster.nodes):
        one = node.member
        ways.append(with_node(place, None))
        ways += [with_node(place, replace(node, organization_id=who)) for who in (None, ALICE, BOB)]
        for other in (
            replace(one, endpoint=None if one.endpoint else "198.51.100.99:1"),
            replace(one, endpoint="198.51.100.98:1"),
            replace(one, pod_block=77),
            replace(one, public_key="switched"),
            replace(one, next_key=None if one.next_key else "prepared"),
        ):
            ways.append(with_node(place, replace(node, member=other)))
    return st.sampled_from(ways)


# What the map is to be, pair by pair.


def ranges(member: Member) -> tuple[str, ...]:
    pods = () if member.pod_block is None else (pods_of(member.pod_block),)
    return (f"{address_of(BLOCK, member.number)}/32", *pods)


def expected(cluster: Cluster, viewer: Member) -> set[Peer]:
    found = set()
    own = {node.member.number: node.organization_id for node in cluster.nodes}
    for other in cluster.servers:
        if other != viewer:
            found |= listed(viewer, other)
    for node in cluster.nodes:
        is_server = viewer.number not in own
        together = (
            not is_server and own[viewer.number] is not None and own[viewer.number] == node.organization_id
        )
        reachable = viewer.endpoint is not None or node.member.endpoint is not None
        if node.member != viewer and reachable and (is_server or together):
            found |= listed(viewer, node.member)
    return found | through_the_relay(cluster, viewer, own.get(viewer.number))


def through_the_relay(cluster: Cluster, viewer: Member, whose: OrganizationId | None) -> set[Peer]:
    if whose is None or viewer.endpoint is not None or whose not in cluster.relays:
        return set()
    others = [
        node.member
        for node in cluster.nodes
        if node.organization_id == whose and node.member.endpoint is None and node.member != viewer
    ]
    if not others:
        return set()
    relay = cluster.relays[whose]
    return {
        Peer(
            relay.public_key,
            tuple(r for other in others for r in ranges(other)),
            relay.endpoint,
            keepalive=True,
        )
    }


def listed(viewer: Member, other: Member) -> set[Peer]:
    behind_nat = viewer.endpoint is None
    entry = Peer(other.public_key, ranges(other), other.endpoint, behind_nat)
    return (
        {entry} if other.next_key is None else {entry, Peer(other.next_key, (), other.endpoint, behind_nat)}
    )


def by_number(overlay: Overlay) -> dict[Holder, Configuration]:
    return {one.member.number: one for one in configurations(overlay)}


# Laws.


@given(clusters())
def test_every_pair_has_the_tunnel_that_the_rules_give_it_and_no_other(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    found = by_number(overlay)
    everybody = [*cluster.servers, *(node.member for node in cluster.nodes)]
    assert found.keys() == {member.number for member in everybody}
    for member in everybody:
        configuration = found[member.number]
        assert configuration.address == address_of(BLOCK, member.number)
        assert len(configuration.peers) == len(set(configuration.peers))
        assert set(configuration.peers) == expected(cluster, member)


@given(clusters())
def test_some_configurations_are_those_of_the_whole_map(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    every = by_number(overlay)
    for only in ({1}, set(list(every)[::2]), set(list(every)[1::2]), set()):
        wanted = {number for number in only if isinstance(number, int)}
        found = {one.member.number: one for one in configurations(overlay, wanted)}
        assert found == {number: each for number, each in every.items() if number in wanted}


@given(clusters())
def test_no_range_is_listed_twice_on_an_interface(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    interfaces = [one.peers for one in configurations(overlay)]
    interfaces += [relay_peers(overlay, who) for who in relays_needed(overlay)]
    for peers in interfaces:
        allowed = [text for peer in peers for text in peer.allowed]
        assert len(allowed) == len(set(allowed))
        assert len({peer.public_key for peer in peers}) == len(peers)


@given(clusters())
def test_two_organizations_share_no_key_but_the_servers(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    found = by_number(overlay)
    servers = {key for server in cluster.servers for key in server.keys}
    for one, other in permutations(cluster.nodes, 2):
        if one.organization_id is not None and one.organization_id == other.organization_id:
            continue
        listed = {peer.public_key for peer in found[one.member.number].peers}
        assert listed.isdisjoint(other.member.keys)
        assert {text for peer in found[one.member.number].peers for text in peer.allowed}.isdisjoint(
            ranges(other.member)
        )
        assert listed & {peer.public_key for peer in found[other.member.number].peers} <= servers
    for who in relays_needed(overlay):
        own = {key for node in cluster.nodes if node.organization_id == who for key in node.member.keys}
        assert {peer.public_key for peer in relay_peers(overlay, who)} <= own


@given(clusters())
def test_tunnels_have_two_ends_and_one_can_be_opened(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    found = by_number(overlay)
    for one, other in combinations(found.values(), 2):
        forth = [peer for peer in one.peers if peer.public_key in other.member.keys]
        back = [peer for peer in other.peers if peer.public_key in one.member.keys]
        assert bool(forth) == bool(back)
        for peer in forth:
            assert peer.endpoint is not None or all(entry.endpoint is not None for entry in back)
            assert peer.keepalive == (one.member.endpoint is None)


@given(clusters())
def test_two_nodes_behind_nat_meet_at_the_relay_of_their_organization(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    found = by_number(overlay)
    for one, other in permutations((node for node in cluster.nodes if node.member.endpoint is None), 2):
        relay = cluster.relays.get(one.organization_id) if one.organization_id else None
        through = [
            peer for peer in found[one.member.number].peers if relay and peer.public_key == relay.public_key
        ]
        together = one.organization_id is not None and one.organization_id == other.organization_id
        reached = {text for peer in through for text in peer.allowed}
        assert set(ranges(other.member)) <= reached or not (relay and together)
        assert reached.isdisjoint(ranges(one.member)), "a node reaches itself through the relay"
        if together and one.organization_id is not None:
            at_the_relay = relay_peers(overlay, one.organization_id)
            assert Peer(one.member.public_key, ranges(one.member), None, keepalive=False) in at_the_relay


@settings(max_examples=30)
@given(clusters())
def test_the_map_does_not_depend_on_the_order_of_organizations(cluster: Cluster) -> None:
    assert by_number(cluster.overlay()) == by_number(cluster.overlay(order=-1))
    assert versions(cluster.overlay()) == versions(cluster.overlay(order=-1))


def everything(overlay: Overlay) -> dict[Holder, Configuration | tuple[Peer, ...]]:
    return by_number(overlay) | {who: relay_peers(overlay, who) for who in relays_needed(overlay)}


@given(st.data())
def test_a_version_changes_exactly_when_the_configuration_does(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    before, after = cluster.overlay(), data.draw(changed(cluster)).overlay()
    old, new = everything(before), everything(after)
    for holder in old.keys() & new.keys():
        same = old[holder] == new[holder]
        assert (versions(before)[holder] == versions(after)[holder]) == same, holder
    assert versions(before).keys() == old.keys()


@given(clusters())
def test_whoever_lists_a_member_is_told_of_its_removal(cluster: Cluster) -> None:
    overlay = cluster.overlay()
    lists: dict[Holder, tuple[Peer, ...]] = {number: one.peers for number, one in by_number(overlay).items()}
    lists.update({who: relay_peers(overlay, who) for who in relays_needed(overlay)})
    for member in (*cluster.servers, *(node.member for node in cluster.nodes)):
        assert holders_of(overlay, member) == {
            holder
            for holder, peers in lists.items()
            if {peer.public_key for peer in peers} & set(member.keys)
        }
        group = next((group for group in overlay.nodes.values() if member in group), ())
        allies = {other.number for other in group} - {member.number}
        assert (
            allies | holders_of(overlay, member) >= may_list(overlay, member) >= holders_of(overlay, member)
        )


# Cases worth seeing.


def test_a_rotation_lists_the_next_key_without_ranges_and_then_moves_them() -> None:
    node, server = a_member(10, reachable=False), a_member(1)
    rotating = replace(node, next_key="next")
    switched = replace(node, public_key="next")
    seen = []
    for one in (node, rotating, switched):
        overlay = Overlay(BLOCK, (server,), {ALICE: (one,)})
        seen.append([(peer.public_key, peer.allowed) for peer in by_number(overlay)[1].peers])
    own = ("10.64.48.11/32", "10.48.10.0/24")
    assert seen == [[("k10", own)], [("k10", own), ("next", ())], [("next", own)]]


def test_a_node_behind_nat_is_told_where_others_behind_nat_are_and_not_which_keys_they_have() -> None:
    near, other, far = (a_member(number, reachable=False) for number in (10, 11, 12))
    relays = {ALICE: Relay("relay", "hub:1")}

    def told(changed: Member) -> set[Holder]:
        before = Overlay(BLOCK, (a_member(1),), {ALICE: (near, other, far)}, relays)
        after = Overlay(BLOCK, (a_member(1),), {ALICE: (near, other, changed)}, relays)
        had = versions(before)
        return {holder for holder, version in versions(after).items() if had.get(holder) != version}

    assert told(replace(far, pod_block=77)) == {1, 10, 11, 12, ALICE}
    assert told(replace(far, number=13)) == {1, 10, 11, 13, ALICE}
    assert told(replace(far, public_key="another")) == {1, 12, ALICE}
    assert told(far) == set()


def test_a_cluster_in_which_two_members_share_something_is_refused() -> None:
    server, node = a_member(1), a_member(10)
    cases = (
        ("number", replace(a_member(11), number=10)),
        ("key", replace(a_member(11), public_key="k10")),
        ("key", replace(a_member(11), next_key="k1")),
        ("key", replace(a_member(11), public_key="relay")),
        ("range of pods", replace(a_member(11), pod_block=10)),
    )
    for what, other in cases:
        with pytest.raises(ValueError, match=f"two members share a {what}"):
            Overlay(BLOCK, (server,), {ALICE: (node,), BOB: (other,)}, {BOB: Relay("relay", "hub:1")})
    with pytest.raises(ValueError, match="server 1 has no endpoint"):
        Overlay(BLOCK, (replace(server, endpoint=None),))
