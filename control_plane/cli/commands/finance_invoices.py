"""Issue the invoices of a month, and say who is invoiced (platform role `finance`)."""

import re
from argparse import Namespace

from control_plane.cli.answers import Answer
from control_plane.cli.commands.invoices import add_invoice, present_invoice
from control_plane.cli.commands.organization_lookup import ORGANIZATION_HELP, find
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.invoices import details_page, invoice_page, invoice_table, refused_table
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.exports import PERIOD_PATTERN
from control_plane.wire.invoices import (
    BillingDetailsRequest,
    BillingDetailsView,
    InvoiceBatchView,
    InvoicePage,
    InvoiceRunRequest,
)

PATH = "/v1/finance/invoices"
DRAFTS = "/v1/finance/invoice-drafts"
DETAILS = "/v1/finance/billing-details"
_PERCENT = re.compile(r"([0-9]{1,2})(?:\.([0-9]{1,2}))?")


def add(finance: Commands) -> None:
    invoices = noun(
        finance, "invoice", "Issue the invoices of a month, and list and show those of all customers."
    )
    parser = command(
        invoices,
        "issue",
        issue,
        "Issue the invoices of a closed month.",
        more=(
            "An organization that has its invoice, or used nothing, is passed over. Exits\n"
            "with 1 and names those that cannot be invoiced, such as one without billing\n"
            "details. --draft shows what would be issued, also for an open month."
        ),
        examples="""
        splitplane finance invoice issue 2026-10
        splitplane finance invoice issue 2026-10 --organization heliotrope --draft
        splitplane finance invoice issue 2026-10 --organization acme --draft --html
        """,
    )
    parser.add_argument("period", metavar="PERIOD", help="a month such as 2026-10")
    parser.add_argument("--organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("--draft", action="store_true", help="only compute them")
    parser.add_argument(
        "--html", action="store_true", help="a draft of one organization as a page to print or to keep"
    )
    parser = command(
        invoices,
        "list",
        list_invoices,
        "List the invoices of all customers, newest first.",
        examples="""
        splitplane finance invoice list
        splitplane finance invoice list 2026-10
        """,
    )
    parser.add_argument("period", metavar="PERIOD", nargs="?", help="only those of this month")
    parser = command(
        invoices,
        "show",
        show,
        "Show an invoice of any customer with its lines.",
        examples="""
        splitplane finance invoice show INV-2026-000001
        splitplane finance invoice show INV-2026-000001 --html > invoice.html
        """,
    )
    add_invoice(parser)
    _add_details(finance)


def _add_details(finance: Commands) -> None:
    details = noun(finance, "billing-details", "Say who is invoiced, and at which rate of tax.")
    parser = command(
        details,
        "show",
        show_details,
        "Show who is invoiced for an organization.",
        examples="splitplane finance billing-details show heliotrope",
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser = command(
        details,
        "set",
        set_details,
        "Set who is invoiced for an organization, from its next invoice on.",
        more="It replaces what was set before as a whole.",
        examples="""
        splitplane finance billing-details set acme DE 19 --name Acme --address Bonn
        """,
    )
    parser.add_argument("organization", metavar="ORGANIZATION", help=ORGANIZATION_HELP)
    parser.add_argument("country", metavar="COUNTRY", help="two letters, such as DE")
    parser.add_argument("tax_rate", metavar="PERCENT", help="the rate of tax, such as 19 or 8.1")
    parser.add_argument("--name", required=True, metavar="TEXT", help="the legal name of the buyer")
    parser.add_argument(
        "--address", required=True, action="append", metavar="LINE", help="a line of its address; repeatable"
    )
    parser.add_argument("--tax-id", metavar="ID", help="its number for tax, such as a VAT number")
    parser.add_argument(
        "--reverse-charge", action="store_true", help="the buyer owes the tax: needs --tax-id and a rate of 0"
    )


def issue(terminal: Terminal, args: Namespace) -> None:
    period, client = _period(args.period), terminal.client()
    if args.html and (args.json or not args.draft or args.organization is None):
        raise usage("--html needs --draft and --organization, and cannot be combined with --json.")
    organization = None if args.organization is None else find(client, args.organization).id
    if args.html:
        terminal.write(client.text(f"{DRAFTS}/{organization}/{period}/page"))
        return
    batches: list[Answer[InvoiceBatchView]] = []
    cursor, following = None, True
    while following:
        request = InvoiceRunRequest(period, organization, args.draft, cursor)
        batches.append(client.post(PATH, InvoiceBatchView, request))
        cursor = batches[-1].value.next_cursor
        following = cursor is not None
        if following:
            terminal.note(f"{sum(len(batch.value.items) for batch in batches):,} invoices so far.")
    invoices = [invoice for batch in batches for invoice in batch.value.items]
    refused = [found for batch in batches for found in batch.value.refused]
    if args.json:
        lists = {
            name: [item for batch in batches for item in batch.content[name]] for name in ("items", "refused")
        }
        terminal.json({**batches[-1].content, **lists})
    elif organization is not None and invoices:
        terminal.show(invoice_page(invoices[0]))
    else:
        terminal.show(invoice_table(invoices))
        if refused:
            terminal.show(refused_table(refused))
    if refused:
        raise CliError(f"{plural(len(refused), 'organization')} could not be invoiced.", code="not_invoiced")


def list_invoices(terminal: Terminal, args: Namespace) -> None:
    only = {} if args.period is None else {"period": _period(args.period)}
    answer = terminal.client().every(PATH, InvoicePage, only)
    terminal.present(args.json, answer, lambda page: invoice_table(page.items))


def show(terminal: Terminal, args: Namespace) -> None:
    present_invoice(terminal, args, PATH)


def show_details(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    organization = find(client, args.organization)
    answer = client.get(f"{DETAILS}/{organization.id}", BillingDetailsView)
    terminal.present(args.json, answer, lambda found: details_page(found, organization.name))


def set_details(terminal: Terminal, args: Namespace) -> None:
    rate, client = _basis_points(args.tax_rate), terminal.client()
    organization = find(client, args.organization)
    request = BillingDetailsRequest(
        legal_name=args.name,
        address_lines=tuple(args.address),
        country=args.country,
        tax_rate=rate,
        tax_id=args.tax_id,
        reverse_charge=args.reverse_charge,
    )
    answer = client.put(f"{DETAILS}/{organization.id}", BillingDetailsView, request)
    terminal.present(args.json, answer, lambda found: details_page(found, organization.name))


def _period(text: str) -> str:
    if not re.match(PERIOD_PATTERN, text):
        raise usage(f"{text!r} is not a month such as 2026-10.")
    return text


def _basis_points(percent: str) -> int:
    found = _PERCENT.fullmatch(percent)
    if found is None:
        raise usage(f"PERCENT: {percent!r} is not a percentage such as 19 or 8.1.")
    return int(found[1]) * 100 + int((found[2] or "").ljust(2, "0"))
