"""Orphaned machines. They need the permission `orphans.read`."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.orphans import orphan_pages
from control_plane.cli.terminal import Terminal
from control_plane.wire.orphans import OrphanList


def add(to: Commands) -> None:
    command(
        to,
        "orphans",
        orphans,
        "List machines that no open record claims (operators).",
        examples="splitplane orphans --json",
    )


def orphans(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/orphans", OrphanList)
    terminal.present(args.json, answer, lambda page: orphan_pages(page.items, terminal.now()))
