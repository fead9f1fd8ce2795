"""The trade-off between what idles and who waits, as a table, as a curve on the terminal, and as a drawing (SVG)."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import heading, table
from control_plane.cli.words import plural, rounded
from control_plane.wire.pools import PoolSimulationView, SimulatedPolicyView

ROWS = 14
COLUMNS_MAX = 64
AXIS_WIDTH = 11
_MARKS = {"none": "o", "fixed": "x", "newsvendor": "*"}
_COLOURS = {"none": "#888888", "fixed": "#c0392b", "newsvendor": "#1f6fb4"}
_STYLES = {"none": "dim", "fixed": "red", "newsvendor": "bold blue"}


def simulation_page(found: PoolSimulationView, width: int) -> RenderableType:
    return Group(
        heading(
            f"{plural(found.requests, 'request')}, {plural(found.pools, 'pool')}",
            f"{found.hours:,.1f} hours",
        ),
        _policies(found.policies),
        *_machines(found.policies),
        Text(),
        heading("Trade-off", "mean wait against idle cost"),
        curve(found.curve, min(COLUMNS_MAX, width - AXIS_WIDTH - 2)),
    )


def _name(outcome: SimulatedPolicyView) -> str:
    if outcome.parameter is None:
        return outcome.policy
    if outcome.policy == "fixed":
        return f"fixed {outcome.parameter:.0f}"
    return f"newsvendor at {outcome.parameter:g} USD/h"


def _policies(outcomes: Sequence[SimulatedPolicyView]) -> RenderableType:
    rows = [
        (
            Text(_name(outcome), style=_STYLES.get(outcome.policy, "")),
            f"{outcome.hits / outcome.requests:.0%}",
            f"{outcome.waited_seconds_mean:,.1f} s",
            f"{outcome.waited_seconds_p95:,.0f} s",
            f"{outcome.idle_machine_hours:,.1f}",
            rounded(outcome.idle_cost),
            rounded(outcome.waiting_cost),
            rounded(outcome.total_cost),
        )
        for outcome in outcomes
    ]
    head = ("POLICY", "HITS", "MEAN WAIT", "P95", "IDLE HOURS", "IDLE USD", "WAITING USD", "TOTAL USD")
    return table(head, rows, right=head[1:])


def _machines(outcomes: Sequence[SimulatedPolicyView]) -> list[RenderableType]:
    """How machines differ in what they cost while they wait, of each policy that has some."""
    rows = [
        (_name(outcome), rounded(outcome.idle_cost_median), rounded(outcome.idle_cost_p90))
        for outcome in outcomes
        if outcome.idle_machine_hours
    ]
    head = ("A MACHINE OF", "IDLE USD, MEDIAN", "90% AT MOST")
    return [Text(), table(head, rows, right=head[1:])] if rows else []


def curve(outcomes: Sequence[SimulatedPolicyView], columns: int) -> RenderableType:
    """A scatter of the policies: the mean wait upwards, the idle cost to the right."""
    columns = max(16, columns)
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(ROWS)]
    for outcome, across, up in _placed(outcomes):
        column, row = round(across * (columns - 1)), ROWS - 1 - round(up * (ROWS - 1))
        grid[row][column] = (_MARKS.get(outcome.policy, "?"), _STYLES.get(outcome.policy, ""))
    top = max(outcome.waited_seconds_mean for outcome in outcomes)
    right = max(outcome.idle_cost.nano / 1e9 for outcome in outcomes)
    lines = []
    for number, cells in enumerate(grid):
        label = (
            f"{top * (ROWS - 1 - number) / (ROWS - 1):,.0f} s"
            if number % 4 == 0 or number == ROWS - 1
            else ""
        )
        lines.append(Text.assemble((f"{label:>{AXIS_WIDTH - 2}} |", "dim"), *cells))
    last = f"{right:,.0f} USD"
    lines += [
        Text(" " * (AXIS_WIDTH - 1) + "+" + "-" * columns, style="dim"),
        Text(" " * AXIS_WIDTH + "0" + last.rjust(columns - 1), style="dim"),
        Text(f"{' ' * AXIS_WIDTH}o none   x fixed number   * newsvendor at several prices of waiting"),
    ]
    return Group(*lines)


def _placed(
    outcomes: Sequence[SimulatedPolicyView],
) -> list[tuple[SimulatedPolicyView, float, float]]:
    """Each with where it is, from 0 to 1: its idle cost, and its mean wait. The newsvendor is drawn last."""
    right = max(outcome.idle_cost.nano for outcome in outcomes) or 1
    top = max(outcome.waited_seconds_mean for outcome in outcomes) or 1.0
    ordered = sorted(outcomes, key=lambda outcome: outcome.policy == "newsvendor")
    return [(each, each.idle_cost.nano / right, each.waited_seconds_mean / top) for each in ordered]


def drawing(found: PoolSimulationView) -> str:
    """The same curve as SVG, with both axes in units and a title on each point."""
    width, height, left, bottom, space = 720, 440, 80, 60, 30
    inner, tall = width - left - space, height - bottom - space
    top = max(outcome.waited_seconds_mean for outcome in found.curve)
    right = max(outcome.idle_cost.nano / 1e9 for outcome in found.curve)

    def at(across: float, up: float) -> tuple[float, float]:
        return left + across * inner, space + (1 - up) * tall

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left} {space}V{space + tall}H{left + inner}" fill="none" stroke="#333333"/>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        across, _ = at(share, 0)
        _, up = at(0, share)
        parts += [
            f'<text x="{across:.0f}" y="{space + tall + 18}" text-anchor="middle">{right * share:,.0f}</text>',
            f'<text x="{left - 8}" y="{up + 4:.0f}" text-anchor="end">{top * share:,.0f}</text>',
        ]
    for policy in ("fixed", "newsvendor"):
        points = sorted(
            (each.idle_cost.nano, at(across, up))
            for each, across, up in _placed(found.curve)
            if each.policy in (policy, "none")
        )
        path = " ".join(f"{x:.1f},{y:.1f}" for _, (x, y) in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[policy]}" opacity="0.5"/>')
    for outcome, across, up in _placed(found.curve):
        x, y = at(across, up)
        words = (
            f"{_name(outcome)}: {outcome.hits / outcome.requests:.0%} hits, {outcome.waited_seconds_mean:,.1f} s,"
            f" {rounded(outcome.idle_cost)} USD"
        )
        colour = _COLOURS.get(outcome.policy, "#000000")
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(words)}</title></circle>'
        )
    middle = round(space + tall / 2)
    parts += [
        f'<text x="{left + inner / 2:.0f}" y="{height - 14}" text-anchor="middle">cost of idle machines, USD</text>',
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">mean wait, s</text>',
        *(
            f'<text x="{width - space - 150}" y="{space + 16 * number}" fill="{_COLOURS[policy]}">{policy}</text>'
            for number, policy in enumerate(_COLOURS, start=1)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
