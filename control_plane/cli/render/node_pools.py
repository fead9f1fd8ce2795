"""Node pools on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, indented, table
from control_plane.cli.render.nodes import history
from control_plane.cli.words import both, coarse, plural, price, spaced
from control_plane.wire.node_pools import NodePoolReportView, NodePoolView, ScalingConditionView, TaintView
from control_plane.wire.nodes import NodeView


def node_pool_table(pools: Sequence[NodePoolView], now: datetime, cluster: str = "CLUSTER") -> RenderableType:
    """`cluster` is the one that they are of, if it is known."""
    if not pools:
        example = f"splitplane node-pool create NAME --cluster {cluster} --nodes 2 --sku SKU"
        return Group(Text("No node pools. Create one:"), indented(Text(example)))
    rows = [
        (
            pool.name,
            pool.cluster,
            _state(pool),
            f"{pool.leases.ready}/{pool.nodes}",
            _follows(pool),
            pool.request.sku,
            price(pool.price_per_hour),
            coarse(now - pool.created_at),
        )
        for pool in pools
    ]
    columns = ("NAME", "CLUSTER", "STATE", "READY", "SCALED", "SKU", "USD/H", "AGE")
    return table(columns, rows, right=("READY", "USD/H", "AGE"))


def node_pool_report_table(reports: Sequence[NodePoolReportView], now: datetime) -> RenderableType:
    """For operators: the node pools of everybody in a cluster."""
    if not reports:
        return Text("No node pools.")
    rows = [
        (
            report.node_pool.name,
            report.organization,
            _state(report.node_pool),
            f"{report.node_pool.leases.ready}/{report.node_pool.nodes}",
            _waits_for(report.node_pool) or "-",
            report.node_pool.request.sku,
            coarse(now - report.node_pool.created_at),
        )
        for report in reports
    ]
    columns = ("NAME", "FOR", "STATE", "READY", "WAITS FOR", "SKU", "AGE")
    return table(columns, rows, right=("READY", "AGE"))


def _waits_for(pool: NodePoolView) -> str | None:
    """What keeps it from its nodes, or what is on its way; None for one that has all it wants."""
    leases = pool.leases
    if pool.state in ("deleting", "gone"):
        return f"{plural(leases.ending, 'machine')} to end" if leases.ending else None
    refused = [] if pool.waiting is None else [spaced(pool.waiting.code)]
    refused += [_WORDS.get(each.type, each.type).lower() for each in _in_the_way(pool)]
    if refused:
        return ", ".join(refused)
    machines, closed = max(pool.nodes - leases.with_machine, 0), leases.with_machine - leases.ready
    parts = [plural(machines, "machine")] if machines else []
    return ", ".join([*parts, f"{plural(closed, 'node')} to open"] if closed else parts) or None


def _state(pool: NodePoolView) -> str:
    return "waiting" if pool.waiting or _in_the_way(pool) else pool.state


def _in_the_way(pool: NodePoolView) -> list[ScalingConditionView]:
    """What keeps a pool that follows an object from having its nodes."""
    conditions = () if pool.scaling is None else pool.scaling.conditions
    return [each for each in conditions if each.type != "Ready" and not each.status]


def _follows(pool: NodePoolView) -> str:
    """Who decides how many nodes it has, with the bounds."""
    scaling = pool.scaling
    if scaling is None:
        return "here"
    if scaling.object_missing_since is not None:
        return "object missing"
    if scaling.policy is None:
        return "by its object"
    return f"{scaling.nodes_min} to {scaling.nodes_max}"


def node_pool_page(
    pool: NodePoolView, now: datetime, nodes: Sequence[NodeView] | None = None
) -> RenderableType:
    return Group(
        Text(pool.name, style="bold"),
        Text(),
        facts(
            ("Node pool", pool.id),
            ("State", f"{pool.state}: {_nodes(pool)}"),
            ("Waiting", _waiting(pool, now)),
            ("Scaled", _scaled(pool)),
            *[(_WORDS.get(each.type, each.type), _told(each, now)) for each in _in_the_way(pool)],
            ("Last scaled", _last_scaled(pool, now)),
            ("Why", pool.why),
            ("Gives up", both(pool.gives_up_at, now)),
            ("Cluster", pool.cluster),
            ("Project", pool.project),
            ("Environment", pool.environment),
            ("Each node", _request(pool)),
            ("Price", f"{price(pool.price_per_hour)} USD per hour together"),
            ("Labels", " ".join(f"{key}={value}" for key, value in sorted(pool.node_labels.items())) or None),
            ("Taints", " ".join(taint_text(taint) for taint in pool.node_taints) or None),
            ("Created", both(pool.created_at, now)),
            ("Ready", both(pool.ready_at, now)),
            ("Gone", both(pool.gone_at, now)),
        ),
        *([] if nodes is None else history(nodes, now)),
    )


_WORDS = {"Admitted": "Not admitted", "CapacityAvailable": "No capacity"}


def _scaled(pool: NodePoolView) -> str | None:
    scaling = pool.scaling
    if scaling is None:
        return None
    if scaling.object_missing_since is not None:
        return "its NodePool is missing in the cluster; nodes leave when they are empty"
    if scaling.policy is None:
        return "as its NodePool in the cluster says"
    return f"between {scaling.nodes_min} and {scaling.nodes_max} nodes, by the ScalingPolicy {scaling.policy}"


def _told(condition: ScalingConditionView, now: datetime) -> str:
    return f"for {coarse(now - condition.since)}: {condition.message}"


def _last_scaled(pool: NodePoolView, now: datetime) -> str | None:
    scaling = pool.scaling
    if scaling is None or scaling.scaled_at is None:
        return None
    return f"{both(scaling.scaled_at, now)}: {scaling.scaled_why}"


def progress_of(pool: NodePoolView) -> str:
    """How far the nodes of a pool are, and what it waits for, as a phrase."""
    waiting = pool.waiting
    return _nodes(pool) if waiting is None else f"{_nodes(pool)}, {spaced(waiting.code)}: {waiting.why}"


def _nodes(pool: NodePoolView) -> str:
    leases = pool.leases
    counts = {
        "with a machine": leases.with_machine,
        "joining": leases.joining,
        "healthy": leases.healthy,
        "ending": leases.ending,
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count or what == "with a machine"]
    done = leases.ready == leases.with_machine == pool.nodes
    return ", ".join([f"{leases.ready} of {pool.nodes} nodes ready", *(parts[1:] if done else parts)])


def taint_text(taint: TaintView) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _waiting(pool: NodePoolView, now: datetime) -> str | None:
    waiting = pool.waiting
    if waiting is None:
        return None
    return f"for {coarse(now - waiting.since)}, {spaced(waiting.code)}: {waiting.why}"


def _request(pool: NodePoolView) -> str:
    request = pool.request
    least = "" if request.network_gbps_min is None else f"{request.network_gbps_min:,} Gbit/s at least"
    parts = [request.sku, " or ".join(request.regions), " or ".join(request.providers), least]
    return ", ".join(part for part in parts if part)
