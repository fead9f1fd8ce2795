"""Margins of a month on the screen."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import plural, rounded
from control_plane.wire.margins import IdleCostView, LeftBehindView, MarginAmounts, MarginView

_RIGHT = ("REVENUE USD", "COST USD", "UNSOLD USD", "MARGIN USD", "%")


def margin_page(found: MarginView) -> RenderableType:
    rows = [_row(line.name, line.amounts) for line in found.lines]
    if found.others_count:
        rows.append(_row(plural(found.others_count, "other"), found.others))
    rows.append(_row("total", found.total))
    parts: list[RenderableType] = [
        heading(f"Margin of {found.month}", f"by {found.by}"),
        facts(
            ("Until", f"{found.until:%Y-%m-%d %H:%M} UTC"),
            ("Machines", f"{found.machines:,}"),
            ("Uncertain", f"{rounded(found.uncertain_cost)} USD of the cost"),
            *_idle(found.idle),
            ("Left behind", _left(found)),
        ),
        Text(),
        table((found.by.upper(), *_RIGHT), rows, right=_RIGHT),
    ]
    if found.left_behind:
        columns = ("KIND", "LEFT BEHIND", "OF", "SINCE", "USD")
        rows = list(map(_left_row, found.left_behind))
        parts += [Text(), table(columns, rows, right=("USD",), whole=("SINCE",))]
    return Group(*parts)


def _left(found: MarginView) -> str | None:
    """What was left behind, all together."""
    if not found.left_behind_count:
        return None
    what = (
        plural(found.left_behind_count, "child")
        if found.left_behind_count == 1
        else f"{found.left_behind_count:,} children"
    )
    return f"{rounded(found.total.left_behind_cost)} USD for {what}"


def _left_row(left: LeftBehindView) -> tuple[Text | str, ...]:
    of = f"{left.organization}/{left.lease}" if left.lease else "no lease" if left.machine_id else "no record"
    return (
        left.kind,
        Text(left.provider_ref, style="bold"),
        of,
        f"{left.since:%Y-%m-%d}",
        rounded(left.cost),
    )


def _idle(found: Sequence[IdleCostView]) -> list[tuple[str, str]]:
    """What warm pools cost, for whom."""
    parts = [f"{rounded(each.cost)} USD for {each.sla or 'all levels'}" for each in found]
    return [("Warm pools", ", ".join(parts))] if parts else []


def _row(name: str, amounts: MarginAmounts) -> tuple[Text | str, ...]:
    style = "red" if amounts.margin.nano < 0 else "green"
    return (
        Text(name, style="bold"),
        rounded(amounts.revenue),
        rounded(amounts.cost),
        rounded(amounts.unsold_cost),
        Text(rounded(amounts.margin), style=style),
        amounts.margin_percent or "-",
    )
