"""The balance of one's organization, and the transactions that made it."""

from argparse import Namespace

from control_plane.cli.commands import balance_alerts
from control_plane.cli.commands.months import add_month, month
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.balance import balance_page, entry_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.balance import BalanceEntryPage, BalanceView

PATH = "/v1/balance"
KINDS = ("top_up", "credit", "refund", "charge_back", "usage", "payment", "invoice", "credit_note")


def add(to: Commands) -> None:
    balance = noun(to, "balance", "Show your balance and what changed it, and be warned when it is low.")
    command(
        balance,
        "show",
        show,
        "Show the balance, what is on hold, and how long the rest lasts.",
        more="How long it lasts is computed for the leases that are running now.",
        examples="splitplane balance show",
    )
    parser = command(
        balance,
        "entries",
        entries,
        "List what changed the balance, newest first, each with the balance after it.",
        more=(
            "A charge takes an hour of a lease out of it. A payment of an invoice leaves it\n"
            "as it is: --json and --csv show what invoices left to pay as well. A month has\n"
            "what is booked in it: the charges of its invoice. Kinds: top_up, credit, refund,\n"
            "charge_back, usage, payment, invoice, credit_note."
        ),
        examples="""
        splitplane balance entries --month 2026-11
        splitplane balance entries --kind top_up
        splitplane balance entries --month 2026-10 --csv > october.csv
        """,
    )
    add_month(parser, "only what is booked in this month")
    parser.add_argument("--kind", choices=KINDS, metavar="KIND", help="only transactions of this kind")
    parser.add_argument("--csv", action="store_true", help="exact amounts as CSV")
    balance_alerts.add(balance)


def show(terminal: Terminal, args: Namespace) -> None:
    terminal.present(args.json, terminal.client().get(PATH, BalanceView), balance_page)


def entries(terminal: Terminal, args: Namespace) -> None:
    if args.csv and args.json:
        raise usage("--csv and --json cannot be combined.")
    only = month(args) | ({} if args.kind is None else {"kind": args.kind})
    client = terminal.client()
    if args.csv:
        terminal.write(client.text(f"{PATH}/entries.csv", only))
        return
    answer = client.every(f"{PATH}/entries", BalanceEntryPage, only)
    terminal.present(args.json, answer, lambda page: entry_table(page.items))
