"""Finance: accounting periods, the ledger, exports of all charges, and decisions on money (platform role `finance`)."""

from argparse import Namespace
from collections.abc import Mapping

from control_plane.cli.commands import (
    charges,
    credit_notes,
    credit_terms,
    exports,
    finance_invoices,
    finance_usage,
    ledger_entries,
    margins,
    price_agreements,
    reconciliations,
    supplier_invoices,
)
from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.money_once import add_key, post
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.finance import account_table, period_page, period_table, transaction_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.finance import (
    LedgerAccountPage,
    LedgerTransactionRequest,
    LedgerTransactionView,
    PeriodPage,
    PeriodView,
    ReopenRequest,
)
from control_plane.wire.vocabulary import FinanceKindWord

PERIODS = "/v1/finance/periods"
_KINDS: Mapping[str, FinanceKindWord] = {"topup": "top_up"}
"""What verbs are called on the wire that have another name there."""


def add(to: Commands) -> None:
    finance = noun(
        to, "finance", "Close the books, export charges, and post what somebody decides on (finance)."
    )
    _add_periods(finance)
    finance_invoices.add(finance)
    credit_notes.add_of_all(finance)
    price_agreements.add(finance)
    credit_terms.add(finance)
    reconciliations.add(finance)
    margins.add(finance)
    supplier_invoices.add(finance)
    charges.add(finance)
    finance_usage.add(finance)
    exports.add_of_all(finance)
    command(
        finance,
        "accounts",
        accounts,
        "Show the ledger's accounts with their balances over all customers.",
        more="The balance of wallet is what we owe customers until they use it.",
        examples="splitplane finance accounts",
    )
    ledger_entries.add(finance)
    for verb, summary, example in (
        (
            "topup",
            "Record what an organization paid in.",
            "--reason 'SEPA 2026-11-23 000815'",
        ),
        ("credit", "Give an organization money to use that nobody paid in.", "--reason 'ticket 4711'"),
        ("refund", "Pay back what an organization has not used.", "--reason 'SEPA 2026-11-23 000815'"),
        ("payment", "Record what an organization paid for invoices.", "--reason 'SEPA 2026-11-23 000815'"),
    ):
        _add_decision(finance, verb, summary, example)


def _add_periods(finance: Commands) -> None:
    periods = noun(finance, "period", "List, close and reopen accounting periods, which are months in UTC.")
    command(
        periods,
        "list",
        list_periods,
        "List the accounting periods, newest first, with what is missing from them.",
        examples="splitplane finance period list",
    )
    closing = command(
        periods,
        "close",
        close,
        "Close a period: nothing in it changes afterwards.",
        more=(
            "If something is missing, the period is closing, and the command says what and\n"
            "exits with 1: run it again later. What arrives after the period was closed is\n"
            "booked in a later one, as a correction."
        ),
        examples="splitplane finance period close 2026-10",
    )
    closing.add_argument("month", metavar="MONTH", help="such as 2026-10")
    add_yes(closing)
    reopening = command(
        periods,
        "reopen",
        reopen,
        "Ask for a closed period to be reopened, or agree to it.",
        more="Two people have to run it: the first one asks, and the second one agrees.",
        examples="splitplane finance period reopen 2026-10 --reason 'ticket 4711'",
    )
    reopening.add_argument("month", metavar="MONTH", help="such as 2026-10")
    reopening.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")


def _add_decision(finance: Commands, verb: str, summary: str, example: str) -> None:
    parser = command(
        finance,
        verb,
        decide,
        summary,
        more="It is final: a transaction of the ledger is never edited. It names you and\nthe reason.",
        examples=f"splitplane finance {verb} heliotrope 24.90 {example}",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("amount", metavar="USD", help="the amount, such as 500 or 24.90")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="stored with who ran it")
    add_yes(parser)
    add_key(parser)
    parser.set_defaults(verb=verb)


def list_periods(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PERIODS, PeriodPage)
    terminal.present(args.json, answer, lambda page: period_table(page.items))


def close(terminal: Terminal, args: Namespace) -> None:
    confirm(terminal, args, f"Close {args.month}? Nothing in it changes afterwards.")
    answer = terminal.client().post(f"{PERIODS}/{args.month}/close", PeriodView)
    terminal.present(args.json, answer, lambda period: period_page(period, terminal.now()))
    if answer.value.state != "closed":
        raise CliError(f"{answer.value.month} is not closed yet.", code="period_not_closed")


def reopen(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().post(f"{PERIODS}/{args.month}/reopen", PeriodView, ReopenRequest(args.reason))
    terminal.present(args.json, answer, lambda period: period_page(period, terminal.now()))


def accounts(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every("/v1/finance/accounts", LedgerAccountPage)
    terminal.present(args.json, answer, lambda listed: account_table(listed.items))


def decide(terminal: Terminal, args: Namespace) -> None:
    value = amount(args.amount, "USD")
    client = terminal.client()
    organization = find(client, args.organization)
    confirm(terminal, args, f"Post a {args.verb} of {args.amount} USD of {organization.name}?")
    kind = _KINDS.get(args.verb, args.verb)
    request = LedgerTransactionRequest(organization.id, kind, value, args.reason)
    answer = post(client, args, "/v1/finance/transactions", LedgerTransactionView, request)
    terminal.present(args.json, answer, lambda posted: transaction_page(posted, organization.name))
