"""The entries of the ledger's accounts, and what we owe each customer (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.commands.months import add_month, month
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.ledger_entries import entry_table, wallet_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.finance import LedgerEntryPage, WalletPage

ACCOUNTS = (
    "wallet",
    "receivable",
    "cash",
    "revenue",
    "credits",
    "tax_payable",
    "rounding",
    "provider_cost",
    "payable",
)


def add(finance: Commands) -> None:
    parser = command(
        finance,
        "entries",
        entries,
        "List the entries of an account, newest first, with who decided on each and why.",
        more=(
            "Amounts are positive on the side where the account usually has its balance.\n"
            "Accounts: wallet, receivable, cash, revenue, credits, tax_payable, rounding,\n"
            "provider_cost, payable."
        ),
        examples="""
        splitplane finance entries --account cash --month 2026-10
        splitplane finance entries --organization heliotrope
        """,
    )
    parser.add_argument(
        "--account", choices=ACCOUNTS, metavar="ACCOUNT", default="wallet", help="default: wallet"
    )
    parser.add_argument(
        "--organization", metavar="ORGANIZATION", help=f"only of this one: {ORGANIZATION_HELP}"
    )
    add_month(parser, "only what is booked in this month")
    command(
        finance,
        "wallets",
        wallets,
        "Show what we owe each customer, and what it owes us.",
        more="The total of the balances is that of the account wallet.",
        examples="splitplane finance wallets",
    )


def entries(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    only = {"account": args.account, **month(args)}
    if args.organization is not None:
        only["organization"] = find(client, args.organization).id
    answer = client.every("/v1/finance/entries", LedgerEntryPage, only)
    terminal.present(args.json, answer, lambda page: entry_table(page.items, args.account))


def wallets(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every("/v1/finance/wallets", WalletPage)
    terminal.present(args.json, answer, lambda page: wallet_table(page.items))
