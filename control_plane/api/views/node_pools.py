"""Node pools on the wire."""

from control_plane.api.views.leases import request_view
from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.domain.node_pool import NodePool, NodePoolState
from control_plane.domain.scaled_pool import ScaledPool
from control_plane.services.node_pools import Counts, PoolOverview, PoolReport
from control_plane.wire.node_pools import (
    NodePoolLeasesView,
    NodePoolReportView,
    NodePoolScalingView,
    NodePoolView,
    NodePoolWaitingView,
    ScalingConditionView,
    TaintView,
)


def node_pool_view(overview: PoolOverview) -> NodePoolView:
    pool, counts = overview.pool, overview.counts
    return NodePoolView(
        id=on_wire(Prefix.NODE_POOL, pool.id),
        name=pool.name,
        cluster=pool.cluster,
        cluster_id=on_wire(Prefix.CLUSTER, pool.cluster_id),
        project=pool.project,
        project_id=on_wire(Prefix.PROJECT, pool.project_id),
        environment=pool.environment,
        environment_id=on_wire(Prefix.ENVIRONMENT, pool.environment_id),
        request=request_view(pool.request),
        nodes=pool.nodes,
        node_labels=dict(pool.node_labels),
        node_taints=tuple(TaintView(each.key, each.value, each.effect.value) for each in pool.node_taints),
        state=pool.state.value,
        leases=_leases(counts),
        price_per_hour=money(Nano(counts.nano_per_hour)),
        wait_timeout_seconds=pool.wait_timeout_seconds,
        gives_up_at=pool.gives_up_at if pool.state is NodePoolState.PENDING else None,
        scaling=None if overview.scaling is None else _scaling(overview.scaling),
        waiting=_waiting(pool),
        why=pool.why,
        created_at=pool.created_at,
        ready_at=pool.ready_at,
        gone_at=pool.gone_at,
    )


def node_pool_report_view(report: PoolReport) -> NodePoolReportView:
    pool = report.overview.pool
    return NodePoolReportView(
        id=on_wire(Prefix.NODE_POOL, pool.id),
        node_pool=node_pool_view(report.overview),
        organization=report.organization,
        organization_id=on_wire(Prefix.ORGANIZATION, pool.organization_id),
    )


def _leases(counts: Counts) -> NodePoolLeasesView:
    return NodePoolLeasesView(
        live=counts.leases,
        with_machine=counts.with_machine,
        joining=counts.joining,
        healthy=counts.healthy,
        ready=counts.ready,
        ending=counts.ending,
    )


def _scaling(scaled: ScaledPool) -> NodePoolScalingView:
    return NodePoolScalingView(
        policy=scaled.policy,
        nodes_min=scaled.nodes_min,
        nodes_max=scaled.nodes_max,
        conditions=tuple(
            ScalingConditionView(each.kind, each.is_so, each.reason, each.message, each.since)
            for each in scaled.conditions
        ),
        object_missing_since=scaled.missing_since,
        scaled_at=scaled.scaled_at,
        scaled_why=scaled.scaled_why,
        looked_at=scaled.looked_at,
    )


def _waiting(pool: NodePool) -> NodePoolWaitingView | None:
    if pool.waiting_since is None or pool.waiting_code is None or pool.waiting_why is None:
        return None
    return NodePoolWaitingView(pool.waiting_since, pool.waiting_code.value, pool.waiting_why)
