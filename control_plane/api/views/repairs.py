"""Notices, repairs and maintenance on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.repairs import Maintenance, Notice, ShownRepair
from control_plane.wire.notices import NoticeView
from control_plane.wire.repairs import MaintenanceView, RepairView


def notice_view(notice: Notice) -> NoticeView:
    return NoticeView(
        lease_id=on_wire(Prefix.LEASE, notice.lease_id),
        machine_id=on_wire(Prefix.MACHINE, notice.machine_id),
        at=notice.at,
        kind=notice.kind,
        message=notice.message,
        planned_at=notice.planned_at,
    )


def repair_view(repair: ShownRepair) -> RepairView:
    return RepairView(
        id=on_wire(Prefix.REPAIR, repair.id),
        machine_id=on_wire(Prefix.MACHINE, repair.machine_id),
        fault=repair.fault,
        verdict=repair.verdict,
        verdict_why=repair.verdict_why,
        step=repair.step,
        step_at=repair.step_at,
        why=repair.why,
        opened_at=repair.opened_at,
        notified_at=repair.notified_at,
        closed_at=repair.closed_at,
        outcome=repair.outcome,
    )


def maintenance_view(maintenance: Maintenance) -> MaintenanceView:
    return MaintenanceView(
        machine_id=on_wire(Prefix.MACHINE, maintenance.machine_id),
        since=maintenance.since,
        taken_by=maintenance.taken_by,
        why=maintenance.why,
        planned_at=maintenance.planned_at,
        ended_at=maintenance.ended_at,
    )
