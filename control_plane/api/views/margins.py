"""Margins on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.child_cost import ChildCost
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.margin import Line, Margin
from control_plane.domain.money import Nano
from control_plane.domain.period import month_text
from control_plane.services.margins import MarginReport
from control_plane.wire.margins import IdleCostView, LeftBehindView, MarginAmounts, MarginLineView, MarginView


def margin_view(report: MarginReport) -> MarginView:
    return MarginView(
        month=month_text(report.month),
        until=report.until,
        by=report.found.by.value,
        machines=report.found.machines,
        total=_amounts(report.found.total),
        uncertain_cost=money(report.found.uncertain_nano),
        idle=tuple(
            IdleCostView(tier, money(nano))
            for tier, nano in sorted(report.found.idle.items(), key=lambda item: item[0] or "")
        ),
        lines=tuple(_line_view(line, margin) for line, margin in report.lines),
        others=_amounts(report.others),
        others_count=report.others_count,
        left_behind=tuple(_left_view(child, cost) for child, cost in report.left),
        left_behind_count=report.left_count,
    )


def _line_view(line: Line, margin: Margin) -> MarginLineView:
    return MarginLineView(line.key or None, line.name, _amounts(margin))


def _left_view(child: ChildCost, cost: Nano) -> LeftBehindView:
    return LeftBehindView(
        account=child.account,
        kind=child.kind,
        provider_ref=child.ref,
        cost_per_hour=money(child.nano_per_hour),
        first_seen_at=child.first_seen_at,
        last_seen_at=child.last_seen_at,
        since=child.left_at,
        until=child.gone_at,
        cost=money(cost),
        machine_id=on_wire(Prefix.MACHINE, child.machine_id) if child.machine_id else None,
        lease_id=on_wire(Prefix.LEASE, child.lease_id) if child.lease_id else None,
        lease=child.lease,
        organization_id=on_wire(Prefix.ORGANIZATION, child.organization_id)
        if child.organization_id
        else None,
        organization=child.organization,
    )


def _amounts(margin: Margin) -> MarginAmounts:
    return MarginAmounts(
        revenue=money(margin.revenue_nano),
        cost=money(margin.cost_nano),
        unsold_cost=money(margin.unsold_nano),
        idle_cost=money(margin.idle_nano),
        left_behind_cost=money(margin.left_nano),
        margin=money(margin.margin_nano),
        margin_percent=_percent(margin.basis_points),
    )


def _percent(basis_points: int | None) -> str | None:
    if basis_points is None:
        return None
    whole, rest = divmod(abs(basis_points), 100)
    return f"{'-' if basis_points < 0 else ''}{whole}.{rest:02d}"
