"""Agents on the screen."""

from collections.abc import Sequence
from datetime import timedelta

from rich.console import RenderableType

from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse
from control_plane.wire.agents import AgentView


def agent_table(agents: Sequence[AgentView]) -> RenderableType:
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
