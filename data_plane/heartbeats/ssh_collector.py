"""The collector on the hub, over pinned SSH."""

from collections.abc import Sequence

from data_plane.access.port import Access, Session, StepFailed, Target, must
from data_plane.access.step import Answer
from data_plane.documents import strict
from data_plane.heartbeats import scripts
from data_plane.heartbeats.collector import exchange
from data_plane.heartbeats.collector.exchange import Known, Reports, Request
from data_plane.inspection.bundle import Bundle


class SshCollector:
    """`port.Collector` on the hub. Installs the collector where it is missing, or another one than ours."""

    def __init__(self, access: Access, hub: Target, bundle: Bundle) -> None:
        self._access = access
        self._hub = hub
        self._bundle = bundle

    async def exchange(self, known: Sequence[Known]) -> Reports:
        request = exchange.encode(Request(tuple(known)))
        async with self._access.connect(self._hub) as session:
            answer = await self._exchanged(session, request)
            if answer.exit_status == scripts.MISSING:
                await must(session, scripts.PUSH_COLLECTOR, [self._bundle.sha256], stdin=self._bundle.content)
                answer = await self._exchanged(session, request)
        if answer.exit_status != 0:
            raise StepFailed(scripts.EXCHANGE.name, answer.exit_status, answer.detail)
        try:
            return exchange.read_reports(answer.output)
        except strict.Malformed as error:
            raise StepFailed(scripts.EXCHANGE.name, None, f"the collector's answer: {error}") from None

    async def _exchanged(self, session: Session, request: bytes) -> Answer:
        units = [scripts.COLLECTOR, scripts.SOCKET, scripts.PROXY]
        return await session.run(scripts.EXCHANGE, [self._bundle.sha256, *units], stdin=request)
