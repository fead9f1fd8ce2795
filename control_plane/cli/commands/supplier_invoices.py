"""Import what suppliers invoice us, post it, and match it with our records (platform role `finance`)."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.commands import money_once
from control_plane.cli.commands.margins import add_lines, checked_lines
from control_plane.cli.commands.money_once import add_key
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command, noun
from control_plane.cli.render.supplier_invoices import (
    match_page,
    supplier_invoice_page,
    supplier_invoice_table,
)
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.supplier_invoices import (
    CSV_LENGTH_MAX,
    FILE_BYTES_MAX,
    LINES_MAX,
    MatchView,
    SupplierInvoicePage,
    SupplierInvoiceRequest,
    SupplierInvoiceView,
    SupplierPartRequest,
    SupplierPostingRequest,
    SupplierUploadRequest,
    SupplierUploadView,
    SupplierVoidRequest,
)

PATH = "/v1/finance/supplier-invoices"
UPLOADS = "/v1/finance/supplier-uploads"
_MEGABYTES = FILE_BYTES_MAX // 1_000_000


def add(finance: Commands) -> None:
    invoices = noun(finance, "supplier-invoice", "Import and list what suppliers invoice us.")
    parser = command(
        invoices,
        "import",
        import_file,
        "Import a supplier's whole invoice of a month, as a CSV file.",
        more=(
            "The header is machine,from,to,quantity,unit,amount,currency. A file of which\n"
            "any line is wrong is refused as a whole, and nothing counts before all of it is\n"
            "there. The last import of a month counts; the same file again changes nothing."
        ),
        examples="splitplane finance supplier-invoice import FILE --provider aws --month 2026-10",
    )
    parser.add_argument(
        "file", metavar="FILE", help=f"the file: {LINES_MAX:,} lines and {_MEGABYTES:,} MB at most"
    )
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
        invoices,
        "post",
        post,
        "Post a supplier's invoice as a cost that we owe.",
        more=(
            "What is posted of the month already is subtracted, so that another invoice\n"
            "posts what it differs by. While the match has a difference that nothing\n"
            "explains, --reason has to say why the invoice is right."
        ),
        examples="""
        splitplane finance supplier-invoice post 2026-10 --provider aws
        splitplane finance supplier-invoice post 2026-10 --provider aws --reason 4711
        """,
    )
    parser.add_argument("--reason", metavar="TEXT", help="why it is right although it differs")
    _add_month(parser)
    parser = command(
        invoices,
        "void",
        void,
        "Void a supplier's invoice, and take back what is posted of its month.",
        examples="splitplane finance supplier-invoice void 2026-10 --provider aws --reason 4711",
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why")
    _add_month(parser)
    parser = command(
        finance,
        "match",
        match,
        "Match our meter, suppliers' invoices and customers' bills of a month.",
        more=(
            "Every difference has a word, such as billed_by_block. Exits with 1 while an\n"
            "invoice is missing, or a difference is open: then nothing explains it."
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
    """Upload the file in parts of whole lines, and import it once all of them are there."""
    path = Path(args.file)
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise usage(f"{args.file} has {size:,} bytes; a file has at most {_MEGABYTES:,} MB.")
        with path.open(encoding="utf-8-sig", newline="") as file, terminal.moving() as tell:
            answer = _upload(terminal.client(), args, file, lambda sent: tell(_progress(path, sent, size)))
    except OSError as error:
        raise usage(f"{args.file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise usage(f"{args.file} is not a text in UTF-8.") from None
    terminal.present(args.json, answer, supplier_invoice_page)


def _upload(
    client: Client, args: Namespace, file: TextIO, tell: Callable[[int], None]
) -> Answer[SupplierInvoiceView]:
    begun = client.post(UPLOADS, SupplierUploadView, SupplierUploadRequest(args.provider, args.month)).value
    sent = begun
    for number, part in enumerate(_parts(file), start=1):
        request = SupplierPartRequest(number, sent.lines + 1, part)
        sent = client.post(f"{UPLOADS}/{begun.id}/parts", SupplierUploadView, request).value
        tell(sent.size)
    return client.post(PATH, SupplierInvoiceView, SupplierInvoiceRequest(begun.id, max(1, sent.parts)))


def _parts(file: TextIO) -> Iterator[str]:
    """A file as parts of whole lines. A line that is longer than a part is sent as one, and refused."""
    part = ""
    for line in file:
        if part and len(part) + len(line) > CSV_LENGTH_MAX:
            yield part
            part = ""
        part += line
    if part:
        yield part


def _progress(path: Path, sent: int, size: int) -> str:
    return f"{path.name}: {sent / 1e6:,.1f} of {size / 1e6:,.1f} MB"


def _add_month(parser: Parser) -> None:
    parser.add_argument("month", metavar="MONTH", help="such as 2026-10")
    parser.add_argument("--provider", required=True, metavar="PROVIDER", help="whose last import is meant")
    add_key(parser)


def _last(client: Client, args: Namespace) -> SupplierInvoiceView:
    """The last import of the supplier's month."""
    for invoice in client.every(PATH, SupplierInvoicePage).value.items:
        if (invoice.provider, invoice.period) == (args.provider, args.month):
            return invoice
    raise CliError(f"No invoice of {args.provider} for {args.month} was imported.", code="not_found")


def post(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    path = f"{PATH}/{_last(client, args).id}/postings"
    request = SupplierPostingRequest(args.reason)
    answer = money_once.post(client, args, path, SupplierInvoiceView, request)
    terminal.present(args.json, answer, supplier_invoice_page)


def void(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    path = f"{PATH}/{_last(client, args).id}/voids"
    request = SupplierVoidRequest(args.reason)
    answer = money_once.post(client, args, path, SupplierInvoiceView, request)
    terminal.present(args.json, answer, supplier_invoice_page)


def list_invoices(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, SupplierInvoicePage)
    terminal.present(args.json, answer, lambda page: supplier_invoice_table(page.items, terminal.now()))


def match(terminal: Terminal, args: Namespace) -> None:
    query = {"month": args.month, "lines": checked_lines(args)}
    if args.provider is not None:
        query["provider"] = args.provider
    with terminal.counting(f"Matching the machines of {args.month}"):
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
