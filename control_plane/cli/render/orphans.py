"""Orphaned machines on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import both, plural
from control_plane.wire.orphans import OrphanView


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
                ("First seen", both(orphan.first_seen_at, now)),
                ("Last seen", f"{both(orphan.last_seen_at, now)}, in {lists}"),
                ("Termination requested", both(orphan.terminate_asked_at, now) or "not yet"),
                ("Note", orphan.note),
            ),
            Text(),
        ]
    return Group(*parts[:-1])
