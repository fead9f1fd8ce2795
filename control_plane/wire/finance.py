"""Accounting periods, and the transactions of the ledger that finance posts."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import (
    Money,
    NamedOrganizationId,
    NextCursor,
    PositiveUsdText,
    Request,
    RequestError,
    Sentence,
    Timestamp,
    View,
)
from control_plane.wire.vocabulary import (
    FinanceKindWord,
    LedgerAccountWord,
    OrganizationIdText,
    PeriodStateWord,
    SideWord,
    TransactionIdText,
    TransactionKindWord,
)

MONTH_PATTERN = r"^[0-9]{4}-(0[1-9]|1[0-2])$(?!\n)"
MonthText = Annotated[
    str,
    Meta(
        description="A calendar month in UTC.",
        examples=["2026-11"],
        extra_json_schema={"pattern": MONTH_PATTERN},
    ),
]


class ReopeningView(View):
    """A request to reopen a closed period, to which somebody else has to agree."""

    at: Timestamp
    """When it was made."""
    by: str
    """The id of the subject that made it."""
    reason: str
    """Why."""


class PeriodView(View):
    """An accounting period: a calendar month (UTC) of an issuer."""

    month: MonthText
    """The month."""
    issuer: str
    """The code of the legal entity whose books these are."""
    state: PeriodStateWord
    """Where its closing stands."""
    changed_at: Timestamp | None
    """When it came into this state; null while nobody has begun to close it."""
    changed_by: str | None
    """The id of the subject that brought it into this state."""
    reopening: ReopeningView | None
    """A request to reopen it that nobody has agreed to yet."""
    missing: tuple[str, ...]
    """What has to happen before it can be closed: one sentence each. Empty when nothing has to, when the period is
    closed, and while its month is not over."""


class PeriodPage(View):
    """A page of periods."""

    items: tuple[PeriodView, ...]
    """The periods, newest first."""
    next_cursor: NextCursor | None


class ReopenRequest(Request):
    """A request to reopen a closed period."""

    reason: Sentence
    """Why, for its record."""


class LedgerTransactionRequest(Request):
    """A transaction that somebody decides on."""

    organization_id: NamedOrganizationId
    """Whose money moves."""
    kind: FinanceKindWord
    """What it is."""
    amount_usd: PositiveUsdText
    """The amount in US dollars."""
    reason: Sentence
    """Why, such as the number of a ticket or the reference of a bank transfer. It is stored with who sent it."""

    def __post_init__(self) -> None:
        if not self.amount_usd.strip("0."):
            raise RequestError("must have an `amount_usd` of more than zero")


class LedgerTransactionView(View):
    """A transaction of the ledger. It is never edited."""

    id: TransactionIdText
    """The id of the transaction."""
    organization_id: OrganizationIdText
    """Whose money moved."""
    kind: TransactionKindWord
    """What it is."""
    amount: Money
    """What it moved."""
    effective_at: Timestamp
    """When it happened."""
    period: MonthText
    """The period in which it is booked."""
    approved_by: str
    """The id of the subject that decided on it."""
    reason: str
    """Why."""


class LedgerAccountView(View):
    """The accounts of one kind, over all customers."""

    kind: LedgerAccountWord
    """What they hold."""
    normal_side: SideWord
    """On which side such an account usually has its balance."""
    balance: Money
    """The sum of their balances: positive on the normal side."""


class LedgerAccountPage(View):
    """The chart of accounts with its balances, which add up to zero once the signs of the sides are put back."""

    items: tuple[LedgerAccountView, ...]
    """One item for each kind of account."""
    next_cursor: NextCursor | None


class LedgerEntryView(View):
    """A posting to an account of the ledger, with its transaction. It is never edited."""

    transaction_id: TransactionIdText
    """The id of the transaction."""
    organization_id: OrganizationIdText
    """Whose money moved."""
    organization: str
    """The name of this organization."""
    kind: TransactionKindWord
    """What the transaction records."""
    effective_at: Timestamp
    """When it happened; of a charge, when the charged time began."""
    recorded_at: Timestamp
    """When it was posted."""
    period: MonthText
    """The period in which it is booked."""
    amount: Money
    """What it added to the account's balance: positive on the normal side of the account."""
    approved_by: str | None
    """The id of the subject that decided on it; null where nobody does."""
    reason: str | None
    """Why; null where nobody decides."""


class LedgerEntryPage(View):
    """A page of the entries of an account."""

    items: tuple[LedgerEntryView, ...]
    """The entries, newest first."""
    next_cursor: NextCursor | None


class WalletView(View):
    """What we owe a customer, and what it owes us."""

    organization_id: OrganizationIdText
    """The customer."""
    organization: str
    """The name of the customer."""
    balance: Money
    """What we owe it: paid in or credited, and not used."""
    held: Money
    """Of this, what is set aside for the next hour of live leases."""
    due: Money
    """What it owes us by its invoices."""


class WalletPage(View):
    """A page of the wallets of all customers. The sum of all is the balance of the account `wallet`."""

    items: tuple[WalletView, ...]
    """The wallets, those of the oldest customers first."""
    next_cursor: NextCursor | None
