"""Reconcile a month over all customers, and read what reconciliations found (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli import waiting
from control_plane.cli.answers import Answer
from control_plane.cli.client import PAGE_LIMIT
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, Parser, command, noun
from control_plane.cli.render.reconciliations import (
    agreement_line,
    customer_table,
    difference_table,
    more_differences_line,
    not_stored_line,
    nothing_line,
    progress_of,
    reconciliation_page,
    reconciliation_table,
    to_see_why,
)
from control_plane.cli.terminal import Terminal
from control_plane.wire.reconciliations import (
    DifferencePage,
    PeriodReconciliationPage,
    PeriodReconciliationView,
    ReconciledCustomerPage,
    ReconciledCustomerView,
    ReconciliationRequest,
)

PATH = "/v1/finance/reconciliations"


def add(finance: Commands) -> None:
    reconciling = command(
        finance,
        "reconcile",
        reconcile,
        "Prove that the books of a month follow from what happened, customer by customer.",
        more=(
            "Compares the journal, the meter, the charges, the ledger and the exports with\n"
            "each other, to the nano-dollar. Exits with 1 and names the customers if any\n"
            "link differs. What was found is stored, of every customer."
        ),
        examples="""
        splitplane finance reconcile 2026-10
        splitplane finance reconcile 2026-10 --all
        """,
    )
    reconciling.add_argument("month", metavar="MONTH", help="such as 2026-10")
    _add_all(reconciling)
    stored = noun(finance, "reconciliation", "List and show the reconciliations of months.")
    command(
        stored,
        "list",
        list_reconciliations,
        "List the reconciliations, newest first.",
        examples="splitplane finance reconciliation list",
    )
    showing = command(
        stored,
        "show",
        show,
        "Show what a reconciliation found.",
        examples="splitplane finance reconciliation show rec_0190c2f07d1e7b3a9c54e1f2a3b4c5d6",
    )
    showing.add_argument("reconciliation", metavar="RECONCILIATION", help="the id of the reconciliation")
    _add_all(showing)


def _add_all(parser: Parser) -> None:
    parser.add_argument(
        "--all",
        action="store_true",
        help="the links of every customer, also where they agree, unless it is a daily one; `by_customer` in --json",
    )


def reconcile(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    asked = client.post(PATH, PeriodReconciliationView, ReconciliationRequest(args.month))
    path = f"{PATH}/{asked.value.id}"
    found = waiting.until(
        terminal,
        client,
        asked,
        lambda: client.get(path, PeriodReconciliationView),
        is_done=lambda answer: answer.state != "running",
        says=progress_of,
        goes_on=(
            "The reconciliation continues. To see it:"
            f" splitplane finance reconciliation show {asked.value.id}"
        ),
    )
    _present(terminal, args, found)
    if found.value.state == "different":
        raise CliError(f"The books of {args.month} do not reconcile.", code="not_reconciled")


def list_reconciliations(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(PATH, PeriodReconciliationPage)
    terminal.present(args.json, answer, lambda page: reconciliation_table(page.items, terminal.now()))


def show(terminal: Terminal, args: Namespace) -> None:
    path = f"{PATH}/{args.reconciliation}"
    _present(terminal, args, terminal.client().get(path, PeriodReconciliationView))


def _present(terminal: Terminal, args: Namespace, found: Answer[PeriodReconciliationView]) -> None:
    """Show what was found: of customers those that differ, and with --all every one."""
    if args.all and args.json:
        _print_document(terminal, found)
        return
    terminal.present(args.json, found, lambda answer: reconciliation_page(answer, terminal.now()))
    if args.json or terminal.quiet:
        return
    if args.all:
        _show_customers(terminal, found.value)
    _show_differences(terminal, found.value, listed=args.all)


def _print_document(terminal: Terminal, found: Answer[PeriodReconciliationView]) -> None:
    pages = terminal.client().pages(_customers(found.value), ReconciledCustomerPage, {"limit": PAGE_LIMIT})
    customers = [customer for page in pages for customer in page.content["items"]]
    terminal.json({**found.content, "by_customer": customers})


def _show_customers(terminal: Terminal, found: PeriodReconciliationView) -> None:
    """A table for each page, as it comes: a large installation has ten thousand customers."""
    empty = 0
    for answer in terminal.client().pages(_customers(found), ReconciledCustomerPage, {"limit": PAGE_LIMIT}):
        page = answer.cleaned()
        terminal.show(customer_table(page.items))
        empty += sum(not _has_something(customer) for customer in page.items)
    if empty:
        terminal.show(nothing_line(empty))
    if not found.all_customers:
        terminal.show(not_stored_line(found))


def _has_something(customer: ReconciledCustomerView) -> bool:
    return any(link.before.nano or link.after.nano for link in customer.links)


def _show_differences(terminal: Terminal, found: PeriodReconciliationView, *, listed: bool) -> None:
    """The first differences, unless they are among the customers that were listed, and how to see why."""
    if found.differing_customers:
        path = f"{PATH}/{found.id}/differences"
        page = terminal.client().get(path, DifferencePage, {"limit": PAGE_LIMIT}).cleaned()
        if not listed:
            terminal.show(difference_table(page.items))
            if page.next_cursor is not None:
                terminal.show(more_differences_line(len(page.items)))
        terminal.show(to_see_why(page.items))
    if not listed:
        terminal.show(agreement_line(found))


def _customers(found: PeriodReconciliationView) -> str:
    return f"{PATH}/{found.id}/customers"
