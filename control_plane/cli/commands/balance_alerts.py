"""Warnings of a low balance and of a monthly budget."""

from argparse import Namespace

from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.balance_alerts import alerts_page, balance_event_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.balance_alerts import BalanceAlertsRequest, BalanceAlertsView, BalanceEventPage

PATH = "/v1/balance/alerts"


def add(balance: Commands) -> None:
    """Add the noun `alert` to `splitplane balance`."""
    alerts = noun(balance, "alert", "Be warned of a low balance, and of what a month has cost.")
    command(
        alerts,
        "show",
        show,
        "Show what your organization is warned of, and where it stands.",
        examples="splitplane balance alert show",
    )
    parser = command(
        alerts,
        "set",
        put,
        "Set what your organization is warned of. It replaces what was set before.",
        more=(
            "Without --below, the balance is low when it pays for less than 24 hours of what\n"
            "runs. A budget warns, and limits nothing: for a limit, see\n"
            "`splitplane envelope set --month`."
        ),
        examples="""
        splitplane balance alert set --below 100
        splitplane balance alert set --budget 5000 --percent 50 --percent 90
        """,
    )
    parser.add_argument("--below", metavar="USD", help="warn below this balance; 0: never")
    parser.add_argument("--budget", metavar="USD", help="what is to be spent in a calendar month (UTC)")
    parser.add_argument(
        "--percent",
        type=int,
        action="append",
        metavar="N",
        help="warn at this share of the budget; may be repeated; default: 50, 80 and 100",
    )
    command(
        alerts,
        "history",
        history,
        "List what your organization was warned of, newest first.",
        examples="splitplane balance alert history",
    )


def show(terminal: Terminal, args: Namespace) -> None:
    terminal.present(args.json, terminal.client().get(PATH, BalanceAlertsView), alerts_page)


def put(terminal: Terminal, args: Namespace) -> None:
    percents = {} if args.percent is None else {"budget_percents": tuple(args.percent)}
    request = BalanceAlertsRequest(args.below, args.budget, **percents)
    terminal.present(args.json, terminal.client().put(PATH, BalanceAlertsView, request), alerts_page)


def history(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every("/v1/balance/events", BalanceEventPage)
    terminal.present(args.json, answer, lambda page: balance_event_table(page.items, terminal.now()))
