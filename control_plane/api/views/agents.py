"""Agents on the wire."""

from datetime import datetime

from control_plane.domain import agent as rules
from control_plane.domain.agent import Agent, AgentEvidence, AgentTask
from control_plane.domain.ids import Prefix, on_wire
from control_plane.wire.agents import AgentResultView, AgentView, LeaseAgentView


def agent_view(agent: Agent, now: datetime) -> AgentView:
    heartbeat = agent.heartbeat or {}
    reported_at = agent.reported_at
    return AgentView(
        machine_id=on_wire(Prefix.MACHINE, agent.machine_id),
        lease_id=on_wire(Prefix.LEASE, agent.lease_id),
        state=rules.state(agent, now).value,
        agent_sha256=agent.agent_sha256,
        installed_at=agent.installed_at,
        why=agent.why,
        reported_at=reported_at,
        age_seconds=None if reported_at is None else max(0, int((now - reported_at).total_seconds())),
        received=agent.received,
        dropped=heartbeat.get("dropped"),
        uptime_seconds=heartbeat.get("uptime_seconds"),
        results=_results(agent),
    )


def lease_agent_view(agent: AgentEvidence | None, now: datetime) -> LeaseAgentView | None:
    """As customers read it: why an agent could not be installed is for operators."""
    if agent is None:
        return None
    return LeaseAgentView(rules.state(agent, now).value, agent.reported_at, _results(agent))


def _results(agent: Agent | AgentEvidence) -> tuple[AgentResultView, ...]:
    return tuple(_result(agent, task) for task in AgentTask if task in agent.results)


def _result(agent: Agent | AgentEvidence, task: AgentTask) -> AgentResultView:
    result = agent.results[task]
    return AgentResultView(
        task=task.value,
        at=datetime.fromisoformat(result["at"]),
        done=result["done"],
        detail=result["detail"],
        digest=result["digest"],
    )
