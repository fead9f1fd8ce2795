"""What the collector remembers: who may report, and heartbeats that are not stored yet. No IO, no clock.

Everything is in memory. After a restart nobody is known until the reconciler says who is; until then agents keep what
they have. What was accepted and not stored yet is lost then, which costs some minutes of evidence.
"""

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from data_plane.documents import strict
from data_plane.documents.heartbeat import Answer, Heartbeat, Task, VersionNotKnown, read_delivery
from data_plane.heartbeats.collector.exchange import REPORTS_MAX, Known, Reported, Reports

WAITING_MAX = 128
"""Heartbeats of one agent. The oldest are forgotten, because only the last one is kept anyway."""
DELIVERIES_PER_SECOND = 0.5
DELIVERIES_BURST = 40
"""Enough for an agent to deliver a full spool at once."""
ASKED_AGAIN_SECONDS = 300
"""When a task is asked for again whose result did not come."""


@dataclass
class _Agent:
    known: Known
    through: int = 0
    waiting: "deque[tuple[Heartbeat, float]]" = field(default_factory=lambda: deque(maxlen=WAITING_MAX))
    tokens: float = DELIVERIES_BURST
    filled_at: "float | None" = None
    asked: "Task | None" = None
    asked_at: float = 0.0


class Mailbox:
    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        self._refused = 0

    def deliver(self, line: bytes, now: float) -> Answer:
        """Answer a line that anybody may have sent. `now`: seconds of a clock that only goes forward."""
        answer = self._answer(line, now)
        if answer.verdict != "accepted":
            self._refused += 1
        return answer

    def exchange(self, known: "Iterable[Known]", now: float) -> Reports:
        """Accept these agents and no others from now on, and return what is not stored yet."""
        before = self._agents
        self._agents = {each.digest: self._renewed(before.get(each.digest), each) for each in known}
        waiting = (
            Reported(digest, int(max(0.0, now - at)), heartbeat)
            for digest, agent in self._agents.items()
            for heartbeat, at in agent.waiting
        )
        reported = tuple(islice(waiting, REPORTS_MAX))
        return Reports(reported, more=next(waiting, None) is not None, refused=self._refused)

    def _answer(self, line: bytes, now: float) -> Answer:
        try:
            delivery = read_delivery(line)
        except VersionNotKnown:
            return Answer("version_not_known")
        except strict.Malformed:
            return Answer("malformed")
        agent = self._agents.get(hashlib.sha256(delivery.credential.encode()).hexdigest())
        if agent is None:
            return Answer("not_known")
        if agent.known.ended:
            return Answer("ended")
        if not _admitted(agent, now):
            return Answer("too_fast")
        for heartbeat in delivery.heartbeats:
            if (
                heartbeat.sequence > agent.through
            ):  # Otherwise it was delivered before, by the agent or by somebody else.
                agent.through = heartbeat.sequence
                agent.waiting.append((heartbeat, now))
        return Answer("accepted", agent.through, _asked(agent, now))

    def _renewed(self, agent: "_Agent | None", known: Known) -> _Agent:
        if agent is None:
            return _Agent(known, through=known.stored_through)
        agent.known = known
        agent.through = max(agent.through, known.stored_through)
        while agent.waiting and (known.ended or agent.waiting[0][0].sequence <= known.stored_through):
            agent.waiting.popleft()
        return agent


def _asked(agent: _Agent, now: float) -> "Task | None":
    """The task that is due, unless the agent was asked for it lately: its result may be on its way."""
    task = agent.known.task
    if task is None or (agent.asked == task and now < agent.asked_at + ASKED_AGAIN_SECONDS):
        return None
    agent.asked, agent.asked_at = task, now
    return task


def _admitted(agent: _Agent, now: float) -> bool:
    grown = max(0.0, now - agent.filled_at) * DELIVERIES_PER_SECOND if agent.filled_at is not None else 0.0
    agent.tokens = min(DELIVERIES_BURST, agent.tokens + grown)
    agent.filled_at = now
    if agent.tokens < 1:
        return False
    agent.tokens -= 1
    return True
