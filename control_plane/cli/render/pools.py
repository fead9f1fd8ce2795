"""Warm pools on the screen."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import ago, both, rounded, sentence, spaced, span
from control_plane.wire.pools import (
    IdleCostsView,
    PoolDecisionView,
    PoolDetailView,
    PoolFiguresView,
    PoolView,
)

_STATES = {"active": "green", "dry_run": "yellow", "deleting": "red"}


def pool_table(pools: Sequence[PoolView]) -> RenderableType:
    if not pools:
        return Text("No warm pools. To create one: splitplane pool create --help")
    rows = [
        (
            Text(pool.name, style="bold"),
            f"{pool.sku}\nin {pool.region}",
            pool.sla or "all",
            Text(spaced(pool.state), style=_STATES.get(pool.state, "")),
            f"{pool.verified} + {pool.starting}",
            str(pool.target),
            _rate(pool.last_day),
            "-" if pool.last_day is None else rounded(pool.last_day.idle_cost),
        )
        for pool in pools
    ]
    return table(
        ("NAME", "SKU, REGION", "SLA", "STATE", "READY", "TARGET", "HITS", "IDLE USD/DAY"),
        rows,
        whole=("SKU, REGION",),
        right=("READY", "TARGET", "HITS", "IDLE USD/DAY"),
    )


def _rate(figures: PoolFiguresView | None) -> str:
    if figures is None or figures.hit_rate is None:
        return "-"
    return f"{figures.hit_rate:.0%} of {figures.requests:,}"


def pool_page(pool: PoolDetailView, now: datetime) -> RenderableType:
    parts: list[RenderableType] = [
        heading(f"Pool {pool.name}", f"{pool.sku} in {pool.region}"),
        facts(
            ("Id", pool.id),
            ("State", Text(spaced(pool.state), style=_STATES.get(pool.state, ""))),
            ("Serves", f"{pool.sla} leases" if pool.sla else "leases of all service levels"),
            ("Machines", f"{pool.verified} ready, {pool.starting} being set up, {pool.target} to keep"),
            ("Why", sentence(pool.why) if pool.why else None),
            ("Policy", f"{pool.policy}, from {pool.machines_min} to {pool.machines_max}"),
            ("Step", f"{pool.step_max} in one look at the most"),
            ("Budget", f"{rounded(pool.idle_per_day)} USD per day"),
            ("Waiting", f"counts as {rounded(pool.waiting_per_hour)} USD per hour"),
            ("Created", both(pool.created_at, now)),
            ("Looked at", both(pool.decided_at, now)),
        ),
    ]
    if pool.idle_costs is not None:
        parts += [Text(), heading("A machine while it waits"), _idle_costs(pool.idle_costs)]
    for name, figures in (("Last 24 hours", pool.last_day), ("Last 7 days", pool.last_week)):
        if figures is not None:
            parts += [Text(), heading(name), _figures(figures)]
    if pool.decisions:
        parts += [Text(), heading("Decisions"), _decisions(pool.decisions, now)]
    return Group(*parts)


def _figures(figures: PoolFiguresView) -> RenderableType:
    return facts(
        ("Requests", f"{figures.requests:,}"),
        ("Hits", f"{figures.hits:,}" + ("" if figures.hit_rate is None else f", {figures.hit_rate:.0%}")),
        ("Ready after", _waits(figures)),
        ("Avoided wait", span(timedelta(seconds=figures.avoided_wait_seconds))),
        ("Idle cost", f"{rounded(figures.idle_cost)} USD"),
    )


def _idle_costs(costs: IdleCostsView) -> RenderableType:
    return facts(
        ("Measured", f"{costs.machines:,} machines of the last 7 days"),
        (
            "Each cost",
            ", ".join(
                (
                    f"{rounded(costs.mean)} USD on average",
                    f"{rounded(costs.median)} in the median",
                    f"{rounded(costs.p90)} at most for 90%",
                )
            ),
        ),
        (
            "An hour cost",
            f"{rounded(costs.mean_per_hour)} USD on average, {rounded(costs.p90_per_hour)} at most for 90%",
        ),
    )


def _waits(figures: PoolFiguresView) -> str | None:
    words = [
        f"{seconds:.1f} s {which}"
        for seconds, which in (
            (figures.waited_seconds_hit, "from the pool"),
            (figures.waited_seconds_miss, "otherwise"),
        )
        if seconds is not None
    ]
    return ", ".join(words) or None


def _decisions(decisions: Sequence[PoolDecisionView], now: datetime) -> RenderableType:
    rows = [
        (
            ago(decision.at, now),
            f"{decision.wanted}",
            f"{decision.target}",
            f"+{decision.ordered} -{decision.ended}" + (" (dry run)" if decision.dry_run else ""),
            sentence(decision.why),
        )
        for decision in decisions
    ]
    return table(("WHEN", "WANTED", "TARGET", "DONE", "WHY"), rows, right=("WANTED", "TARGET"))
