"""Reconciliations of periods: what each link of the books came to, and which customers differ."""

from typing import Annotated

from control_plane.wire.common import Money, NextCursor, Request, Timestamp, View
from control_plane.wire.exports import PeriodText
from control_plane.wire.finance import MonthText
from control_plane.wire.vocabulary import (
    ExportRunIdText,
    OrganizationIdText,
    ReconciliationIdText,
    one_of,
)

ReconciliationStateWord = Annotated[
    str,
    one_of(
        "ReconciliationState",
        "What a reconciliation came to.",
        running="Customers have yet to be examined.",
        reconciled="Every link has the same amount on both sides.",
        different="A link has not.",
    ),
]
LinkWord = Annotated[
    str,
    one_of(
        "ReconciliationLink",
        "Two sources that have to state the same amount: the one nearer to the journal first.",
        metered="The events of leases in the journal, and the intervals of the meter.",
        rated="The intervals of the meter, and the time of the charges at their prices.",
        charged="The time of the charges at their prices, and their amounts.",
        posted="The amounts of the charges booked in the month, and the postings of usage.",
        invoiced="The amounts of the charges, and the lines of the customer's invoice of the month.",
        invoice_posted="The total of this invoice in whole cents, with tax, and the ledger.",
        credit_note_posted="The totals of credit notes that are booked in the month, with tax, and the ledger.",
        exported_to_customer="What is billed, charges and documents, and the customer's own last complete export.",
        exported="What is billed, and the last complete export of all customers. In total only.",
        supplier_posted="The lines of suppliers' invoices that are posted, and the ledger's cost. In total only.",
        supplier_owed="This cost, and what the ledger has as owed for it. In total only.",
    ),
]


class ReconciliationRequest(Request):
    """A request to reconcile a period."""

    period: PeriodText
    """The month."""


class LinkView(View):
    """Two sources that have to state the same amount."""

    link: LinkWord
    """Which two."""
    before: Money
    """What the source nearer to the journal states."""
    after: Money
    """What the other one states."""
    difference: Money
    """By how much the latter is more."""


class PeriodReconciliationView(View):
    """A reconciliation of a period over all customers."""

    id: ReconciliationIdText
    """The id of the reconciliation."""
    period: MonthText
    """The month."""
    state: ReconciliationStateWord
    """What it came to."""
    closed: bool
    """Whether the month was closed when it was asked for. Otherwise what was on its way is left out."""
    export_id: ExportRunIdText | None
    """The last complete export of all customers at that time; null where there was none."""
    asked_at: Timestamp
    """When it was asked for."""
    asked_by: str
    """The id of the subject that asked for it, or the name of the loop that asks once a day."""
    all_customers: bool
    """Whether customers that agree are stored as well: of those that somebody asked for. Of the daily ones, only those
    that differ are."""
    customers: int
    """How many customers were examined."""
    remaining: int | None
    """How many are left to be examined; null until the first ones were."""
    examined_at: Timestamp | None
    """When the last ones were examined; null until the first ones were."""
    links: tuple[LinkView, ...]
    """Each link of the chain, over the customers that were examined."""
    differing_customers: int
    """How many of them have a link that differs."""
    not_invoiced: Money
    """Charges of customers that have no invoice of the month yet, which is no difference."""


class PeriodReconciliationPage(View):
    """A page of reconciliations."""

    items: tuple[PeriodReconciliationView, ...]
    """The reconciliations, newest first."""
    next_cursor: NextCursor | None


class ReconciledCustomerView(View):
    """A customer's links, whether they agree or not."""

    organization_id: OrganizationIdText
    """The customer."""
    organization: str
    """The customer's name."""
    differs: bool
    """Whether a link has another amount on each side."""
    links: tuple[LinkView, ...]
    """Each link of the chain that is examined for each customer."""


class ReconciledCustomerPage(View):
    """A page of the customers of a reconciliation."""

    items: tuple[ReconciledCustomerView, ...]
    """The customers that were examined and are stored, by id."""
    next_cursor: NextCursor | None


class DifferenceView(View):
    """A link of a customer whose two amounts differ."""

    organization_id: OrganizationIdText
    """The customer."""
    organization: str
    """The customer's name."""
    link: LinkWord
    """Which link."""
    before: Money
    """What the source nearer to the journal states."""
    after: Money
    """What the other one states."""
    difference: Money
    """By how much the latter is more."""
    examples: tuple[str, ...]
    """Ids of leases or charges that differ, 20 at most."""


class DifferencePage(View):
    """A page of differences."""

    items: tuple[DifferenceView, ...]
    """The differences, by customer and link."""
    next_cursor: NextCursor | None
