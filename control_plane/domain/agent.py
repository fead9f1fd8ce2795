"""The agents on machines: what their silence means, and what they are asked to do next.

An agent reports through the tunnel of its lease: to the hub, or from a node to the server of its cluster. What it
reports is evidence to look at, and decides nothing: a machine that is silent may be healthy, and one that reports may
lie.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from control_plane.domain.ids import ClaimId, LeaseId, MachineId

SILENT_AFTER = timedelta(minutes=5)
"""Five heartbeats."""
KNOWN_AFTER_THE_END = timedelta(days=1)
"""So long an agent whose lease has ended is told to remove itself. Its machine is usually gone much earlier."""


class AgentState(StrEnum):
    WAITING = "waiting"
    """It is not installed yet, or has not reported yet."""
    REPORTING = "reporting"
    SILENT = "silent"
    """It reported before, and does not now."""
    ENDED = "ended"
    """Its lease has ended, and it is told to remove itself."""


class AgentTask(StrEnum):
    """What an agent can be asked to do."""

    TOPOLOGY = "topology"
    VERIFY = "verify"
    REPORT = "report"
    CLEAN = "clean"


_EVERY = {
    AgentTask.REPORT: timedelta(minutes=5),
    AgentTask.VERIFY: timedelta(hours=1),
    AgentTask.TOPOLOGY: timedelta(hours=1),
    AgentTask.CLEAN: timedelta(days=1),
}


@dataclass(frozen=True, slots=True)
class AgentEvidence:
    """What the agent on the machine of a lease reported last, as its customer reads it."""

    reported_at: datetime | None
    """When its last heartbeat reached us."""
    results: Mapping[str, Mapping[str, Any]]
    """The last result of each task, with the time at which it came."""
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it is stored now."""

    claim_id: ClaimId
    machine_id: MachineId
    lease_id: LeaseId
    agent_sha256: str | None
    """Which agent is installed; None before one is."""
    installed_at: datetime | None
    why: str | None
    """Why it could not be installed, or not be replaced by a newer one."""
    reported_at: datetime | None
    """When its last heartbeat reached the collector."""
    heartbeat: Mapping[str, Any] | None
    """Its last heartbeat: a claim of the machine's."""
    received: int
    """Heartbeats so far."""
    results: Mapping[str, Mapping[str, Any]]
    """The last result of each task, with the time at which it came."""
    ended_at: datetime | None


def state(agent: Agent | AgentEvidence, now: datetime) -> AgentState:
    if agent.ended_at is not None:
        return AgentState.ENDED
    if agent.reported_at is None:
        return AgentState.WAITING
    return AgentState.SILENT if now - agent.reported_at > SILENT_AFTER else AgentState.REPORTING


def task_due(done_at: Mapping[str, datetime], now: datetime) -> AgentTask | None:
    """The task whose last result is the oldest, of those that are due; None when none is."""
    due = [task for task, period in _EVERY.items() if task not in done_at or now - done_at[task] >= period]
    return min(due, key=lambda task: (task in done_at, done_at.get(task, now)), default=None)
