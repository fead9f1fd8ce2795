"""Liabilities: what costs money for nobody. They need the permission `fleet.read`."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.liabilities import liability_pages
from control_plane.cli.terminal import Terminal
from control_plane.wire.liabilities import LiabilityList

PATH = "/v1/operator/liabilities"


def add(to: Commands) -> None:
    liabilities = noun(to, "liability", "See what costs money at providers and serves nobody (operators).")
    command(
        liabilities,
        "list",
        list_liabilities,
        "List what costs money and has to go: machines, orphans, volumes.",
        more="A liability is open until its provider shows the end.",
        examples="splitplane liability list",
    )


def list_liabilities(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, LiabilityList)
    terminal.present(args.json, answer, lambda page: liability_pages(page, terminal.now()))
