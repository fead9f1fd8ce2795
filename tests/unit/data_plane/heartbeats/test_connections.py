"""Who gets a connection to the collector and to the relay of samples."""

from collections.abc import Mapping
from contextlib import ExitStack
from ipaddress import IPv4Network

from data_plane.heartbeats.collector.connections import OF_ONE_NODE_MAX, Connections

NODES = IPv4Network("10.64.16.0/20")
NODE, OTHER, POD = "10.64.16.3", "10.64.16.4", "10.48.7.9"


class _Clients:
    """Who connects, and whose connections were ended for others."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.held = ExitStack()
        self.ended: list[str] = []

    def connect(self, source: str, times: int = 1) -> int:
        """How many of so many connections may go on."""
        places = [self.connections.place(source, lambda: self.ended.append(source)) for _ in range(times)]
        return sum(self.held.enter_context(place) for place in places)


def test_a_node_has_some_connections_at_a_time_and_others_have_theirs() -> None:
    clients = _Clients(Connections(100, NODES))
    with clients.held:
        assert clients.connect(NODE, 10) == OF_ONE_NODE_MAX
        assert clients.connect(OTHER) == 1
    with clients.held:
        assert clients.connect(NODE) == 1, "a connection that has ended counts no more"
    assert clients.ended == []


def test_an_address_of_a_pod_is_no_further_place_for_its_node() -> None:
    clients = _Clients(Connections(100, NODES))
    with clients.held:
        assert clients.connect(POD) == 0
        assert clients.connect("") == 0


def test_who_has_fewer_places_gets_one_of_whoever_has_most_and_the_oldest_connection_is_ended() -> None:
    clients = _Clients(Connections(8))
    with clients.held:
        assert clients.connect("network 1", 20) == 8
        assert clients.connect("network 2", 20) == 4, "as many as the other one then has"
        assert clients.connect("network 1", 20) == 0, "nobody takes turns with his equal"
        assert clients.ended == ["network 1"] * 4
    with clients.held:
        assert clients.connect("network 1", 20) == 8, "what was ended for others counts once"


def test_networks_of_one_organization_are_one_holder_and_keep_no_other_one_out() -> None:
    floods = [f"network {number}" for number in range(1, 25)]
    connections = Connections(768)
    clients = _Clients(connections)
    connections.belong({**dict.fromkeys(floods, "organization 0"), "network 99": "organization 1"})
    with clients.held:
        assert sum(clients.connect(flood, 32) for flood in floods) == 768, (
            "24 proxies, with all that they pass on"
        )
        assert clients.connect("network 99", 32) == 32
        assert set(clients.ended) == {"network 1"}, "the oldest ones of the flood"


def test_nodes_of_one_organization_are_one_holder_and_others_are_when_nobody_said_whose_they_are() -> None:
    nodes = [f"10.64.17.{number}" for number in range(1, 21)]
    for holders, kept in (
        (dict.fromkeys(nodes, "organization 0"), 4),
        (dict[str, str](), 3),  # Then nobody has two more.
    ):
        assert _places_beside(nodes, holders) == kept


def _places_beside(nodes: list[str], holders: Mapping[str, str]) -> int:
    """How many places a node gets while these have taken all, 4 each."""
    connections = Connections(80, NODES)
    clients = _Clients(connections)
    connections.belong(holders)
    with clients.held:
        assert sum(clients.connect(node, 4) for node in nodes) == 80
        return clients.connect(NODE, 4)
