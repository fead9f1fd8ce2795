"""The console of a lease's machine on the screen."""

from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.journal import journal_lines
from control_plane.cli.render.layout import facts, heading
from control_plane.cli.words import both, spaced
from control_plane.wire.consoles import ConsoleView
from control_plane.wire.leases import LeaseView

STEPS_MAX = 200
"""As many steps as the API sends."""
_SOURCES = {
    "provider": "the provider's console of the machine",
    "machine": "the journal of the machine's last boot",
    "steps": "our own record alone",
}
_PROVIDER = {
    "not_asked": "There was no machine yet, or none any more.",
    "not_offered": "This provider shows consoles to nobody but people, or to nobody.",
    "empty": "It has nothing that the machine printed.",
    "unknown_machine": "It knows no such machine.",
    "too_slow": "It did not have the console within half a minute.",
    "failed": "It did not answer, or refused.",
}
_MACHINE = {
    "no_address": "It has no address yet.",
    "unreachable": "It did not answer over SSH, or did not let us in.",
    "failed": "It was reached, and its journal could not be read.",
}


def console_page(console: ConsoleView, lease: LeaseView, now: datetime) -> RenderableType:
    """The steps first, so that the last lines of the machine are beside the prompt."""
    return Group(
        facts(
            ("Lease", f"{lease.name}  {lease.id}"),
            ("State", lease.state),
            ("Source", _SOURCES.get(console.source or "", spaced(console.source or "none"))),
            ("Provider", _PROVIDER.get(console.provider or "")),
            ("Machine", _MACHINE.get(console.machine or "")),
            ("Read", both(console.answered_at, now)),
        ),
        Text(),
        *journal_lines(console.steps, lease.created_at, what="Steps", last=STEPS_MAX),
        Text(),
        *_lines(console),
    )


def _lines(console: ConsoleView) -> list[RenderableType]:
    if not console.lines:
        return [heading("Console"), Text("  Nothing to show.")]
    beside = "the end of it; there was more" if console.is_cut else ""
    return [heading("Console", beside), *(Text(line) for line in console.lines)]
