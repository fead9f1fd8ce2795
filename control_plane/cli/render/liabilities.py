"""Liabilities on the screen."""

from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import both, price, rounded
from control_plane.wire.liabilities import LiabilityList, LiabilityView


def liability_pages(page: LiabilityList, now: datetime) -> RenderableType:
    if not page.items:
        return Text("No liabilities: everything that costs money serves somebody.", style="green")
    parts: list[RenderableType] = []
    for liability in page.items:
        parts += [
            heading(
                f"{liability.account} {liability.provider_ref or 'without a known id'}",
                liability.child_kind or liability.kind,
            ),
            facts(
                ("Machine", liability.machine_id),
                ("Since", both(liability.since, now)),
                ("Costs", _cost(liability)),
                ("Open because", liability.why),
                ("Termination taken", both(liability.terminate_asked_at, now)),
                ("Next try", both(liability.next_try_at, now)),
                (
                    "Deletions that failed",
                    f"{liability.tries:,}" if liability.child_kind and liability.tries else None,
                ),
            ),
            Text(),
        ]
    known = page.count - page.unpriced
    without = f"; the price of {page.unpriced} more is unknown" if page.unpriced else ""
    total = (
        f"{known:,} of known price: {price(page.cost_per_hour)} USD per hour,"
        f" {rounded(page.cost)} USD so far{without}."
    )
    return Group(*parts, Text(total))


def _cost(liability: LiabilityView) -> str:
    if liability.cost_per_hour is None or liability.cost is None:
        return "unknown: no record tells its price"
    return f"{price(liability.cost_per_hour)} USD per hour, {rounded(liability.cost)} USD since then"
