"""Notices, repairs and maintenance on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.repair_ticket import text_of
from control_plane.services.repairs import Maintenance, Notice, RepairDetail, ShownRepair
from control_plane.wire.notices import NoticeView
from control_plane.wire.repairs import (
    HealthChangeView,
    MaintenanceView,
    RepairActView,
    RepairDetailView,
    RepairFaultView,
    RepairView,
)


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
        opened_verdict=repair.opened_verdict,
        opened_why=repair.opened_why,
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


def repair_detail_view(detail: RepairDetail) -> RepairDetailView:
    ticket = detail.ticket
    return RepairDetailView(
        repair=repair_view(detail.repair),
        provider=ticket.provider,
        account=ticket.account,
        region=ticket.region,
        native_type=ticket.native_type,
        provider_ref=ticket.reference,
        gpu_uuids=tuple(ticket.gpu_uuids),
        faults=tuple(
            RepairFaultView(
                fault=fault.code,
                gpu=fault.gpu,
                gpu_uuid=ticket.uuid_of(fault.gpu),
                xid=fault.xid,
                source=fault.source,
                first_at=fault.first_at,
                last_at=fault.last_at,
                confirmed_at=fault.confirmed_at,
                detail=fault.detail,
            )
            for fault in ticket.faults
        ),
        changes=tuple(
            HealthChangeView(change.at, change.verdict_before, change.verdict, change.fault, change.why)
            for change in detail.changes
        ),
        done=tuple(RepairActView(done.at, done.what) for done in ticket.done),
        ticket=tuple(text_of(ticket).splitlines()),
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
