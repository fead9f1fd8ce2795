"""What the client of a collector does with how its step on the host ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from data_plane.access.line import Line
from data_plane.access.port import Session, StepFailed, Target
from data_plane.access.step import Answer, Step
from data_plane.access.turns import BUSY
from data_plane.heartbeats import scripts
from data_plane.heartbeats.ssh_collector import SshCollector
from data_plane.inspection.bundle import Bundle

HUB = Target("198.51.100.2", 22, "ssh-ed25519 AAAA", "hub")
BUNDLE = Bundle(b"the collector", "0" * 64)


class Host:
    """A host on which each exchange ends with the next of these exit statuses."""

    def __init__(self, *exchanges: int) -> None:
        self._exchanges = list(exchanges)
        self.ran: list[str] = []

    @asynccontextmanager
    async def connect(self, target: Target) -> AsyncIterator[Session]:
        yield self

    async def run(
        self,
        step: Step,
        arguments: Sequence[str] = (),
        *,
        stdin: bytes = b"",
        private: Sequence[str] = (),
    ) -> Answer:
        self.ran.append(step.name)
        status = self._exchanges.pop(0) if step is scripts.EXCHANGE else 0
        return Answer(status, b"", "")

    def converse(self, step: Step, arguments: Sequence[str] = ()) -> AbstractAsyncContextManager[Line]:
        raise NotImplementedError


async def exchanged(host: Host) -> None:
    with pytest.raises(StepFailed):
        await SshCollector(host, HUB, BUNDLE).exchange([])


async def test_a_host_without_the_collector_gets_it() -> None:
    host = Host(scripts.MISSING, 1)
    await exchanged(host)
    assert host.ran == ["exchange heartbeats", "push collector", "exchange heartbeats"]


async def test_a_host_on_which_another_exchange_runs_keeps_its_collector() -> None:
    """A push restarts the collector, which then forgets what it has not handed over yet."""
    host = Host(BUSY)
    await exchanged(host)
    assert host.ran == ["exchange heartbeats"]
