"""Preemptions on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.preemptions import Preemption, StoredDecision, Switch
from control_plane.wire.preemptions import (
    ConsideredView,
    PreemptionDecisionView,
    PreemptionSwitchView,
    PreemptionView,
)


def preemption_view(preemption: Preemption) -> PreemptionView:
    ordered = preemption.ordered_machine_id
    return PreemptionView(
        id=on_wire(Prefix.PREEMPTION, preemption.id),
        lease_id=on_wire(Prefix.LEASE, preemption.lease_id),
        machine_id=on_wire(Prefix.MACHINE, preemption.machine_id),
        for_lease_id=on_wire(Prefix.LEASE, preemption.for_lease_id),
        state=preemption.state,
        why=preemption.why,
        harm_gpu_seconds=preemption.harm_gpu_seconds,
        notified_at=preemption.notified_at,
        interrupt_at=preemption.interrupt_at,
        interrupted_at=preemption.interrupted_at,
        ordered_machine_id=None if ordered is None else on_wire(Prefix.MACHINE, ordered),
        orders=preemption.orders,
        closed_at=preemption.closed_at,
    )


def decision_view(decision: StoredDecision) -> PreemptionDecisionView:
    found = decision.evidence
    lease_id, preemption_id = decision.lease_id, decision.preemption_id
    return PreemptionDecisionView(
        at=decision.at,
        decision=decision.decision,
        for_lease_id=on_wire(Prefix.LEASE, decision.for_lease_id),
        lease_id=None if lease_id is None else on_wire(Prefix.LEASE, lease_id),
        preemption_id=None if preemption_id is None else on_wire(Prefix.PREEMPTION, preemption_id),
        why=decision.why,
        tier=found.tier,
        deadline=found.deadline,
        waiting_why=found.waiting_why,
        considered=tuple(
            ConsideredView(
                lease_id=on_wire(Prefix.LEASE, each.lease_id),
                priority=each.rank,
                harm_gpu_seconds=each.harm,
                kept=each.kept,
                why=each.why,
            )
            for each in found.considered
        ),
    )


def switch_view(switch: Switch | None) -> PreemptionSwitchView:
    if switch is None:
        return PreemptionSwitchView(armed=False, at=None, switched_by=None, reason=None)
    return PreemptionSwitchView(
        armed=switch.armed, at=switch.at, switched_by=switch.switched_by, reason=switch.reason
    )
