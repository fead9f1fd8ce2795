"""A customer's balance, and the transactions that made it."""

from control_plane.wire.common import Money, NextCursor, Timestamp, View
from control_plane.wire.finance import MonthText
from control_plane.wire.vocabulary import (
    ChargeIdText,
    InvoiceIdText,
    LeaseIdText,
    ProjectIdText,
    TransactionIdText,
    TransactionKindWord,
)


class BalanceView(View):
    """An organization's money as it is now."""

    balance: Money
    """What was paid in or credited, less all charges and refunds."""
    held: Money
    """Set aside for the next hour of live leases, and for the terms of those that are committed to."""
    available: Money
    """The balance less what is set aside, with what is left of the credit limit."""
    due: Money
    """What invoices left to pay. It is paid apart, and not from the balance."""
    running_leases: int
    """How many leases are ready, with their machines on or stopped. Those that are committed to do not count: they are
    paid by what was set aside for their terms."""
    running_per_hour: Money
    """What these leases cost an hour."""
    available_lasts_seconds: int | None
    """How long the available money pays for these leases. Null while they cost nothing, and for more than a hundred
    years."""
    credit_limit: Money | None = None
    """The most that the organization may owe: the balance below zero, and what is due. 0: it is prepaid."""


class BalanceEntryView(View):
    """A transaction of the ledger, as its customer reads it. It is never edited."""

    id: TransactionIdText
    """The id of the transaction."""
    number: int
    """Counts the organization's transactions in the order in which they were posted, without a gap."""
    kind: TransactionKindWord
    """What it is."""
    effective_at: Timestamp
    """When it happened; of a charge, when the charged time began."""
    recorded_at: Timestamp
    """When it was posted."""
    period: MonthText
    """The month in which it is booked, and invoiced."""
    amount: Money
    """What it added to the balance; negative for what it took. A payment of an invoice leaves the balance as it is."""
    balance: Money
    """The balance after it."""
    due_change: Money
    """What it added to what invoices left to pay; negative for a payment."""
    due: Money
    """What invoices left to pay after it."""
    reason: str | None
    """Of a top-up, a refund, a credit or a payment: its reason, or the reference of its bank transfer."""
    charge_id: ChargeIdText | None
    """Of a charge: its id in the usage."""
    lease_id: LeaseIdText | None
    """Of a charge: the lease that was used."""
    lease_name: str | None
    """The name of this lease."""
    project_id: ProjectIdText | None
    """Of a charge: the project of the lease."""
    project: str | None
    """The name of this project."""
    started_at: Timestamp | None
    """Start of the time that was charged."""
    ended_at: Timestamp | None
    """End of this time."""
    invoice_id: InvoiceIdText | None
    """Of an invoice or a credit note: the id of the invoice."""
    invoice_number: str | None
    """The number of this invoice."""
    unused: bool | None = None
    """Of a charge: whether it is the rest of a term, which was not used."""


class BalanceEntryPage(View):
    """A page of the transactions that made a balance."""

    items: tuple[BalanceEntryView, ...]
    """The transactions, newest first."""
    next_cursor: NextCursor | None


class BalanceEntryCsvRow(View):
    """A line of `/v1/balance/entries.csv`: the columns in their order. New columns go to the end."""

    number: int
    """Counts the organization's transactions in the order in which they were posted, without a gap."""
    transaction_id: TransactionIdText
    """The id of the transaction."""
    kind: TransactionKindWord
    """What it is."""
    effective_at: Timestamp
    """When it happened; of a charge, when the charged time began."""
    recorded_at: Timestamp
    """When it was posted."""
    period: MonthText
    """The month in which it is booked, and invoiced."""
    amount_usd: str
    """What it added to the balance, in US dollars with nine decimal places."""
    balance_usd: str
    """The balance after it."""
    due_change_usd: str
    """What it added to what invoices left to pay."""
    due_usd: str
    """What invoices left to pay after it."""
    amount_nano_usd: int
    """What it added to the balance, in nano-US-dollars (1e-9 USD)."""
    balance_nano_usd: int
    """The balance after it, likewise."""
    reason: str
    """Of a top-up, a refund, a credit or a payment: its reason."""
    charge_id: str
    """Of a charge: its id in the usage."""
    lease_id: str
    """Of a charge: the lease that was used."""
    lease_name: str
    """The name of this lease."""
    project: str
    """The name of its project."""
    started_at: Timestamp | None
    """Start of the time that was charged, in UTC; empty for others."""
    ended_at: Timestamp | None
    """End of this time, in UTC; empty for others."""
    invoice_number: str
    """Of an invoice or a credit note: the number of the invoice."""
    unused: str
    """Of a charge: `true` if it is the rest of a term, which was not used, or else `false`; empty for others."""
