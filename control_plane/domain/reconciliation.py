"""Reconciliation: whether the books of a month follow from what happened, link by link.

    journal -> metered time -> rated time -> charges -> ledger
                                                `----> exports
                          suppliers' invoices -> cost -> owed

Suppliers' invoices are held against the meter by the three-way match (`match.py`), whose differences have words.

Each link states one amount twice, computed from two sources that do not know of each other, in nano-USD. Both are sums
over a customer. A month reconciles when no link differs by a nano-dollar.

The first three links are about time that was used in the month, the others about what is booked in it. The two differ
only by late charges: a charge whose month was closed is booked in a later one (`period.py`).

Until a month is closed, work is on its way through the chain. Time that the meter has not reached and intervals that
wait for their price are left out on both sides. In a closed month nothing is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum

from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.tariff import Tariff, billing_end

EXAMPLES_MAX = 20
"""So many ids of leases or charges are stored with a difference."""


class LinkName(StrEnum):
    METERED = "metered"
    """The journal and the intervals of the meter."""
    RATED = "rated"
    """The intervals of the meter and the time of the charges."""
    CHARGED = "charged"
    """The time of the charges and their amounts."""
    POSTED = "posted"
    """The amounts of the charges and the ledger."""
    INVOICED = "invoiced"
    """The amounts of the charges and the lines of the customer's invoice of the month."""
    INVOICE_POSTED = "invoice_posted"
    """The total of this invoice, in whole cents with tax, and the ledger."""
    CREDIT_NOTE_POSTED = "credit_note_posted"
    """The totals of the credit notes that are booked in the month, in whole cents with tax, and the ledger."""
    EXPORTED_TO_CUSTOMER = "exported_to_customer"
    """What is billed, charges and documents, and the customer's own last complete export."""
    EXPORTED = "exported"
    """What is billed and the last complete export of all customers. In total only."""
    SUPPLIER_POSTED = "supplier_posted"
    """The lines of suppliers' invoices of the month that are posted, and the cost in the ledger. In total only."""
    SUPPLIER_OWED = "supplier_owed"
    """This cost and what the ledger has as owed for it. In total only."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What each source says about the same month, in nano-USD: of a lease, of a customer, or of all."""

    journal: Nano = NOTHING
    """The time between the events of leases, at the price that was agreed for each."""
    metered: Nano = NOTHING
    """The time of the intervals, at the same price."""
    unrated: Nano = NOTHING
    """The part of it that waits for its charge."""
    rated: Nano = NOTHING
    """The time of the charges, at the price of each charge."""
    charged: Nano = NOTHING
    """The amounts of these charges."""
    booked: Nano = NOTHING
    """The amounts of the charges that are booked in the month."""
    posted: Nano = NOTHING
    """The postings of usage to revenue that are booked in the month."""
    to_invoice: Nano = NOTHING
    """Of those booked, the amounts of the charges of customers that have an invoice of the month."""
    not_invoiced: Nano = NOTHING
    """The amounts of the others. It is no difference: their invoices are not issued yet."""
    invoiced: Nano = NOTHING
    """The exact lines of the invoices for usage."""
    invoice_totals: Nano = NOTHING
    """What the invoices come to in whole cents, with tax."""
    invoice_postings: Nano = NOTHING
    """The same by the ledger: the postings of usage, less credits and what went to the wallet, with what is owed."""
    credit_note_totals: Nano = NOTHING
    """What the credit notes come to in whole cents, with tax."""
    credit_note_postings: Nano = NOTHING
    """The same by the ledger: what went to the wallet and is owed less, without what is credit again."""
    billed_before_own_export: Nano = NOTHING
    """Of those booked, what belongs in the customer's own last complete export, with what its invoice and credit notes
    add to the charges."""
    in_own_export: Nano = NOTHING
    """The sum that this export states."""
    billed_before_export: Nano = NOTHING
    """The same of the last complete export of all customers."""
    in_export: Nano = NOTHING
    """The sum that this export states."""
    supplier_lines: Nano = NOTHING
    """The lines of the suppliers' invoices of the month that are posted."""
    supplier_cost: Nano = NOTHING
    """The postings of the month's suppliers' invoices to provider cost."""
    supplier_owed: Nano = NOTHING
    """Their postings to what we owe."""

    def plus(self, other: "Amounts") -> "Amounts":
        """The sum, source by source."""
        return Amounts(
            *(Nano(getattr(self, field.name) + getattr(other, field.name)) for field in fields(self))
        )


@dataclass(frozen=True, slots=True)
class Link:
    name: LinkName
    before: Callable[[Amounts], Nano]
    """What the side nearer to the journal says."""
    after: Callable[[Amounts], Nano]


