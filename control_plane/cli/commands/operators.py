"""What an operator looks at first: loops, orphans, accounts. They need an operator's key."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.accounts import account_table
from control_plane.cli.render.loops import loop_table
from control_plane.cli.render.orphans import orphan_pages
from control_plane.cli.terminal import Terminal
from control_plane.wire.accounts import AccountList
from control_plane.wire.loops import LoopList
from control_plane.wire.orphans import OrphanList


def add(to: Commands) -> None:
    command(
        to,
        "loops",
        loops,
        "Show the last report of every loop (operators).",
        more="A loop that is silent for longer than three turns may take shows as stuck.",
        examples="splitplane loops",
    )
    command(
        to,
        "orphans",
        orphans,
        "List machines that no open record claims (operators).",
        examples="splitplane orphans --json",
    )
    command(
        to,
        "accounts",
        accounts,
        "Show the provider accounts: listed when, frozen or failing why (operators).",
        examples="splitplane accounts",
    )


def loops(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/loops", LoopList)
    terminal.present(args.json, answer, lambda page: loop_table(page.items))


def orphans(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/orphans", OrphanList)
    terminal.present(args.json, answer, lambda page: orphan_pages(page.items, terminal.now()))


def accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/accounts", AccountList)
    terminal.present(args.json, answer, lambda page: account_table(page.items, terminal.now()))
