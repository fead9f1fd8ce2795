"""Orphaned machines on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, indented
from control_plane.cli.words import both, cents, plural, price, rounded
from control_plane.wire.orphans import OrphanTerminationList, OrphanView


def orphan_pages(orphans: Sequence[OrphanView], now: datetime) -> RenderableType:
    if not orphans:
        return Text(
            "No orphans: every machine with one of our launch keys belongs to an open record.", style="green"
        )
    parts: list[RenderableType] = []
    for orphan in orphans:
        lists = plural(orphan.lists_seen, "list")
        parts += [
            heading(f"{orphan.account} {orphan.provider_ref}", orphan.native_status),
            facts(
                ("Launch key", orphan.launch_key),
                ("What it is", orphan.origin_why),
                ("Costs", _cost(orphan)),
                ("First seen", both(orphan.first_seen_at, now)),
                ("Last seen", f"{both(orphan.last_seen_at, now)}, in {lists}"),
                ("Gone", both(orphan.gone_at, now)),
                ("Held back", orphan.held_why if orphan.gone_at is None else None),
                ("Termination decided", _decided(orphan, now)),
                ("Termination requested", both(orphan.terminate_asked_at, now) or _not_yet(orphan)),
                ("Note", orphan.note),
            ),
            Text(),
        ]
    total = _total([orphan for orphan in orphans if orphan.gone_at is None])
    return Group(*parts[:-1]) if total is None else Group(*parts, Text(total))


def _total(listed: Sequence[OrphanView]) -> str | None:
    """What the orphans that are listed cost together; None when there are none."""
    if not listed:
        return None
    nano = sum(orphan.cost_per_hour.nano for orphan in listed if orphan.cost_per_hour is not None)
    unknown = sum(orphan.cost_per_hour is None for orphan in listed)
    without = f", without {unknown} whose price nobody knows" if unknown else ""
    return f"{plural(len(listed), 'orphan')} listed, {cents(nano)} USD per hour in all{without}."


def _cost(orphan: OrphanView) -> str:
    if orphan.cost_per_hour is None or orphan.cost is None:
        return "unknown: no record tells its price"
    return f"{price(orphan.cost_per_hour)} USD per hour, {rounded(orphan.cost)} USD since it was first seen"


def _not_yet(orphan: OrphanView) -> str:
    return "not yet" if orphan.gone_at is None else "never"


def _decided(orphan: OrphanView, now: datetime) -> str | None:
    if orphan.termination is None:
        return None
    return f"{both(orphan.termination.at, now)}, by {orphan.termination.actor}: {orphan.termination.why}"


def termination_pages(answer: OrphanTerminationList) -> RenderableType:
    lines = [f"{decision.account} {decision.provider_ref}" for decision in answer.items]
    return Group(
        Text(f"The next runs of collect_orphans terminate {plural(len(lines), 'machine')}:"),
        *(indented(Text(line)) for line in lines),
    )
