"""Explain a charge of any organization: from the journal to the ledger (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli.client import PAGE_LIMIT
from control_plane.cli.commands.invoices import find_id
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command
from control_plane.cli.render.charges import (
    charge_table,
    explanation_page,
    line_heading,
    line_sum,
    no_charges_line,
)
from control_plane.cli.terminal import Terminal
from control_plane.wire.charges import ChargeExplanationView, LeaseChargePage
from control_plane.wire.invoices import InvoiceLineView, InvoiceView

INVOICES = "/v1/finance/invoices"


def add(finance: Commands) -> None:
    parser = command(
        finance,
        "explain",
        explain,
        "Show what a charge follows from, or the charges of a lease or an invoice line.",
        more=(
            "Of a charge: the events of the journal before and after it, its interval, its\n"
            "price and the price book, its transaction in the ledger, and the invoice line\n"
            "that it is in. An export has the id of each charge in x_ChargeId, and that of\n"
            "its lease in ResourceId."
        ),
        examples="""
        splitplane finance explain ch_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane finance explain le_0190c2f07d1e7b3a9c54e1f2a3b4c5d6
        splitplane finance explain INV-2026-000001 --line 3
        """,
    )
    parser.add_argument(
        "id", metavar="ID", help="of a charge (ch_...) or a lease (le_...), or an invoice's id or number"
    )
    parser.add_argument(
        "--line", type=int, metavar="NUMBER", help="of an invoice: the line whose charges are listed"
    )


def explain(terminal: Terminal, args: Namespace) -> None:
    kind = args.id.partition("_")[0]
    if args.line is not None:
        if kind in ("ch", "le"):
            raise usage("--line is of an invoice; a charge and a lease have no lines.")
        _explain_line(terminal, args)
    elif kind == "ch":
        charge = terminal.client().get(f"/v1/finance/charges/{args.id}", ChargeExplanationView)
        terminal.present(args.json, charge, explanation_page)
    elif kind == "le":
        listed = terminal.client().every(f"/v1/finance/leases/{args.id}/charges", LeaseChargePage)
        terminal.present(args.json, listed, lambda page: charge_table(page.items))
    else:
        raise usage(
            f"{args.id!r} is no id of a charge (ch_...) or of a lease (le_...). Of an invoice, add --line NUMBER."
        )


def _explain_line(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    invoice_id = find_id(client, INVOICES, args.id)
    path = f"{INVOICES}/{invoice_id}/lines/{args.line}/charges"
    if args.json or terminal.quiet:
        answer = client.every(path, LeaseChargePage)
        terminal.present(args.json, answer, lambda page: charge_table(page.items))
        return
    invoice = client.get(f"{INVOICES}/{invoice_id}", InvoiceView).cleaned()
    line = _line(invoice, args.line)
    terminal.show(line_heading(invoice, line))
    if line.kind != "usage":
        terminal.show(no_charges_line(line))
        return
    count, nano = 0, 0
    for answer in client.pages(path, LeaseChargePage, {"limit": PAGE_LIMIT}):
        page = answer.cleaned()
        terminal.show(charge_table(page.items))
        count, nano = count + len(page.items), nano + sum(charge.amount.nano for charge in page.items)
    terminal.show(line_sum(line, count, nano))
    if nano != line.exact.nano:
        raise CliError(
            f"Line {line.number} of {invoice.number} and its charges differ.", code="not_reconciled"
        )


def _line(invoice: InvoiceView, number: int) -> InvoiceLineView:
    for line in invoice.lines:
        if line.number == number:
            return line
    raise usage(f"{invoice.number} has no line {number}; its lines are 1 to {len(invoice.lines)}.")
