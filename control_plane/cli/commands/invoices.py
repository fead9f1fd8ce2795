"""The invoices of one's organization."""

from argparse import Namespace

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, is_id, noun
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
        examples="splitplane invoice show INV-2026-000001",
    )
    parser.add_argument("invoice", metavar="INVOICE", help=INVOICE_HELP)


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
    client = terminal.client()
    answer = client.get(f"{PATH}/{find_id(client, PATH, args.invoice)}", InvoiceView)
    terminal.present(args.json, answer, invoice_page)
