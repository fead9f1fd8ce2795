"""The ledger: its chart of accounts, and the transactions that move money between them.

The postings of a transaction sum to zero, and nothing is ever edited: a mistake is corrected by another transaction.
Amounts are signed from the ledger's side: credit positive, debit negative. A customer's wallet is a liability of ours:
we owe them the money that they paid in until they use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId, SlaBreachId
from control_plane.domain.money import NANO_MAX, NOTHING, Nano, dollars, dollars_down
from control_plane.domain.refusal import RefusalCode, Refused


class AccountKind(StrEnum):
    """What a ledger account holds. Each account is a row with a kind and an owner."""

    WALLET = "wallet"
    """What we owe a customer: paid in or credited, and not used."""
    RECEIVABLE = "receivable"
    """What a customer owes us by an invoice."""
    CASH = "cash"
    """What was paid in, less what was paid back."""
    REVENUE = "revenue"
    """What was used."""
    CREDITS = "credits"
    """What we gave customers without a payment, or back by credit notes. It lowers revenue, and stands apart."""
    TAX_PAYABLE = "tax_payable"
    """Tax on invoices, which we owe the tax office."""
    ROUNDING = "rounding"
    """What invoices in whole cents differ from the exact charges."""
    PROVIDER_COST = "provider_cost"
    """What providers invoiced us for machines, by the invoices that somebody accepted."""
    PAYABLE = "payable"
    """What we owe providers by these invoices."""


class Side(StrEnum):
    """On which side an account of a kind usually has its balance."""

    DEBIT = "debit"
    CREDIT = "credit"


class Owner(StrEnum):
    ORGANIZATION = "organization"
    """Each organization has one account of the kind."""
    OURS = "ours"
    """There is one account of the kind."""


@dataclass(frozen=True, slots=True)
class AccountTerms:
    normal_side: Side
    owner: Owner


_D, _C = Side.DEBIT, Side.CREDIT

TERMS: Mapping[AccountKind, AccountTerms] = {
    AccountKind.WALLET: AccountTerms(_C, Owner.ORGANIZATION),
    AccountKind.RECEIVABLE: AccountTerms(_D, Owner.ORGANIZATION),
    AccountKind.CASH: AccountTerms(_D, Owner.OURS),
    AccountKind.REVENUE: AccountTerms(_C, Owner.OURS),
    AccountKind.CREDITS: AccountTerms(_D, Owner.OURS),
    AccountKind.TAX_PAYABLE: AccountTerms(_C, Owner.OURS),
    AccountKind.ROUNDING: AccountTerms(_D, Owner.OURS),
    AccountKind.PROVIDER_COST: AccountTerms(_D, Owner.OURS),
    AccountKind.PAYABLE: AccountTerms(_C, Owner.OURS),
}
"""The chart of accounts."""
OURS = frozenset(kind for kind, terms in TERMS.items() if terms.owner is Owner.OURS)
"""Kinds of our own accounts. There is one account of each kind."""
OF_ORGANIZATIONS = tuple(kind for kind in AccountKind if kind not in OURS)
"""Kinds of accounts of which each organization has one."""


def balance(kind: AccountKind, posted: Nano) -> Nano:
    """The balance of an account as finance reads it: positive on the normal side of its kind."""
    return posted if TERMS[kind].normal_side is Side.CREDIT else Nano(-posted)


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """A row of the ledger's list of accounts. It is never edited."""

    id: LedgerAccountId
    organization_id: OrganizationId | None
    """The owner; None when the account is ours."""
    kind: AccountKind
    created_at: datetime

    def __post_init__(self) -> None:
        if (self.organization_id is None) != (self.kind in OURS):
            raise ValueError(f"{self.kind} is {'' if self.kind in OURS else 'not '}an account of our own")


class TransactionKind(StrEnum):
    TOP_UP = "top_up"
    """A customer paid money in."""
    REFUND = "refund"
    """We paid back what a customer had not used."""
    CHARGE_BACK = "charge_back"
    """A customer's bank took back what it had paid in."""
    USAGE = "usage"
    """A charge for metered time."""
    CREDIT = "credit"
    """We gave a customer money to use, without a payment."""
    PAYMENT = "payment"
    """A customer paid what an invoice left to pay."""
    INVOICE = "invoice"
    """Tax and rounding of an invoice that was issued."""
    CREDIT_NOTE = "credit_note"
    """What a credit note gave back."""
    SUPPLIER_INVOICE = "supplier_invoice"
    """What a provider invoiced us, or what another invoice of the month differs by. It is the platform's own."""


APPROVED = frozenset(
    {
        TransactionKind.TOP_UP,
        TransactionKind.REFUND,
        TransactionKind.CHARGE_BACK,
        TransactionKind.CREDIT,
        TransactionKind.PAYMENT,
        TransactionKind.CREDIT_NOTE,
        TransactionKind.SUPPLIER_INVOICE,
    }
)
"""Kinds of transactions that somebody decides on. Each names who decided, and the reason."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Who decided on a transaction, and why."""

    by: str
    """The id of the subject, or `administrator` for a command on the host."""
    reason: str


