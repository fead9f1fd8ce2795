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
        "List machines that nobody uses and that have to go, and orphans.",
        more=(
            "A liability is open until its provider shows the end. What a launch left besides\n"
            "machines, such as volumes, is in the report of sweep_children: splitplane loops."
        ),
        examples="splitplane liability list",
    )


def list_liabilities(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, LiabilityList)
    terminal.present(args.json, answer, lambda page: liability_pages(page, terminal.now()))
