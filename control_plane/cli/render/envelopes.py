"""Envelopes on the screen: each limit with a bar of what is used of it; and quota requests."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, heading, indented, table
from control_plane.cli.words import coarse, rounded, short_id
from control_plane.wire.envelopes import EnvelopeView, LimitsView, QuotaRequestView

BAR_WIDTH = 20
_NAMES = {
    "ceiling": "ceiling of the organization",
    "organization": "envelope of the organization",
    "project": "envelope of the project",
    "environment": "envelope of the environment",
}


def envelope_page(envelope: EnvelopeView, now: datetime) -> RenderableType:
    parts: list[RenderableType] = [_title(envelope, now)]
    parts.append(indented(_limits(envelope.limits, envelope)))
    for level in envelope.within:
        parts += [Text(), heading(_NAMES.get(level.level, level.level).capitalize())]
        same = level.level in _WHOLE and envelope.level in _WHOLE
        parts.append(indented(_limits(level.limits, envelope if same else None)))
    return Group(*parts)


_WHOLE = frozenset({"ceiling", "organization"})
"""Levels whose scope is the whole organization, so that what is used is the same."""


def _title(envelope: EnvelopeView, now: datetime) -> RenderableType:
    when = None if envelope.set_at is None else f"set {coarse(now - envelope.set_at)} ago"
    return heading(_NAMES.get(envelope.level, envelope.level).capitalize(), when or "not set")


def _limits(limits: LimitsView, used: EnvelopeView | None) -> RenderableType:
    rows = [*_counted(limits, used), *_choices(limits)]
    if not rows:
        return Text("Nothing is limited here.")
    return table(("LIMIT", "USED", "", "OF"), rows, right=("USED", "OF"))


def _counted(limits: LimitsView, used: EnvelopeView | None) -> Iterator[tuple[Cell, Cell, Cell, Cell]]:
    use = None if used is None else used.use
    if limits.gpus is not None:
        yield _row("GPUs", None if use is None else use.gpus, limits.gpus)
    for model, limit in limits.gpus_of_model.items():
        yield _row(model, None if use is None else use.gpus_of_model.get(model, 0), limit)
    for name, limit_, spent in (
        ("USD per hour", limits.spend_per_hour_max, None if use is None else use.spend_per_hour),
        ("USD this month", limits.spend_per_month_max, None if use is None else use.spend_this_month),
    ):
        if limit_ is not None:
            share = None if spent is None else (spent.nano, limit_.nano)
            yield (
                name,
                "" if spent is None else rounded(spent),
                bar(share),
                rounded(limit_),
            )


def _row(name: str, used: int | None, limit: int) -> tuple[Cell, Cell, Cell, Cell]:
    return (name, "" if used is None else str(used), bar(None if used is None else (used, limit)), str(limit))


def bar(share: tuple[int, int] | None) -> Text:
    """A bar of what is used of a limit: yellow from 80 percent, red above all of it."""
    if share is None:
        return Text()
    used, limit = share
    filled = BAR_WIDTH if used >= limit else used * BAR_WIDTH // limit
    style = "red" if used > limit else "yellow" if used * 5 >= limit * 4 else "green"
    return Text.assemble(("█" * filled, style), ("░" * (BAR_WIDTH - filled), "dim"))


def _choices(limits: LimitsView) -> Iterator[tuple[Cell, Cell, Cell, Cell]]:
    for name, words in (
        ("SKUs", limits.skus),
        ("regions", limits.regions),
        ("providers", limits.providers),
        ("tiers", limits.tiers),
        ("purchases", limits.purchases),
    ):
        if words is not None:
            yield (name, "", ", ".join(words) or "none", "")
    for name, most in (("priority", limits.priority_max), ("leases at once", limits.batch_size_max)):
        if most is not None:
            yield (name, "", f"up to {most}", "")
    if limits.burst is not None:
        burst = limits.burst
        over = f"{burst.over_percent} % over for {burst.seconds:,} s at {burst.price_percent} % of the price"
        yield ("burst", "", over, "")
    if limits.ends_after_seconds is not None:
        yield ("leases outside", "", f"end {limits.ends_after_seconds:,} s after their warning", "")


def quota_request_table(
    requests: Sequence[QuotaRequestView], now: datetime, *, organizations: Mapping[str, str] | None = None
) -> RenderableType:
    """With the names of `organizations` by their ids, a column says whose each request is."""
    if not requests:
        return Text("No quota requests.")
    named = organizations is not None
    ids = [request.id for request in requests]
    rows = [
        (
            short_id(request.id, ids),
            *(
                ((organizations or {}).get(request.organization_id, request.organization_id),)
                if named
                else ()
            ),
            request.state,
            request.level,
            "; ".join(_wanted(request.limits)),
            coarse(now - request.asked_at),
            request.answer or request.reason,
        )
        for request in requests
    ]
    columns = ("ID", *(("ORGANIZATION",) if named else ()), "STATE", "LEVEL", "WANTED", "AGE", "WHY")
    return table(columns, rows, right=("AGE",))


def _wanted(limits: LimitsView) -> Iterator[str]:
    for name, _, _, limit in _counted(limits, None):
        yield f"{name} {limit}"
    for name, _, words, _ in _choices(limits):
        yield f"{name} {words}"