@dataclass(frozen=True, slots=True)
class Posting:
    kind: AccountKind
    """Names the account: our own when the kind is in OURS, otherwise that of the transaction's organization."""
    amount_nano: Nano


@dataclass(frozen=True, slots=True)
class Transaction:
    key: str
    """Identifies the fact that it records. A second transaction with the same key has no effect."""
    kind: TransactionKind
    organization_id: OrganizationId
    """Whose money moves. Postings to our own accounts carry it too, because every row has a tenant."""
    project_id: ProjectId | None
    """The project that the money was used for; None when it concerns no project."""
    effective_at: datetime
    """When the fact happened. It is booked in the period of this time, or in the first later one that is not closed."""
    postings: tuple[Posting, ...]
    approval: Approval | None = None
    """For the kinds in APPROVED."""

    def __post_init__(self) -> None:
        if sum(posting.amount_nano for posting in self.postings) != 0:
            raise ValueError(f"{self.key} does not balance")
        if len({posting.kind for posting in self.postings}) < len(self.postings):
            raise ValueError(f"{self.key} has two postings to an account")
        if any(posting.amount_nano == 0 or abs(posting.amount_nano) > NANO_MAX for posting in self.postings):
            raise ValueError(f"{self.key} has a posting of zero or beyond 64 bits")
        if (self.kind in APPROVED) != (self.approval is not None):
            raise ValueError(f"{self.key} {'lacks' if self.approval is None else 'needs no'} approval")

    def posted_to(self, kind: AccountKind) -> Nano:
        """The amount that it adds to an account: credit positive, debit negative."""
        return Nano(sum(posting.amount_nano for posting in self.postings if posting.kind is kind))


class Decide(Protocol):
    """Makes a transaction that somebody decides on."""

    def __call__(
        self, organization_id: OrganizationId, amount: Nano, /, *, key: str, at: datetime, approval: Approval
    ) -> Transaction: ...


def top_up(
    organization_id: OrganizationId, amount: Nano, *, key: str, at: datetime, approval: Approval
) -> Transaction:
    """Money paid in. `key` identifies the payment within its organization; another organization may use it too."""
    return _move(
        TransactionKind.TOP_UP,
        organization_id,
        amount,
        debit=AccountKind.CASH,
        credit=AccountKind.WALLET,
        key=f"top_up:{organization_id.hex}:{key}",
        at=at,
        approval=approval,
    )


def usage(
    organization_id: OrganizationId, project_id: ProjectId, amount: Nano, *, charge_id: UUID, at: datetime
) -> Transaction:
    """The transaction of one charge for time that began `at`. A charge of zero is not posted."""
    return _move(
        TransactionKind.USAGE,
        organization_id,
        amount,
        debit=AccountKind.WALLET,
        credit=AccountKind.REVENUE,
        key=f"charge:{charge_id.hex}",
        at=at,
        project_id=project_id,
    )


def refund(
    organization_id: OrganizationId, amount: Nano, *, key: str, at: datetime, approval: Approval
) -> Transaction:
    """Money paid back out of the wallet."""
    return _move(
        TransactionKind.REFUND,
        organization_id,
        amount,
        debit=AccountKind.WALLET,
        credit=AccountKind.CASH,
        key=f"refund:{key}",
        at=at,
        approval=approval,
    )


def credit(
    organization_id: OrganizationId, amount: Nano, *, key: str, at: datetime, approval: Approval
) -> Transaction:
    """Money that a customer may use although nobody paid it in."""
    return _move(
        TransactionKind.CREDIT,
        organization_id,
        amount,
        debit=AccountKind.CREDITS,
        credit=AccountKind.WALLET,
        key=f"credit:{key}",
        at=at,
        approval=approval,
    )


def sla_credit(
    organization_id: OrganizationId,
    project_id: ProjectId,
    amount: Nano,
    *,
    breach_id: SlaBreachId,
    assessment: int,
    approved: bool = False,
    at: datetime,
    approval: Approval,
) -> Transaction:
    """What a broken promise gives back, once for each assessment, and once more when finance `approved` a part of it.

    A correction downwards has a negative amount.
    """
    return Transaction(
        f"credit:sla:{breach_id.hex}:{assessment}{':approved' if approved else ''}",
        TransactionKind.CREDIT,
        organization_id,
        project_id,
        at,
        (Posting(AccountKind.CREDITS, Nano(-amount)), Posting(AccountKind.WALLET, amount)),
        approval,
    )


def payment(
    organization_id: OrganizationId, amount: Nano, *, key: str, at: datetime, approval: Approval
) -> Transaction:
    """Money paid for invoices."""
    return _move(
        TransactionKind.PAYMENT,
        organization_id,
        amount,
        debit=AccountKind.CASH,
        credit=AccountKind.RECEIVABLE,
        key=f"payment:{key}",
        at=at,
        approval=approval,
    )


