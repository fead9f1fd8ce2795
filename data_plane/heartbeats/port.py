"""How the reconciler gets what agents report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from data_plane.access.port import Target
from data_plane.heartbeats.collector.exchange import Holder, Known, Reports


@dataclass(frozen=True, slots=True)
class ClusterServer:
    """The server of a cluster, which the agents on its nodes report to."""

    host: Target
    address: str
    """Its address in the overlay, where it listens for them."""
    nodes: str
    """All addresses of the overlay, such as `10.64.16.0/20`: agents connect from one of these."""


class Collector(Protocol):
    """Answers agents, and keeps what they report until we have it. Raises AccessError."""

    async def exchange(
        self, known: Sequence[Known], server: ClusterServer | None = None, holders: Sequence[Holder] = ()
    ) -> Reports:
        """Have exactly these agents answered from now on, and return what they reported that is not stored yet.

        `holders` says which networks, or nodes, are of one organization, so that none keeps the others out.
        `server`: where the agents on the nodes of a cluster report; the others report to the hub. May be repeated: a
        heartbeat is returned until `stored_through` says that it is stored.
        """
        ...
