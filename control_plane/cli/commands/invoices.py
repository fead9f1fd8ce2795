"""The invoices of one's organization."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command, is_id, noun
from control_plane.cli.render.invoices import invoice_page, invoice_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.invoices import InvoicePage, InvoiceView

PATH = "/v1/invoices"
INVOICE_HELP = "its number or its id"


def add(to: Commands) -> None:
    invoices = noun(to, "invoice", "List and show your organization's invoices.")
    command(
        invoices,
        "list",
        list_invoices,
        "List invoices, newest first.",
        examples="splitplane invoice list",
    )
    parser = command(
        invoices,
        "show",
        show,
        "Show an invoice with its lines.",
        examples="""
        splitplane invoice show INV-2026-000001
        splitplane invoice show INV-2026-000001 --html > invoice.html
        """,
    )
    add_invoice(parser)


def add_invoice(parser: Parser) -> None:
    """The arguments that say which invoice is shown, and how."""
    parser.add_argument("invoice", metavar="INVOICE", help=INVOICE_HELP)
    parser.add_argument("--html", action="store_true", help="as a page to print or to keep")


def find_id(client: Client, path: str, word: str) -> str:
    """The id of the invoice with this number or this id, in the listing at `path`."""
    if is_id("inv", word):
        return word
    for invoice in client.every(path, InvoicePage).value.items:
        if invoice.number == word and invoice.id is not None:
            return invoice.id
    raise CliError(f"There is no invoice {word!r}.", code="invoice_unknown")


def list_invoices(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, InvoicePage)
    terminal.present(args.json, answer, lambda page: invoice_table(page.items))


def show(terminal: Terminal, args: Namespace) -> None:
    present_invoice(terminal, args, PATH)


def present_invoice(terminal: Terminal, args: Namespace, path: str) -> None:
    """Show an invoice of the listing at `path`, in the way that was asked for."""
    if args.html and args.json:
        raise usage("--html and --json cannot be combined.")
    client = terminal.client()
    invoice = f"{path}/{find_id(client, path, args.invoice)}"
    if args.html:
        terminal.write(client.text(f"{invoice}/page"))
        return
    terminal.present(args.json, client.get(invoice, InvoiceView), invoice_page)
