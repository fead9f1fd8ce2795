"""Credit notes: finance corrects invoices with them, and customers read their own."""

from argparse import Namespace
from collections.abc import Sequence

import msgspec

from control_plane.cli.client import Client
from control_plane.cli.commands.invoices import INVOICE_HELP, find_id
from control_plane.cli.commands.money_once import add_key, post
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, is_id, noun
from control_plane.cli.render.invoices import credit_note_page, credit_note_table
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import plural
from control_plane.wire.credit_notes import (
    CentsText,
    CreditNoteLineRequest,
    CreditNotePage,
    CreditNoteRequest,
    CreditNoteView,
)

PATH = "/v1/credit-notes"
PATH_OF_ALL = "/v1/finance/credit-notes"
_INVOICES = "/v1/finance/invoices"


def add(to: Commands) -> None:
    """Those of one's own invoices."""
    _add(
        noun(to, "credit-note", "List and show what corrects your organization's invoices."),
        PATH,
        "splitplane",
    )


def add_of_all(finance: Commands) -> None:
    """Those of all customers, for finance."""
    notes = noun(
        finance, "credit-note", "Correct an issued invoice, and list and show what corrects invoices."
    )
    parser = command(
        notes,
        "create",
        create,
        "Correct an invoice: some of its lines, or all that is left of it.",
        more=(
            "Give --line 2 --amount 24.90 for a part of a line, and repeat both for several\n"
            "lines. Without --amount, all that is left of the lines is credited. --all\n"
            "voids the invoice. What is not paid of the lines and their tax is no longer due;\n"
            "what was paid goes to the balance. It is final."
        ),
        examples="""
        splitplane finance credit-note create INV-2026-000001 --line 2 --reason late
        splitplane finance credit-note create INV-2026-000001 --all --reason mistake
        """,
    )
    parser.add_argument("invoice", metavar="INVOICE", help=INVOICE_HELP)
    parser.add_argument(
        "--line",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="a line with usage, or one that takes a credit back; repeatable",
    )
    parser.add_argument(
        "--amount", action="append", default=[], metavar="USD", help="how much of the line, in whole cents"
    )
    parser.add_argument("--all", action="store_true", help="all that is left of the invoice")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="printed, and stored with who ran it")
    add_yes(parser)
    add_key(parser)
    _add(notes, PATH_OF_ALL, "splitplane finance")


def _add(notes: Commands, path: str, called: str) -> None:
    parser = command(
        notes,
        "list",
        list_notes,
        "List credit notes, newest first.",
        examples=f"{called} credit-note list",
    )
    parser.set_defaults(path=path)
    parser = command(
        notes,
        "show",
        show,
        "Show a credit note with its lines.",
        examples=f"{called} credit-note show CN-2026-000001",
    )
    parser.add_argument("note", metavar="CREDIT-NOTE", help="its number or its id")
    parser.add_argument("--html", action="store_true", help="as a page to print or to keep")
    parser.set_defaults(path=path)


def create(terminal: Terminal, args: Namespace) -> None:
    lines = _lines(args)
    client = terminal.client()
    invoice_id = find_id(client, _INVOICES, args.invoice)
    what = "all that is left" if lines is None else plural(len(lines), "line")
    confirm(terminal, args, f"Credit {what} of {args.invoice}? It is final.")
    request = CreditNoteRequest(invoice_id, args.reason, lines)
    answer = post(client, args, PATH_OF_ALL, CreditNoteView, request)
    terminal.present(args.json, answer, credit_note_page)


def _lines(args: Namespace) -> tuple[CreditNoteLineRequest, ...] | None:
    """The lines that are credited; None for all that is left."""
    if args.all == bool(args.line) or (args.amount and len(args.amount) != len(args.line)):
        raise usage("Give --all, or --line once or more, with --amount for each of them or for none.")
    if args.all:
        return None
    amounts: Sequence[str | None] = [_amount(text) for text in args.amount] or [None] * len(args.line)
    if len(set(args.line)) < len(args.line) or any(line < 1 for line in args.line):
        raise usage("--line: give the number of each line once; numbers start at 1.")
    return tuple(CreditNoteLineRequest(*pair) for pair in zip(args.line, amounts, strict=True))


def _amount(text: str) -> str:
    try:
        amount = msgspec.convert(text, CentsText)
    except msgspec.ValidationError:
        amount = ""
    if not amount.strip("0."):
        raise usage(
            f"--amount: {text!r} is not an amount of a cent or more; use a number such as 25 or 24.90."
        )
    return amount


def list_notes(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(args.path, CreditNotePage)
    terminal.present(args.json, answer, lambda page: credit_note_table(page.items))


def show(terminal: Terminal, args: Namespace) -> None:
    if args.html and args.json:
        raise usage("--html and --json cannot be combined.")
    client = terminal.client()
    note = f"{args.path}/{_find_id(client, args.path, args.note)}"
    if args.html:
        terminal.write(client.text(f"{note}/page"))
        return
    terminal.present(args.json, client.get(note, CreditNoteView), credit_note_page)


def _find_id(client: Client, path: str, word: str) -> str:
    if is_id("cn", word):
        return word
    for note in client.every(path, CreditNotePage).value.items:
        if note.number == word:
            return note.id
    raise CliError(f"There is no credit note {word!r}.", code="credit_note_unknown")
