"""Who gets a connection to the collector and to the relay of samples."""

from contextlib import ExitStack
from ipaddress import IPv4Network

from data_plane.heartbeats.collector.connections import OF_ONE_NODE_MAX, Connections

NODES = IPv4Network("10.64.16.0/20")
NODE, OTHER, POD, PROXY = "10.64.16.3", "10.64.16.4", "10.48.7.9", ""


def _taken(connections: Connections, source: str, times: int, held: ExitStack) -> int:
    """How many of so many connections may go on."""
    return sum(held.enter_context(connections.place(source)) for _ in range(times))


def test_a_node_has_some_connections_at_a_time_and_others_have_theirs() -> None:
    connections = Connections(100, NODES)
    with ExitStack() as held:
        assert _taken(connections, NODE, 10, held) == OF_ONE_NODE_MAX
        assert _taken(connections, OTHER, 1, held) == 1
    with ExitStack() as held:
        assert _taken(connections, NODE, 1, held) == 1, "a connection that has ended counts no more"


def test_an_address_of_a_pod_is_no_further_place_for_its_node() -> None:
    with ExitStack() as held:
        assert _taken(Connections(100, NODES), POD, 1, held) == 0


def test_where_no_node_connects_only_proxies_do() -> None:
    connections = Connections(10)
    with ExitStack() as held:
        assert _taken(connections, NODE, 1, held) == 0
        assert _taken(connections, PROXY, 12, held) == 10, "what a network may use is bounded by its proxy"
