"""Import what suppliers invoice us, and match it with our records (platform role `finance`)."""

from argparse import Namespace
from pathlib import Path

from control_plane.cli.commands.margins import add_lines, checked_lines
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.supplier_invoices import (
    match_page,
    supplier_invoice_page,
    supplier_invoice_table,
)
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.supplier_invoices import (
    CSV_LENGTH_MAX,
    MatchView,
    SupplierInvoicePage,
    SupplierInvoiceRequest,
    SupplierInvoiceView,
)

PATH = "/v1/finance/supplier-invoices"


def add(finance: Commands) -> None:
    invoices = noun(finance, "supplier-invoice", "Import and list what suppliers invoice us.")
    parser = command(
        invoices,
        "import",
        import_file,
        "Import a supplier's whole invoice of a month, as a CSV file.",
        more=(
            "The header is machine,from,to,quantity,unit,amount,currency. A file of which\n"
            "any line is wrong is refused as a whole. The last import of a month counts;\n"
            "the same file again changes nothing."
        ),
        examples="splitplane finance supplier-invoice import FILE --provider aws --month 2026-10",
    )
    parser.add_argument("file", metavar="FILE", help=f"the file, {CSV_LENGTH_MAX:,} characters at most")
    parser.add_argument("--provider", required=True, metavar="PROVIDER", help="whose invoice it is")
    parser.add_argument("--month", required=True, metavar="MONTH", help="such as 2026-10")
    command(
        invoices,
        "list",
        list_invoices,
        "List the invoices of suppliers, newest import first.",
        examples="splitplane finance supplier-invoice list",
    )
    parser = command(
        finance,
        "match",
        match,
        "Match our meter, suppliers' invoices and customers' bills of a month.",
        more=(
            "Every difference has a word, such as billed_by_block. Exits with 1 while a\n"
            "difference is open, which nothing explains, or an invoice is missing."
        ),
        examples="""
        splitplane finance match 2026-10
        splitplane finance match 2026-10 --provider verda
        """,
    )
    parser.add_argument("month", metavar="MONTH", help="such as 2026-10")
    parser.add_argument("--provider", metavar="PROVIDER", help="only this provider's machines")
    add_lines(parser, "machines")


def import_file(terminal: Terminal, args: Namespace) -> None:
    try:
        content = Path(args.file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise usage(f"{args.file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise usage(f"{args.file} is not a text in UTF-8.") from None
    request = SupplierInvoiceRequest(args.provider, args.month, content)
    answer = terminal.client().post(PATH, SupplierInvoiceView, request)
    terminal.present(args.json, answer, supplier_invoice_page)


def list_invoices(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, SupplierInvoicePage)
    terminal.present(args.json, answer, lambda page: supplier_invoice_table(page.items, terminal.now()))


def match(terminal: Terminal, args: Namespace) -> None:
    query = {"month": args.month, "lines": checked_lines(args)}
    if args.provider is not None:
        query["provider"] = args.provider
    answer = terminal.client().get("/v1/finance/match", MatchView, query)
    terminal.present(args.json, answer, match_page)
    found = answer.value
    if not found.matched:
        why = (
            f"{plural(found.open_count, 'machine')} with an open difference"
            if found.open_count
            else f"no invoice of {', '.join(found.missing_invoices)}"
        )
        raise CliError(f"{found.month} does not match: {why}.", code="not_matched")
