"""A simulated collector: the real one's mailbox, to which the agents of simulated machines report at each exchange."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from data_plane.access.port import AccessError
from data_plane.documents.heartbeat import Delivery, Heartbeat, Result, encode
from data_plane.heartbeats.collector.exchange import Known, Reports
from data_plane.heartbeats.collector.mailbox import Mailbox
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
    _mailbox: Mailbox = field(default_factory=Mailbox)
    _now: float = 0.0

    async def exchange(self, known: Sequence[Known]) -> Reports:
        if self.fail_next:
            raise self.fail_next.pop(0)
        self._now += SECONDS
        self._mailbox.exchange(known, self._now)
        for address, machine in self.machines.items():
            if machine.agent is not None and address not in self.silent:
                self._report(machine)
        return self._mailbox.exchange(known, self._now)

    def _report(self, machine: FakeMachine) -> None:
        if machine.agent is None:
            return
        heartbeat = Heartbeat(machine.agent_sequence + 1, 0, int(self._now), "", 0, 0, machine.agent_result)
        answer = self._mailbox.deliver(encode(Delivery(machine.agent.credential, (heartbeat,))), self._now)
        if answer.verdict == "ended":
            machine.agent = None  # It removes itself.
        elif answer.verdict == "accepted":
            machine.agent_sequence = answer.accepted_through
            task = answer.task
            machine.agent_result = (
                None if task is None else Result(task, done=True, digest=None, detail="simulated")
            )
