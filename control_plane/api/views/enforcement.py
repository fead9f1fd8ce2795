"""Enforcement on the wire."""

from control_plane.domain.ids import LeaseId, Prefix, on_wire
from control_plane.services.enforcement import DetectorState, ShownAction
from control_plane.wire.enforcement import DetectorView, EnforcementView, IdleStopView


def enforcement_view(action: ShownAction) -> EnforcementView:
    return EnforcementView(
        id=on_wire(Prefix.ENFORCEMENT_ACTION, action.id),
        lease_id=on_wire(Prefix.LEASE, action.lease_id),
        machine_id=on_wire(Prefix.MACHINE, action.machine_id),
        detector=action.detector,
        action=action.action,
        armed=action.armed,
        at=action.at,
        expires_at=action.expires_at,
        planned_at=action.planned_at,
        basis=action.basis,
        why=action.why,
        evidence=dict(action.evidence),
        rules=action.rules,
        ended_at=action.ended_at,
        ended=action.ended,
        ended_by=action.ended_by,
        ended_why=action.ended_why,
    )


def detector_view(state: DetectorState) -> DetectorView:
    arm = state.arm
    return DetectorView(
        detector=state.detector,
        armed=arm is not None and arm.armed,
        since=None if arm is None else arm.at,
        set_by=None if arm is None else arm.set_by,
        why=None if arm is None else arm.why,
        leases=state.leases,
    )


def idle_stop_view(lease_id: LeaseId, after_seconds: int | None) -> IdleStopView:
    return IdleStopView(lease_id=on_wire(Prefix.LEASE, lease_id), after_seconds=after_seconds)
