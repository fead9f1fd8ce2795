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
        parts += [_heading(liability), _facts(liability, now), Text()]
    known = page.count - page.unpriced
    without = f"; the price of {page.unpriced} more is unknown" if page.unpriced else ""
    total = (
        f"{known:,} of known price: {price(page.cost_per_hour)} USD per hour,"
        f" {rounded(page.cost)} USD so far{without}."
    )
    return Group(*parts, Text(total))


def liability_page(liability: LiabilityView, now: datetime) -> RenderableType:
    return Group(_heading(liability), _facts(liability, now), Text(_next(liability), style="dim"))


def _heading(liability: LiabilityView) -> RenderableType:
    return heading(
        f"{liability.account} {liability.provider_ref or 'without a known id'}",
        liability.child_kind or liability.kind,
    )


def _facts(liability: LiabilityView, now: datetime) -> RenderableType:
    decision = liability.decision
    return facts(
        ("Id", liability.id),
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
        (
            "Decision",
            f"end it: {decision.why} ({decision.actor}, {both(decision.at, now)})" if decision else None,
        ),
    )


def _next(liability: LiabilityView) -> str:
    if liability.kind == "machine":
        return "Nothing to decide: its provider is asked until it is gone."
    if liability.decision is not None:
        return "It is ended within a minute, if the provider takes the request."
    end = f"To end it: splitplane liability end {liability.id} --reason TEXT"
    if liability.kind == "orphan":
        return f"More: splitplane orphan show {liability.account} {liability.provider_ref}\n{end}"
    return f"Look at the provider's console first: somebody may use it. {end}"


def _cost(liability: LiabilityView) -> str:
    if liability.cost_per_hour is None or liability.cost is None:
        return "unknown: no record tells its price"
    return f"{price(liability.cost_per_hour)} USD per hour, {rounded(liability.cost)} USD since then"
