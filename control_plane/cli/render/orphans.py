"""Orphaned machines on the screen."""

import shlex
from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, indented
from control_plane.cli.words import both, cents, plural, price, rounded
from control_plane.wire.orphans import OrphanDecisionList, OrphanView


def orphan_pages(orphans: Sequence[OrphanView], now: datetime) -> RenderableType:
    if not orphans:
        return Text(
            "No orphans: every machine with one of our launch keys belongs to an open record.", style="green"
        )
    parts: list[RenderableType] = []
    for orphan in orphans:
        parts += [*_parts(orphan, now), Text()]
    total = _total([orphan for orphan in orphans if orphan.gone_at is None])
    return Group(*parts[:-1]) if total is None else Group(*parts, Text(total))


def orphan_page(orphan: OrphanView, now: datetime) -> RenderableType:
    """One orphan, with what may be decided about it."""
    if orphan.gone_at is not None:
        return Group(*_parts(orphan, now))
    where = f"{shlex.quote(orphan.account)} {shlex.quote(orphan.provider_ref)} --reason TEXT"
    choices = [("Revoke", "revoke")] if orphan.decision is not None else []
    choices += [("End", "end"), ("Leave", "leave")]
    if orphan.not_adopted_why is None:
        choices.append(("Adopt", "adopt"))
    commands = facts(*((label, f"splitplane orphan {verb} {where}") for label, verb in choices))
    return Group(*_parts(orphan, now), Text(), Text("What you may decide:"), commands)


def _parts(orphan: OrphanView, now: datetime) -> Sequence[RenderableType]:
    lists = plural(orphan.lists_seen, "list")
    return (
        heading(f"{orphan.account} {orphan.provider_ref}", orphan.native_status),
        facts(
            ("Launch key", orphan.launch_key),
            ("What it is", orphan.origin_why),
            ("Costs", _cost(orphan)),
            ("First seen", both(orphan.first_seen_at, now)),
            ("Last seen", f"{both(orphan.last_seen_at, now)}, in {lists}"),
            ("Gone", both(orphan.gone_at, now)),
            ("Held back", orphan.held_why if orphan.gone_at is None else None),
            ("Adoption", _adoption(orphan)),
            ("Decision", _decided(orphan, now)),
            ("Termination requested", both(orphan.terminate_asked_at, now) or _not_yet(orphan)),
            ("Note", orphan.note),
        ),
    )


def _adoption(orphan: OrphanView) -> str | None:
    if orphan.gone_at is not None:
        return None
    return orphan.not_adopted_why or "Its record can take it."


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
    decision = orphan.decision
    if decision is None:
        return None
    return f"{decision.choice}: {both(decision.at, now)}, by {decision.actor}: {decision.why}"


_DECIDED = {
    "end": "The next runs of collect_orphans terminate {}:",
    "leave": "Nothing here terminates {} until you decide otherwise:",
    "adopt": "The next run of collect_orphans gives {} to their records:",
    "revoke": "No decision counts any more for {}:",
}


def decision_pages(answer: OrphanDecisionList) -> RenderableType:
    machines = plural(len(answer.items), "machine")
    heading_line = _DECIDED.get(answer.items[0].choice, "{}:").format(machines)
    lines = [f"{decision.account} {decision.provider_ref}" for decision in answer.items]
    return Group(Text(heading_line), *(indented(Text(line)) for line in lines))
