"""Charges as finance reads them: what each follows from, from the journal to the ledger."""

from control_plane.wire.common import Money, NextCursor, Timestamp, View
from control_plane.wire.finance import MonthText
from control_plane.wire.journal import JournalLine
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import (
    ChargeIdText,
    InvoiceIdText,
    LeaseIdText,
    LedgerAccountWord,
    MachineIdText,
    OrganizationIdText,
    PurchaseWord,
    TransactionIdText,
)


class LeaseChargeView(View):
    """A charge of a lease."""

    id: ChargeIdText
    """The id of the charge."""
    lease_id: LeaseIdText
    """The lease that was used."""
    interval: int
    """The number of its interval in the lease."""
    started_at: Timestamp
    """Start of the charged time."""
    ended_at: Timestamp
    """Its end."""
    unit_seconds: int
    """Seconds, times the number of GPUs, or 1 where there are none."""
    stopped: bool
    """Whether the machine was stopped, and charged at the price for that."""
    amount: Money
    """What it costs."""
    period: MonthText
    """The month in which it is booked."""
    unused: bool = False
    """Whether it is the rest of a term, which was not used."""


class LeaseChargePage(View):
    """A page of charges: of a lease, or of those that a line of an invoice adds up."""

    items: tuple[LeaseChargeView, ...]
    """The charges, oldest first."""
    next_cursor: NextCursor | None


class ChargeInvoiceLineView(View):
    """The line of an invoice that a charge is in."""

    invoice_id: InvoiceIdText
    """The id of the invoice."""
    invoice: str
    """Its number."""
    line: int
    """The place of the line in it, from 1."""


class IntervalView(View):
    """Metered time: a row of the meter."""

    started_at: Timestamp
    """Its start."""
    ended_at: Timestamp
    """Its end."""
    unit_seconds_before: int
    """Unit-seconds of the lease at the same price before it."""
    unit_seconds: int
    """Unit-seconds in it."""
    recorded_at: Timestamp
    """When the meter stored it."""
    cost: Money
    """What it costs at the price of the charge, computed anew: what all time of the lease costs after it, less what it
    costs before."""


class ChargePriceView(View):
    """The price of a charge, beside the price book that it is from."""

    per_unit_hour: Money
    """What was charged for a unit and an hour: the price that was agreed when the lease was admitted."""
    price_book: int
    """The version of the price book."""
    price_book_from: Timestamp
    """From when on that price book applied."""
    listed: Money
    """What it said when the lease was admitted. The price differs where another one was agreed on, or in a burst."""


class PostingView(View):
    """A posting of the ledger."""

    account: LedgerAccountWord
    """To which account."""
    amount: Money
    """What it adds: credits are positive, debits negative."""


class ChargeTransactionView(View):
    """The transaction that posted a charge."""

    id: TransactionIdText
    """The id of the transaction."""
    effective_at: Timestamp
    """When the charged time began."""
    recorded_at: Timestamp
    """When it was posted."""
    period: MonthText
    """The month in which it is booked."""
    postings: tuple[PostingView, ...]
    """Its postings, which add up to zero."""


class ChargeExplanationView(View):
    """A charge, what it follows from, and what follows from it."""

    charge: LeaseChargeView
    """The charge."""
    rated_at: Timestamp
    """When it was priced."""
    period_closed: bool
    """Whether the month in which it is booked is closed."""
    organization_id: OrganizationIdText
    """Who pays for it."""
    organization: str
    """The name of the organization."""
    lease_id: LeaseIdText
    """The lease that was used."""
    machine_id: MachineIdText
    """The machine that was used."""
    sku: str
    """What was leased."""
    purchase: PurchaseWord
    """How it was bought."""
    journal: tuple[JournalLine, ...]
    """The last event before the charged time that started, stopped or repriced the bill, and the first one after it,
    which is missing while the lease runs on."""
    interval: IntervalView | None
    """The metered time; null when there is none, which is an error of ours."""
    price: ChargePriceView
    """The price, and where it is from."""
    transaction: ChargeTransactionView | None
    """Where the ledger has it; null when the charge is zero. Otherwise null is an error of ours."""
    sla: SlaTierWord = "bronze"
    """The tier that was sold."""
    invoice_line: ChargeInvoiceLineView | None = None
    """Where it is invoiced; null while the month in which it is booked has no invoice."""
