"""Nodes on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.agents import agent_facts
from control_plane.cli.render.layout import facts, table
from control_plane.cli.words import both, coarse, short_id, spaced
from control_plane.wire.nodes import NodeView

_HEALTHY = {"Ready": "True"}


def node_table(nodes: Sequence[NodeView], now: datetime) -> RenderableType:
    if not nodes:
        return Text("No nodes. They come with node pools: splitplane node-pool create")
    ids = [node.id for node in nodes]
    rows = [
        (
            short_id(node.id, ids),
            node.node_pool,
            _state(node),
            f"{node.gpu_count} x {node.gpu_model}",
            _conditions(node) or "-",
            node.agent.state if node.agent else "-",
            coarse(now - node.created_at),
        )
        for node in nodes
    ]
    columns = ("NODE", "POOL", "STATE", "GPUS", "CONDITIONS", "AGENT", "AGE")
    return table(columns, rows, right=("AGE",))


def node_page(node: NodeView, now: datetime) -> RenderableType:
    steps = [(spaced(step.step).capitalize(), both(step.at, now)) for step in node.steps]
    return Group(
        Text(node.name, style="bold"),
        Text(),
        facts(
            ("Node", node.id),
            ("State", node.state),
            ("Failing", node.failing_why),
            ("Leaves", node.leave_why),
            ("Not ready", both(node.unready_since, now)),
            ("Cluster", node.cluster),
            ("Node pool", f"{node.node_pool}, of the project {node.project}"),
            ("Lease", f"{node.lease}, {node.lease_id}"),
            ("Machine", node.machine_id),
            ("GPUs", f"{node.gpu_count} x {node.gpu_model}"),
            ("Conditions", _conditions(node)),
            *agent_facts(node.agent, now),
            ("Created", both(node.created_at, now)),
            *steps,
            ("Gone", both(node.gone_at, now)),
        ),
    )


def _state(node: NodeView) -> str:
    """The state, with the last step of a node that is on its way."""
    if node.state in ("joining", "leaving") and node.steps:
        return f"{node.state}, {spaced(node.steps[-1].step)}"
    return "not ready" if node.state == "ready" and node.unready_since else node.state


def _conditions(node: NodeView) -> str | None:
    """What is not as it is at a healthy node: `Ready` is True there, and all other conditions are False."""
    odd = [
        f"{name}={value}"
        for name, value in sorted(node.conditions.items())
        if value != _HEALTHY.get(name, "False")
    ]
    return ", ".join(odd) or ("Ready" if node.conditions else None)
