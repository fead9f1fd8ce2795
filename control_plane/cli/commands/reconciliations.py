"""Reconcile a month over all customers, and read what reconciliations found (platform role `finance`)."""

from argparse import Namespace

from control_plane.cli import waiting
from control_plane.cli.answers import Answer
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.reconciliations import (
    difference_table,
    progress_of,
    reconciliation_page,
    reconciliation_table,
)
from control_plane.cli.terminal import Terminal
from control_plane.wire.reconciliations import (
    DifferencePage,
    PeriodReconciliationPage,
    PeriodReconciliationView,
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
            "link differs. What was found is stored."
        ),
        examples="splitplane finance reconcile 2026-10",
    )
    reconciling.add_argument("month", metavar="MONTH", help="such as 2026-10")
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
    terminal.present(args.json, found, lambda answer: reconciliation_page(answer, terminal.now()))
    if found.value.differing_customers and not args.json:
        path = f"{PATH}/{found.value.id}/differences"
        terminal.show(difference_table(terminal.client().every(path, DifferencePage).value.items))
