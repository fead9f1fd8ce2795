"""Nodes on the screen."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.agents import agent_facts
from control_plane.cli.render.catalogue import hardware
from control_plane.cli.render.layout import facts, heading, indented, table
from control_plane.cli.words import ago, both, coarse, plural, sentence, short_id, spaced
from control_plane.wire.nodes import NodeReportView, NodeView, StepEvidenceView

_HEALTHY = {"Ready": "True"}


def node_table(nodes: Sequence[NodeView], now: datetime) -> RenderableType:
    if not nodes:
        return Text("No nodes. They come with node pools: splitplane node-pool create")
    return _table(nodes, [node.id for node in nodes], now)


def _table(
    nodes: Sequence[NodeView], ids: list[str], now: datetime, *, varying: Sequence[str] = ()
) -> RenderableType:
    """`ids` are those among which an id is shortened."""
    rows = [
        (
            short_id(node.id, ids),
            node.node_pool,
            _state(node),
            hardware(node.gpu_count, node.gpu_model),
            _told(node) or "-",
            coarse(now - node.created_at),
        )
        for node in nodes
    ]
    columns = ("NODE", "POOL", "STATE", "GPUS", "CONDITIONS", "AGE")
    return table(columns, rows, right=("AGE",), whole=("NODE", "GPUS"), varying=varying)


def node_report_table(reports: Sequence[NodeReportView], now: datetime) -> RenderableType:
    """For operators: the nodes of everybody. States and conditions take several lines, so that all of it has room."""
    if not reports:
        return Text("No nodes.")
    ids = [report.node.id for report in reports]
    rows = [
        (
            short_id(report.node.id, ids),
            report.node.cluster,
            report.organization,
            report.node.node_pool,
            _state(report.node).replace(", ", ",\n"),
            hardware(report.node.gpu_count, report.node.gpu_model),
            _told(report.node, between="\n") or "-",
            coarse(now - report.node.created_at),
        )
        for report in reports
    ]
    columns = ("NODE", "CLUSTER", "FOR", "POOL", "STATE", "GPUS", "CONDITIONS", "AGE")
    return table(columns, rows, right=("AGE",), whole=("NODE",), varying=("CLUSTER",))


def history(nodes: Sequence[NodeView], now: datetime) -> Iterator[RenderableType]:
    """The nodes of a pool, those that are there and those that have left, newest first."""
    there = [node for node in nodes if node.state != "gone" and node.leaving_at is None]
    left = [node for node in nodes if node.leaving_at is not None]
    ids = [node.id for node in nodes]
    if there:
        yield Text()
        yield _table(there, ids, now, varying=("POOL", "GPUS"))
    if left:
        yield Text()
        yield heading("Left")
        yield Text()
        yield _left(left, ids, now)


def _left(nodes: Sequence[NodeView], ids: list[str], now: datetime) -> RenderableType:
    rows = [
        (
            short_id(node.id, ids),
            "-" if node.leaving_at is None else ago(node.leaving_at, now),
            "yes" if node.state == "gone" else "no",
            sentence(_left_why(node)),
        )
        for node in nodes
    ]
    return indented(table(("NODE", "LEFT", "GONE", "WHY"), rows, whole=("NODE", "LEFT")))


def _left_why(node: NodeView) -> str:
    return ": ".join(part for part in (spaced(node.leave_reason or ""), node.leave_why or "") if part)


def node_page(node: NodeView, now: datetime) -> RenderableType:
    steps = [(spaced(step.step).capitalize(), both(step.at, now)) for step in node.steps]
    return Group(
        Text(node.name, style="bold"),
        Text(),
        facts(*_facts(node, now), *steps, ("Gone", both(node.gone_at, now))),
    )


def _facts(node: NodeView, now: datetime) -> list[tuple[str, str | None]]:
    leaves = None if node.leaving_at is None else f"{_left_why(node)}  ({ago(node.leaving_at, now)})"
    return [
        ("Node", node.id),
        ("State", node.state),
        ("Failing", node.failing_why),
        ("Left" if node.state == "gone" else "Leaves", leaves),
        ("Not ready", both(node.unready_since, now)),
        ("Cluster", node.cluster),
        ("Node pool", f"{node.node_pool}, of the project {node.project}"),
        ("Lease", f"{node.lease}, {node.lease_id}"),
        ("Machine", node.machine_id),
        ("GPUs", hardware(node.gpu_count, node.gpu_model)),
        ("Conditions", _conditions(node)),
        *agent_facts(node.agent, now),
        ("Created", both(node.created_at, now)),
    ]


def node_report_page(report: NodeReportView, now: datetime) -> RenderableType:
    """For operators: a node with the evidence of its steps."""
    node = report.node
    tries = f"{report.failed_tries} failed" if report.failed_tries else None
    return Group(
        Text(node.name, style="bold"),
        Text(),
        facts(
            *_facts(node, now),
            ("Tries", tries),
            ("Gives up", both(report.deadline_at, now) if node.state == "joining" else None),
            ("For", f"{report.organization}, {report.organization_id}"),
            ("Account", report.account),
            ("Address", report.address),
            ("Endpoint", report.endpoint or "none from outside: behind NAT, or not known yet"),
            ("Kubelet", report.version),
            ("Sold", _sold(report)),
            ("Claims", ", ".join(f"{name} {much}" for name, much in sorted(report.claims.items())) or None),
            ("Tunnels read", both(report.tunnels_read_at, now)),
            ("Handshake", _handshake(report, now)),
            ("Key", _key(report)),
            ("New key", _key_change(report, now)),
            ("Gone", both(node.gone_at, now)),
        ),
        *_evidence(report.evidence, node.created_at),
    )


def _sold(report: NodeReportView) -> str:
    sold = report.sold
    return f"{sold.vcpus} vCPUs, {sold.memory_gib} GiB, {plural(sold.gpus, 'GPU')}"


def _handshake(report: NodeReportView, now: datetime) -> str | None:
    """With the server, as it was when the tunnels were read."""
    if report.tunnels_read_at is None:
        return None
    return both(report.server_handshake_at, now) or "none with the server"


def _key(report: NodeReportView) -> str | None:
    holders = report.key_holders
    if holders is None:
        return None
    return f"{plural(holders, 'member')} may still have it" if holders else "no other member has it"


def _key_change(report: NodeReportView, now: datetime) -> str | None:
    asked_at = report.key_change_requested_at
    return None if asked_at is None else f"requested {ago(asked_at, now)}"


def _evidence(steps: Sequence[StepEvidenceView], since: datetime) -> Iterator[RenderableType]:
    """Each step with how long it took from the one before, and what is stored of it."""
    if not steps:
        return
    yield Text()
    yield heading("Evidence")
    yield Text()
    before = [since, *(step.at for step in steps)]
    rows = [
        (spaced(step.step), f"{step.at:%H:%M:%S}", coarse(max(step.at - last, timedelta(0))), step.says)
        for step, last in zip(steps, before, strict=False)
    ]
    yield indented(table(("STEP", "AT (UTC)", "TOOK", "SAYS"), rows, right=("TOOK",), whole=("STEP",)))


def _state(node: NodeView) -> str:
    """The state, with the last step of a node that is on its way."""
    if node.state in ("joining", "leaving") and node.steps:
        return f"{node.state}, {spaced(node.steps[-1].step)}"
    return "not ready" if node.state == "ready" and node.unready_since else node.state


def _told(node: NodeView, *, between: str = ", ") -> str | None:
    """Its conditions, and its agent if that does not report. A node that is gone has neither."""
    if node.state == "gone":
        return None
    agent = None if node.agent is None or node.agent.state == "reporting" else f"agent {node.agent.state}"
    return between.join(part for part in (_conditions(node, between=between), agent) if part) or None


def _conditions(node: NodeView, *, between: str = ", ") -> str | None:
    """What is not as it is at a healthy node: `Ready` is True there, and all other conditions are False."""
    odd = [
        name if value == "True" else f"{name}={value}"
        for name, value in sorted(node.conditions.items())
        if value != _HEALTHY.get(name, "False")
    ]
    return between.join(odd) or ("Ready" if node.conditions else None)
