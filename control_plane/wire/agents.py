"""Agents on machines, and what they reported last."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText

AgentStateWord = Annotated[
    Literal["waiting", "reporting", "silent", "ended"],
    Meta(
        description="`waiting`: it has not reported yet. `silent`: it reported before, and has not for five minutes."
        " `ended`: its lease has ended, and it is told to remove itself."
    ),
]
AgentTaskWord = Annotated[
    Literal["topology", "verify", "report", "clean"], Meta(description="What the agent was asked to do.")
]


class AgentResultView(View):
    """How a task went, as the machine says."""

    task: AgentTaskWord
    """What it was asked to do."""
    at: Timestamp
    """When the result reached us."""
    done: bool
    """Whether the agent could do it."""
    detail: str
    """What it found, or why it could not."""
    digest: str | None
    """The SHA-256 of the document that it read, or of the agent itself. Another one than before tells of a change."""


class LeaseAgentView(View):
    """What the agent on the machine of a lease reported last. It is a claim of the machine's, and decides nothing."""

    state: AgentStateWord
    """Whether it reports. A machine whose agent is silent may be healthy."""
    reported_at: Timestamp | None
    """When its last heartbeat reached us; null before the first."""
    results: tuple[AgentResultView, ...]
    """The last result of each task."""


class AgentView(View):
    """The agent on the machine of a lease. What it reports is a claim of the machine's, and decides nothing."""

    machine_id: MachineIdText
    """The machine it runs on."""
    lease_id: LeaseIdText
    """The lease that it reports for."""
    state: AgentStateWord
    """Whether it reports."""
    agent_sha256: str | None
    """The agent that is installed; null before one is."""
    installed_at: Timestamp | None
    """When it was installed."""
    why: str | None
    """Why it could not be installed or replaced at the last try; null when it could."""
    reported_at: Timestamp | None
    """When its last heartbeat reached its collector: the hub or, for a node, the server of its cluster."""
    age_seconds: int | None
    """Seconds since then; null before the first heartbeat."""
    received: int
    """How many heartbeats came so far."""
    dropped: int | None
    """How many heartbeats the agent says that it dropped, because its spool was full."""
    uptime_seconds: int | None
    """How long the machine says that it has been up."""
    results: tuple[AgentResultView, ...]
    """The last result of each task."""


class AgentPage(View):
    """A page of agents."""

    items: tuple[AgentView, ...]
    """The agents, the oldest claims first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