LINKS: tuple[Link, ...] = (
    Link(LinkName.METERED, lambda a: a.journal, lambda a: a.metered),
    Link(LinkName.RATED, lambda a: Nano(a.metered - a.unrated), lambda a: a.rated),
    Link(LinkName.CHARGED, lambda a: a.rated, lambda a: a.charged),
    Link(LinkName.POSTED, lambda a: a.booked, lambda a: a.posted),
    Link(LinkName.INVOICED, lambda a: a.to_invoice, lambda a: a.invoiced),
    Link(LinkName.INVOICE_POSTED, lambda a: a.invoice_totals, lambda a: a.invoice_postings),
    Link(LinkName.CREDIT_NOTE_POSTED, lambda a: a.credit_note_totals, lambda a: a.credit_note_postings),
    Link(LinkName.EXPORTED_TO_CUSTOMER, lambda a: a.billed_before_own_export, lambda a: a.in_own_export),
    Link(LinkName.EXPORTED, lambda a: a.billed_before_export, lambda a: a.in_export),
    Link(LinkName.SUPPLIER_POSTED, lambda a: a.supplier_lines, lambda a: a.supplier_cost),
    Link(LinkName.SUPPLIER_OWED, lambda a: a.supplier_cost, lambda a: a.supplier_owed),
)
"""The chain in its order. A link that joins it needs its amounts, and an entry here."""
_IN_TOTAL = frozenset({LinkName.EXPORTED, LinkName.SUPPLIER_POSTED, LinkName.SUPPLIER_OWED})
OF_CUSTOMERS = tuple(link for link in LINKS if link.name not in _IN_TOTAL)
"""The links that are examined for each customer. An export of all states one sum, and suppliers bill us."""
IN_TOTAL = tuple(link for link in LINKS if link.name in _IN_TOTAL)
"""The others, of which there is one for all customers."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What both sides of a link say."""

    link: LinkName
    before_nano: Nano
    after_nano: Nano

    @property
    def difference_nano(self) -> Nano:
        """By how much the later side is more."""
        return Nano(self.after_nano - self.before_nano)


def sides(amounts: Amounts, links: Sequence[Link] = LINKS) -> tuple[Sides, ...]:
    """Both sides of each link, in the order of the chain."""
    return tuple(Sides(link.name, link.before(amounts), link.after(amounts)) for link in links)


def differences(amounts: Amounts, links: Sequence[Link] = OF_CUSTOMERS) -> tuple[Sides, ...]:
    """The links whose sides differ."""
    return tuple(found for found in sides(amounts, links) if found.difference_nano)


@dataclass(frozen=True, kw_only=True)
class LeaseFacts:
    """What the sources say about the use of a lease in a month."""

    lease_id: LeaseId
    organization_id: OrganizationId
    units: int
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano
    switched_at: tuple[datetime, ...]
    paused_at: tuple[datetime, ...]
    committed_days: int | None
    """The term that was committed to; None without one."""
    unused_unit_seconds: int
    """What is billed of the rest of the term, as the lease has it: less than that where less was set aside."""
    released_at: datetime | None
    """When the journal says that its customer released it; None when it never says so."""
    became_ready_at: datetime | None
    """When the journal says that it first became ready; None when it never says so."""
    began_to_end_at: datetime | None
    """When the journal says that it stopped being live; None while it has not."""
    billed_until: datetime | None
    """When its bill stopped, which is earlier than that when the last of its time was not certain."""
    metered_until: datetime | None
    meter_closed: bool
    metered: Nano
    unrated: Nano
    rated: Nano
    charged: Nano


def journal_cost(facts: LeaseFacts, since: datetime, until: datetime, *, closed: bool) -> Nano:
    """What the events of a lease say that it costs in the month from `since` to `until`.

    The bill runs from the moment at which the lease became ready to the moment at which it began to end, or to an
    earlier one if the last of its time was not certain. In a month that is not closed, only the time that the meter has
    reached counts. What is left of a term after its customer released the lease is used by nobody, and is charged in
    the month in which the bill stopped.
    """
    ready_at = facts.became_ready_at
    if ready_at is None:
        return NOTHING
    ends = [until, facts.began_to_end_at, facts.billed_until]
    if not closed and not facts.meter_closed:
        ends.append(facts.metered_until or ready_at)
    end = min(moment for moment in ends if moment is not None)
    tariff = Tariff(
        ready_at=ready_at,
        units=facts.units,
        nano_per_unit_hour=facts.nano_per_unit_hour,
        stopped_nano_per_unit_hour=facts.stopped_nano_per_unit_hour,
        switched_at=facts.switched_at,
        paused_at=facts.paused_at,
        committed_days=facts.committed_days,
    )
    used = Nano(tariff.cost_until(max(end, since)) - tariff.cost_until(since))
    stop, counts = facts.billed_until, closed or facts.meter_closed
    if (
        facts.released_at is None
        or stop is None
        or not counts
        or not since <= billing_end(ready_at, stop) < until
    ):
        return used
    rest = min(tariff.unused_after(facts.released_at), facts.unused_unit_seconds)
    return Nano(used + tariff.unused_cost(stop, rest))


def amounts_of(facts: LeaseFacts, since: datetime, until: datetime, *, closed: bool) -> Amounts:
    """The amounts of one lease. What is booked is known of customers, and not of leases."""
    return Amounts(
        journal=journal_cost(facts, since, until, closed=closed),
        metered=facts.metered,
        unrated=facts.unrated,
        rated=facts.rated,
        charged=facts.charged,
    )


@dataclass(frozen=True, slots=True)
class InvoiceFacts:
    """What the invoice of a customer for the month says, and what the ledger has of it."""

    organization_id: OrganizationId
    usage: Nano
    """The sum of its exact lines for usage."""
    credits: Nano
    """The sum of its exact lines for credits; at most zero."""
    total: Nano
    """Its total, in whole cents, with tax."""
    wallet: Nano
    """What was posted to the wallet: what it got back by rounding, and what it did not cover."""
    receivable: Nano
    """What was posted to the customer's receivable; at most zero."""


def invoice_amounts(facts: InvoiceFacts | None, books: Amounts) -> Amounts:
    """The amounts of a customer's invoice, None where it has none, beside what is booked for the customer."""
    if facts is None:
        return Amounts(not_invoiced=books.booked)
    return Amounts(
        to_invoice=books.booked,
        invoiced=facts.usage,
        invoice_totals=facts.total,
        invoice_postings=Nano(books.posted + facts.credits - facts.wallet - facts.receivable),
    )
