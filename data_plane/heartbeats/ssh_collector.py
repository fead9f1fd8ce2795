"""The collector on the hub and on the servers of clusters, over pinned SSH."""

from collections.abc import Sequence

from data_plane.access.port import Access, Session, StepFailed, Target, must
from data_plane.access.step import Answer
from data_plane.documents import strict
from data_plane.heartbeats import scripts
from data_plane.heartbeats.collector import exchange
from data_plane.heartbeats.collector.exchange import Holder, Known, Reports, Request
from data_plane.heartbeats.port import ClusterServer
from data_plane.heartbeats.relay_units import IngestPlace
from data_plane.inspection.bundle import Bundle


class SshCollector:
    """`port.Collector`. Installs the collector where it is missing, or another one than ours."""

    def __init__(
        self, access: Access, hub: Target, bundle: Bundle, ingest: IngestPlace | None = None
    ) -> None:
        """`ingest` is where samples are passed on to; without it, nobody takes them."""
        self._access = access
        self._hub = hub
        self._bundle = bundle
        self._ingest = ingest

    async def exchange(
        self, known: Sequence[Known], server: ClusterServer | None = None, holders: Sequence[Holder] = ()
    ) -> Reports:
        request = exchange.encode(Request(tuple(known), tuple(holders)))
        if server is None:
            units = scripts.hub_units(self._ingest)
        else:
            units = scripts.server_units(server.address, server.nodes, self._ingest)
        async with self._access.connect(self._hub if server is None else server.host) as session:
            answer = await self._exchanged(session, units, request)
            if answer.exit_status == scripts.MISSING:
                await must(session, scripts.PUSH_COLLECTOR, [self._bundle.sha256], stdin=self._bundle.content)
                answer = await self._exchanged(session, units, request)
        if answer.exit_status != 0:
            raise StepFailed(scripts.EXCHANGE.name, answer.exit_status, answer.detail)
        try:
            return exchange.read_reports(answer.output)
        except strict.Malformed as error:
            raise StepFailed(scripts.EXCHANGE.name, None, f"the collector's answer: {error}") from None

    async def _exchanged(self, session: Session, units: Sequence[str], request: bytes) -> Answer:
        return await session.run(scripts.EXCHANGE, [self._bundle.sha256, *units], stdin=request)


async def remove_collector(session: Session) -> None:
    """Take the collector off the host of a cluster's server. Does nothing where there is none. Raises AccessError."""
    await must(session, scripts.REMOVE_COLLECTOR)
