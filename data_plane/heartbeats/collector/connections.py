"""How many connections of agents are open at a time, and of which node. No IO."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

OF_ONE_NODE_MAX = 4
"""At a time, so that no node keeps those of other tenants out."""


class Connections:
    def __init__(self, most: int, nodes: "IPv4Network | None" = None) -> None:
        """`most`: at a time. `nodes`: the addresses of nodes in their overlay; None where none connects.

        Out of its tunnel a node may also send from the addresses of its pods, 256 of them. It connects from its own
        address alone, or it would have as many places as it has addresses.
        """
        self._most, self._nodes = most, nodes
        self._open: Counter[str] = Counter()

    @contextmanager
    def place(self, source: str) -> Iterator[bool]:
        """Whether a connection from this address may go on, which counts until it has ended.

        An empty `source` is a proxy on the hub, which has bounds of its own.
        """
        if not self._is_free(source):
            yield False
            return
        self._open[source] += 1
        try:
            yield True
        finally:
            self._open[source] -= 1
            if not self._open[source]:
                del self._open[source]

    def _is_free(self, source: str) -> bool:
        if self._open.total() >= self._most:
            return False
        if not source:
            return True
        is_node = self._nodes is not None and IPv4Address(source) in self._nodes
        return is_node and self._open[source] < OF_ONE_NODE_MAX
