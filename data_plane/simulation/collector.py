"""A simulated collector: the real one's mailbox, to which the agents of simulated machines report at each exchange.

The hub has a mailbox, and so has the server of each cluster. An agent reports to the address that it was installed
with. With `ingest`, it also delivers a sample then, which takes no other way than that of a real one.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from data_plane.access.port import AccessError
from data_plane.documents.agent_config import Config
from data_plane.documents.heartbeat import Delivery as Heartbeats
from data_plane.documents.heartbeat import Heartbeat, Result, encode
from data_plane.documents.sample_delivery import Delivery
from data_plane.heartbeats.collector.exchange import Holder, Known, Reports
from data_plane.heartbeats.collector.mailbox import Mailbox
from data_plane.heartbeats.port import ClusterServer
from data_plane.simulation.access import FakeMachine

SECONDS = 15
"""Of the collector's clock, between two exchanges."""


@dataclass
class FakeCollector:
    """Each call raises the first entry of `fail_next`, if any, and changes nothing."""

    machines: dict[str, FakeMachine]
    fail_next: list[AccessError] = field(default_factory=list[AccessError])
    silent: set[str] = field(default_factory=set[str])
    """Addresses of machines whose agents do not report."""
    mailboxes: dict[str | None, Mailbox] = field(default_factory=dict[str | None, Mailbox])
    """By the addresses of servers in their overlays; that of the hub, which has many addresses, by None."""
    holders: dict[str | None, dict[str, int]] = field(default_factory=dict[str | None, dict[str, int]])
    """By the same, the organization's number of each source."""
    ingest: Callable[[str, Delivery], Awaitable[object]] | None = None
    """Takes a delivery under a credential, as the ingest process does."""
    unix: Callable[[], float] = time.time
    runs: Callable[[str], bool] = lambda _: True
    """Whether the machine at an address runs: the agent of one that ended is silent."""
    _now: float = 0.0

    async def exchange(
        self, known: Sequence[Known], server: ClusterServer | None = None, holders: Sequence[Holder] = ()
    ) -> Reports:
        if self.fail_next:
            raise self.fail_next.pop(0)
        self.holders[None if server is None else server.address] = {
            each.source: each.organization for each in holders
        }
        self._now += SECONDS
        place = None if server is None else server.address
        mailbox = self.mailboxes.setdefault(place, Mailbox())
        mailbox.exchange(known, self._now)
        for address, machine in self.machines.items():
            if (
                machine.agent is not None
                and address not in self.silent
                and self.runs(address)
                and self._place(machine.agent) == place
            ):
                await self._sample(machine)
                self._report(machine, mailbox)
        return mailbox.exchange(known, self._now)

    def _place(self, agent: Config) -> str | None:
        return agent.hub if agent.hub in self.mailboxes else None

    async def _sample(self, machine: FakeMachine) -> None:
        if machine.agent is not None and self.ingest is not None:
            now_ms = int(1000 * self.unix())
            await self.ingest(machine.agent.credential, Delivery(now_ms, (machine.sample(now_ms),)))

    def _report(self, machine: FakeMachine, mailbox: Mailbox) -> None:
        if machine.agent is None:
            return
        heartbeat = Heartbeat(machine.agent_sequence + 1, 0, int(self._now), "", 0, 0, machine.agent_result)
        answer = mailbox.deliver(encode(Heartbeats(machine.agent.credential, (heartbeat,))), self._now)
        if answer.verdict == "ended":
            machine.agent = None  # It removes itself.
        elif answer.verdict == "accepted":
            machine.agent_sequence = answer.accepted_through
            task = answer.task
            machine.agent_result = (
                None if task is None else Result(task, done=True, digest=None, detail="simulated")
            )
