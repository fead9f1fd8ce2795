"""The fleet on the wire."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.services.fleet import FleetCount, FleetMachine
from control_plane.wire.fleet import FleetCountView, FleetMachineView, FleetTotals, FleetTotalView


def fleet_machine_view(machine: FleetMachine, now: datetime) -> FleetMachineView:
    return FleetMachineView(
        id=on_wire(Prefix.MACHINE, machine.id),
        account=machine.account,
        provider=machine.provider,
        provider_ref=machine.provider_ref,
        native_status=machine.provider_state,
        region=machine.region,
        gpu_model=machine.gpu_model,
        gpu_count=machine.gpu_count,
        state=machine.state,
        verdict=None if machine.verdict is None else machine.verdict.value,
        silent=machine.silent,
        stopped=machine.stopped,
        organization_id=None
        if machine.organization_id is None
        else on_wire(Prefix.ORGANIZATION, machine.organization_id),
        organization=machine.organization,
        project_id=None if machine.project_id is None else on_wire(Prefix.PROJECT, machine.project_id),
        project=machine.project,
        lease_id=None if machine.lease_id is None else on_wire(Prefix.LEASE, machine.lease_id),
        lease=machine.lease,
        created_at=machine.created_at,
        cost_per_hour=money(machine.cost_nano_per_hour),
        cost=money(machine.cost_so_far(now)),
    )


def fleet_totals(counts: Sequence[FleetCount]) -> FleetTotals:
    lines = tuple(_total(count, count.provider) for count in counts)
    return FleetTotals(total=_total(_sum(counts), None), lines=lines)


_NONE = FleetCount("", None, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, Nano(0))
_FIGURES = [field.name for field in fields(FleetCount) if field.name not in ("provider", "gpu_model")]


def _sum(counts: Sequence[FleetCount]) -> FleetCount:
    return replace(_NONE, **{name: sum(getattr(count, name) for count in counts) for name in _FIGURES})


def _total(count: FleetCount, provider: str | None) -> FleetTotalView:
    return FleetTotalView(
        provider=provider,
        gpu_model=count.gpu_model,
        all=FleetCountView(count.machines, count.gpus),
        delivered=FleetCountView(count.delivered_machines, count.delivered_gpus),
        healthy=FleetCountView(count.healthy_machines, count.healthy_gpus),
        reserved=FleetCountView(count.reserved_machines, count.reserved_gpus),
        active=FleetCountView(count.active_machines, count.active_gpus),
        cost_per_hour=money(count.nano_per_hour),
    )
