"""Notices to customers, and repairs of machines, on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import both, sentence, spaced
from control_plane.wire.notices import NoticeView
from control_plane.wire.repairs import MaintenanceView, RepairDetailView, RepairView

_STYLES = {"healthy": "green", "degraded": "yellow"}
_GOOD = frozenset({"recovered", "replaced"})


def notices_table(notices: Sequence[NoticeView], now: datetime) -> RenderableType:
    if not notices:
        return Text("Nothing: you were told nothing about the machines of this lease.")
    parts: list[RenderableType] = []
    for notice in notices:
        style = "green" if notice.kind in _GOOD else "yellow"
        parts += [
            Text.assemble((spaced(notice.kind), style), f"  {both(notice.at, now)}"),
            Text(f"  {notice.message}"),
        ]
    return Group(*parts)


def repairs_pages(repairs: Sequence[RepairView], now: datetime, *, none: str) -> RenderableType:
    """Repairs, or `none`."""
    if not repairs:
        return Text(none, style="green")
    parts: list[RenderableType] = []
    for repair in repairs:
        verdict = Text(spaced(repair.verdict), style=_STYLES.get(repair.verdict, "red"))
        closed = None if repair.outcome is None else f"{repair.outcome}, {both(repair.closed_at, now)}"
        parts += [
            heading(repair.machine_id, spaced(repair.fault)),
            facts(
                ("Repair", repair.id),
                ("Opened for", _opened_for(repair)),
                ("Machine is", verdict if repair.outcome is None else None),
                ("Why", sentence(repair.verdict_why) if repair.outcome is None else None),
                ("Step", f"{repair.step}, since {both(repair.step_at, now)}"),
                ("Waits", sentence(repair.why) if repair.outcome is None else None),
                ("Notified", both(repair.notified_at, now)),
                ("Opened", both(repair.opened_at, now)),
                ("Closed", closed),
            ),
            Text(),
        ]
    return Group(*parts[:-1])


def _opened_for(repair: RepairView) -> str | None:
    """Why it was opened; None while that is what the machine has now."""
    then = (repair.opened_verdict, repair.opened_why)
    if repair.outcome is None and then == (repair.verdict, repair.verdict_why):
        return None
    return f"{spaced(repair.opened_verdict)}: {sentence(repair.opened_why)}"


def ticket_page(repair: RepairDetailView) -> RenderableType:
    """The text as it is: an id that is longer than a line stays whole, to be copied."""
    return Text("\n".join(repair.ticket), no_wrap=True, overflow="ignore")


def maintenance_page(maintenance: MaintenanceView, now: datetime) -> RenderableType:
    return facts(
        ("Machine", maintenance.machine_id),
        ("Out since", both(maintenance.since, now)),
        ("Why", maintenance.why),
        ("Planned", both(maintenance.planned_at, now)),
        ("Returned", both(maintenance.ended_at, now)),
    )
