"""How the reconciler gets what agents report."""

from collections.abc import Sequence
from typing import Protocol

from data_plane.heartbeats.collector.exchange import Known, Reports


class Collector(Protocol):
    """Answers agents, and keeps what they report until we have it. Raises AccessError."""

    async def exchange(self, known: Sequence[Known]) -> Reports:
        """Have exactly these agents answered from now on, and return what they reported that is not stored yet.

        May be repeated: a heartbeat is returned until `stored_through` says that it is stored.
        """
        ...
