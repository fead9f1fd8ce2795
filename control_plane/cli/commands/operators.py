"""What an operator looks at first: loops, orphans, accounts. They need an operator's key."""

from argparse import Namespace

from control_plane.cli import operators
from control_plane.cli.parsing import Commands, command
from control_plane.cli.terminal import Terminal


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
    answer = terminal.client().get("/v1/operator/loops")
    terminal.present(args.json, answer, lambda one: operators.loops(one["items"]))


def orphans(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/orphans")
    terminal.present(args.json, answer, lambda one: operators.orphans(one["items"], terminal.now()))


def accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/operator/accounts")
    terminal.present(args.json, answer, lambda one: operators.accounts(one["items"], terminal.now()))
