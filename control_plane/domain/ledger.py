"""The ledger's transactions. The postings of each sum to zero, and nothing is ever edited.

A customer's wallet is a liability of ours: we owe them the money they paid in until they use it.
Amounts are signed from the ledger's side: credit positive, debit negative.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.money import NANO_MAX, Nano


class AccountKind(StrEnum):
    """What a ledger account holds. Each account is a row with a kind and an owner."""

    WALLET = "wallet"
    """What we owe a customer. One per organization."""
    CASH = "cash"
    """What was paid in. Our own account; there is only one."""
    REVENUE = "revenue"
    """What was used. Our own account; there is only one."""


OURS = frozenset({AccountKind.CASH, AccountKind.REVENUE})
"""Kinds of our own accounts. There is one account of each kind."""


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
    USAGE = "usage"


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
    postings: tuple[Posting, ...]

    def __post_init__(self) -> None:
        if sum(posting.amount_nano for posting in self.postings) != 0:
            raise ValueError(f"{self.key} does not balance")
        if any(posting.amount_nano == 0 or abs(posting.amount_nano) > NANO_MAX for posting in self.postings):
            raise ValueError(f"{self.key} has a posting of zero or beyond 64 bits")

    @property
    def wallet_nano(self) -> Nano:
        """The amount that it adds to the organization's wallet."""
        return Nano(
            sum(posting.amount_nano for posting in self.postings if posting.kind is AccountKind.WALLET)
        )


def top_up(organization_id: OrganizationId, amount: Nano, *, key: str) -> Transaction:
    """Money paid in. `key` identifies the payment within its organization; another organization may use it too."""
    if amount <= 0:
        raise ValueError("a top-up is positive")
    return Transaction(
        key=f"top_up:{organization_id.hex}:{key}",
        kind=TransactionKind.TOP_UP,
        organization_id=organization_id,
        project_id=None,
        postings=(
            Posting(AccountKind.CASH, Nano(-amount)),
            Posting(AccountKind.WALLET, amount),
        ),
    )


def usage(
    organization_id: OrganizationId, project_id: ProjectId, amount: Nano, *, charge_id: UUID
) -> Transaction:
    """The transaction of one charge. `amount` is positive; a charge of zero is not posted."""
    if amount <= 0:
        raise ValueError("a usage charge is positive")
    return Transaction(
        key=f"charge:{charge_id.hex}",
        kind=TransactionKind.USAGE,
        organization_id=organization_id,
        project_id=project_id,
        postings=(
            Posting(AccountKind.WALLET, Nano(-amount)),
            Posting(AccountKind.REVENUE, amount),
        ),
    )
