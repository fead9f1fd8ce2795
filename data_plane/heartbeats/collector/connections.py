"""How many connections of agents are open at a time, and whose. No IO.

All places together are few enough for the files that a process may open. Whoever comes when all are taken gets a place
of somebody who has at least two more: of the holder with most places, the connection that is open for the longest
time is ended. So nobody keeps others out, however many machines and networks belong to one organization.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

OF_ONE_NODE_MAX = 4
"""At a time."""


class Connections:
    def __init__(self, most: int, nodes: "IPv4Network | None" = None) -> None:
        """`most`: at a time. `nodes`: the addresses of nodes in their overlay; None on the hub, where none connects.

        Out of its tunnel a node might also send from the addresses of its pods, 256 of them. It connects from its own
        address alone, or it would have as many places as it has addresses.
        """
        self._most, self._nodes = most, nodes
        self._holders: Mapping[str, str] = {}
        self._open: dict[object, str] = {}  # By a connection, the source that it comes from, oldest first.
        self._ends: dict[object, Callable[[], object]] = {}
        self._of_source: Counter[str] = Counter()

    def belong(self, holders: Mapping[str, str]) -> None:
        """Which sources have one holder from now on. A source that is not named has a holder of its own."""
        self._holders = holders

    @contextmanager
    def place(self, source: str, end: Callable[[], object]) -> Iterator[bool]:
        """Whether a connection from this source may go on. It counts until it has ended, or until `end` was called.

        A source is the address of a node, or `network NUMBER` on the hub, whose proxy bounds what a network may hold.
        """
        if not self._is_free(source):
            yield False
            return
        connection = object()
        self._open[connection], self._ends[connection] = source, end
        self._of_source[source] += 1
        try:
            yield True
        finally:
            self._forget(connection)

    def _is_free(self, source: str) -> bool:
        if self._nodes is not None:
            is_node = _is_address(source) and IPv4Address(source) in self._nodes
            if not is_node or self._of_source[source] >= OF_ONE_NODE_MAX:
                return False
        return len(self._open) < self._most or self._ended_for(source)

    def _ended_for(self, source: str) -> bool:
        """Whether a connection of somebody who has more was ended."""
        places = self._places()
        greatest = max(places, key=places.__getitem__)
        if places[greatest] <= places[self._holder(source)] + 1:
            return False  # One more for this holder would be one too many, and the two would take turns for ever.
        oldest = next(each for each, of in self._open.items() if self._holder(of) == greatest)
        end = self._ends[oldest]
        self._forget(oldest)
        end()
        return True

    def _places(self) -> "dict[str, int]":
        places: defaultdict[str, int] = defaultdict(int)
        for source, count in self._of_source.items():
            places[self._holder(source)] += count
        return places

    def _holder(self, source: str) -> str:
        return self._holders.get(source, source)

    def _forget(self, connection: object) -> None:
        source = self._open.pop(connection, None)
        if source is None:
            return  # It was ended for somebody else.
        del self._ends[connection]
        self._of_source[source] -= 1
        if not self._of_source[source]:
            del self._of_source[source]


def _is_address(source: str) -> bool:
    return source.count(".") == 3
