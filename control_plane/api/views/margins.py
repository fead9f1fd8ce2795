"""Margins on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.margin import Line, Margin
from control_plane.domain.period import month_text
from control_plane.services.margins import MarginReport
from control_plane.wire.margins import IdleCostView, MarginAmounts, MarginLineView, MarginView


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
    )


def _line_view(line: Line, margin: Margin) -> MarginLineView:
    return MarginLineView(line.key or None, line.name, _amounts(margin))


def _amounts(margin: Margin) -> MarginAmounts:
    return MarginAmounts(
        revenue=money(margin.revenue_nano),
        cost=money(margin.cost_nano),
        unsold_cost=money(margin.unsold_nano),
        idle_cost=money(margin.idle_nano),
        margin=money(margin.margin_nano),
        margin_percent=_percent(margin.basis_points),
    )


def _percent(basis_points: int | None) -> str | None:
    if basis_points is None:
        return None
    whole, rest = divmod(abs(basis_points), 100)
    return f"{'-' if basis_points < 0 else ''}{whole}.{rest:02d}"
