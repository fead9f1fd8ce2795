"""Nodes on the wire."""

from datetime import datetime

from control_plane.api.views.agents import lease_agent_view
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.node import FAILING, LeaveReason, NodeState, why_it_leaves
from control_plane.domain.node_evidence import GIVEN_UP, phrase
from control_plane.services.nodes import NodeOverview, NodeReport
from control_plane.wire.nodes import (
    NodeReportView,
    NodeStepView,
    NodeView,
    SoldCapacityView,
    StepEvidenceView,
)

_OUR_WORDS = frozenset({LeaveReason.LEASE_ENDED, LeaveReason.TAKEN_AWAY})


def _leave_why(node: NodeOverview) -> str | None:
    """What ended the lease, in our words. What failed before can be words of the machine, which operators read."""
    if node.leave_reason is None or node.leave_reason in _OUR_WORDS:
        return node.leave_why
    return why_it_leaves(node.leave_reason)


def node_view(node: NodeOverview, now: datetime) -> NodeView:
    return NodeView(
        id=on_wire(Prefix.NODE, node.id),
        name=node.name,
        cluster=node.cluster,
        cluster_id=on_wire(Prefix.CLUSTER, node.cluster_id),
        node_pool=node.node_pool,
        node_pool_id=on_wire(Prefix.NODE_POOL, node.node_pool_id),
        project=node.project,
        project_id=on_wire(Prefix.PROJECT, node.project_id),
        lease=node.lease,
        lease_id=on_wire(Prefix.LEASE, node.lease_id),
        machine_id=on_wire(Prefix.MACHINE, node.machine_id),
        gpu_model=node.gpu_model,
        gpu_count=node.gpu_count,
        state=node.state.value,
        steps=tuple(NodeStepView(step.step, step.at) for step in node.steps),
        failing_why=None if node.failing_why is None else FAILING,
        conditions=dict(node.conditions),
        agent=lease_agent_view(node.agent, now),
        leave_reason=node.leave_reason,
        leave_why=_leave_why(node),
        created_at=node.created_at,
        ready_at=node.ready_at,
        unready_since=node.unready_since,
        leaving_at=node.leaving_at,
        gone_at=node.gone_at,
    )


def node_report_view(report: NodeReport, now: datetime) -> NodeReportView:
    behind = report.behind
    return NodeReportView(
        id=on_wire(Prefix.NODE, report.overview.id),
        node=node_view(report.overview, now),
        organization=behind.organization,
        organization_id=on_wire(Prefix.ORGANIZATION, behind.organization_id),
        account=behind.account,
        address=behind.address,
        evidence=tuple(
            StepEvidenceView(
                each.step,
                each.at,
                phrase(each.step, each.evidence),
                GIVEN_UP in each.evidence,
                dict(each.evidence),
            )
            for each in behind.evidence
        ),
        sold=SoldCapacityView(behind.vcpus, behind.memory_gib, report.overview.gpu_count),
        claims=dict(behind.capacity),
        version=behind.version,
        overlay_number=behind.number,
        endpoint=behind.endpoint,
        tunnels_read_at=behind.peers_read_at,
        server_handshake_at=behind.handshake_at,
        key_holders=None if behind.holders is None else len(behind.holders),
        key_change_requested_at=behind.key_asked_at if report.overview.state is NodeState.READY else None,
        failed_tries=behind.tries,
        deadline_at=behind.deadline_at,
    )