def invoice(
    organization_id: OrganizationId,
    *,
    invoice_id: UUID,
    tax: Nano,
    adjustment: Nano,
    on_account: Nano = NOTHING,
    at: datetime,
) -> Transaction | None:
    """What an invoice posts: its tax and what the wallet did not cover, which the customer owes, and its rounding.

    The usage itself was posted charge by charge. `adjustment` is at most zero, and goes back into the wallet, and so
    does `on_account`, which a postpaid customer used beyond its balance. None when there is none of them.
    """
    if tax < 0 or adjustment > 0 or on_account < 0:
        raise ValueError("what is owed by an invoice is not negative, and its adjustment not positive")
    moves = (
        (AccountKind.RECEIVABLE, Nano(-tax - on_account)),
        (AccountKind.TAX_PAYABLE, tax),
        (AccountKind.ROUNDING, adjustment),
        (AccountKind.WALLET, Nano(on_account - adjustment)),
    )
    postings = tuple(Posting(kind, amount) for kind, amount in moves if amount)
    if not postings:
        return None
    key = f"invoice:{invoice_id.hex}"
    return Transaction(key, TransactionKind.INVOICE, organization_id, None, at, postings)


def credit_note(
    organization_id: OrganizationId,
    *,
    credit_note_id: UUID,
    credited: Nano,
    to_wallet: Nano,
    to_receivable: Nano = NOTHING,
    tax: Nano,
    at: datetime,
    approval: Approval,
) -> Transaction:
    """What a credit note posts: what it gives back of usage and of tax.

    Revenue stays what was charged. `credited` is the sum of its lines in whole cents. The customer gets `to_wallet`,
    and owes `to_receivable` less; what both are less than the lines and the tax is rounding. The tax is not owed by us
    any more.
    """
    if credited <= 0 or to_wallet < 0 or to_receivable < 0 or tax < 0:
        raise ValueError("a credit note gives something back")
    moves = (
        (AccountKind.CREDITS, Nano(-credited)),
        (AccountKind.WALLET, to_wallet),
        (AccountKind.ROUNDING, Nano(credited + tax - to_wallet - to_receivable)),
        (AccountKind.TAX_PAYABLE, Nano(-tax)),
        (AccountKind.RECEIVABLE, to_receivable),
    )
    postings = tuple(Posting(kind, amount) for kind, amount in moves if amount)
    key = f"credit_note:{credit_note_id.hex}"
    return Transaction(key, TransactionKind.CREDIT_NOTE, organization_id, None, at, postings, approval)


def supplier_invoice(
    platform: OrganizationId, amount: Nano, *, posting_id: UUID, at: datetime, approval: Approval
) -> Transaction:
    """What a provider invoiced us more than is posted of its month already; negative for less, and for a void one."""
    return Transaction(
        f"supplier_invoice:{posting_id.hex}",
        TransactionKind.SUPPLIER_INVOICE,
        platform,
        None,
        at,
        (Posting(AccountKind.PROVIDER_COST, Nano(-amount)), Posting(AccountKind.PAYABLE, amount)),
        approval,
    )


DECISIONS: Mapping[TransactionKind, Decide] = {
    TransactionKind.TOP_UP: top_up,
    TransactionKind.REFUND: refund,
    TransactionKind.CREDIT: credit,
    TransactionKind.PAYMENT: payment,
}
"""How a transaction is made of each kind in APPROVED that no document makes."""


def decision(kind: TransactionKind, available: Nano, owed: Nano, amount: Nano) -> Refused | None:
    """Why a transaction that somebody decides on is refused: no wallet is emptied below its holds, nothing overpaid.

    `available` is what the wallet holds beyond its holds, without credit, and `owed` what invoices left to pay.
    """
    if kind is TransactionKind.REFUND and amount > available:
        why = f"{dollars_down(available)} USD is available; what is on hold for running leases cannot be paid back."
        return Refused(RefusalCode.BALANCE_TOO_LOW, why)
    if kind is TransactionKind.PAYMENT and amount > owed:
        return Refused(
            RefusalCode.OVERPAYMENT,
            f"{dollars(max(NOTHING, owed))} USD is owed by invoices; post the rest as a top-up.",
        )
    return None


def _move(
    kind: TransactionKind,
    organization_id: OrganizationId,
    amount: Nano,
    *,
    debit: AccountKind,
    credit: AccountKind,
    key: str,
    at: datetime,
    project_id: ProjectId | None = None,
    approval: Approval | None = None,
) -> Transaction:
    """A transaction of two postings. Raises ValueError for an amount that is not positive."""
    if amount <= 0:
        raise ValueError(f"the amount of a {kind} is positive")
    postings = (Posting(debit, Nano(-amount)), Posting(credit, amount))
    return Transaction(key, kind, organization_id, project_id, at, postings, approval)
