"""The terms of service levels as a table: a column for each tier."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import span
from control_plane.wire.sla_terms import SlaTierView


def tier_table(tiers: Sequence[SlaTierView]) -> RenderableType:
    """Every promise of every tier, with what is given back when it is broken."""
    if not tiers:
        return Text("Nothing is promised: no terms of service levels are in force.")
    lines: list[tuple[str, Callable[[SlaTierView], str]]] = [
        ("ready within", lambda tier: _within(tier.ready_seconds, tier.ready_credit_percent)),
        (
            "machine back within",
            lambda tier: _within(tier.replacement_seconds, tier.replacement_credit_percent),
        ),
        ("notice of maintenance", lambda tier: _within(tier.notice_seconds, tier.notice_credit_percent)),
        ("degraded GPUs count after", lambda tier: _time(tier.degraded_seconds)),
        ("next machine before the end", lambda tier: "yes" if tier.replace_before_end else "-"),
        ("priority", lambda tier: str(tier.priority)),
        *(_availability(number) for number in range(max(len(tier.availability) for tier in tiers))),
    ]
    rows = [(label, *(said(tier) for tier in tiers)) for label, said in lines]
    words = (
        f"Terms {tiers[0].version}, for leases that are created now. A credit is a share of what the lease was charged"
        " for the month (UTC)."
    )
    return Group(table(("PROMISE", *(tier.tier for tier in tiers)), rows), Text(), Text(words, style="dim"))


def _within(seconds: int | None, credit: str) -> str:
    return "-" if seconds is None else f"{_time(seconds)}, else {short_percent(credit)}"


def _time(seconds: int | None) -> str:
    return "-" if seconds is None else span(timedelta(seconds=seconds))


def _availability(number: int) -> tuple[str, Callable[[SlaTierView], str]]:
    def said(tier: SlaTierView) -> str:
        if number >= len(tier.availability):
            return "-"
        step = tier.availability[number]
        return f"below {short_percent(step.below_percent)}: {short_percent(step.credit_percent)}"

    return "availability in a month" if number == 0 else "", said


def short_percent(percent: str) -> str:
    """`99.50` as `99.5 %`."""
    return f"{percent.rstrip('0').rstrip('.')} %"
