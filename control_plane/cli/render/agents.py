"""Agents on the screen."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import ago, coarse
from control_plane.wire.agents import AgentResultView, AgentView, LeaseAgentView


def agent_table(agents: Sequence[AgentView]) -> RenderableType:
    if not agents:
        return Text("No agents: none was installed on a machine of a lease.")
    rows = [
        (
            agent.lease_id,
            agent.state,
            "-" if agent.age_seconds is None else coarse(timedelta(seconds=agent.age_seconds)),
            agent.why or _last(agent),
        )
        for agent in agents
    ]
    columns = ("LEASE", "STATE", "REPORTED", "LAST")
    return table(columns, rows, right=("REPORTED",), whole=("LEASE", "STATE"))


def _last(agent: AgentView) -> str:
    """The state of the GPUs at the last report, as the machine says."""
    reports = [result.detail for result in agent.results if result.task == "report"]
    return reports[0] if reports else "-"


_SUBJECTS = {
    "report": "GPU state",
    "topology": "GPU topology",
    "verify": "Agent limits",
    "clean": "Agent folder",
}
"""What the result of each task is about."""


def agent_facts(agent: LeaseAgentView | None, now: datetime) -> list[tuple[str, str | None]]:
    """What the agent of a lease reported last."""
    if agent is None:
        return []
    return [
        ("Agent", _standing(agent, now)),
        *((_SUBJECTS.get(result.task, result.task), _outcome(result, now)) for result in agent.results),
    ]


def _standing(agent: LeaseAgentView, now: datetime) -> str:
    if agent.state == "ended":
        return "told to remove itself"
    if agent.reported_at is None:
        return "has not reported yet"
    said = f"last heartbeat {ago(agent.reported_at, now)}"
    return f"silent, {said}; the machine may be healthy" if agent.state == "silent" else f"reporting, {said}"


def _outcome(result: AgentResultView, now: datetime) -> str:
    failed = "" if result.done else "failed: "
    return f"{failed}{result.detail} ({ago(result.at, now)})"
