"""Balanced postings. Every transaction sums to zero; nothing is ever edited.

A customer's wallet is a liability of ours: money paid in is owed to them until it is used.
Amounts are signed from the ledger's side: credit positive, debit negative.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.money import NANO_MAX, Nano


class AccountKind(StrEnum):
    """What a ledger account holds. A ledger account is a row: a kind, and whose it is."""

    WALLET = "wallet"
    """What we owe a customer. One per organization."""
    CASH = "cash"
    """What was paid in. Ours, one in all."""
    REVENUE = "revenue"
    """What was used. Ours, one in all."""


OURS = frozenset({AccountKind.CASH, AccountKind.REVENUE})
"""Kinds of which the operator of this installation has one account."""


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """A row of the ledger's list of accounts. It is never edited."""

    id: LedgerAccountId
    organization_id: OrganizationId | None
    """Whose it is; None when it is ours."""
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
    """Names the account: ours where we have one of the kind, and the transaction's organization's otherwise."""
    amount_nano: Nano


@dataclass(frozen=True, slots=True)
class Transaction:
    key: str
    """Names the fact that it records. The same key twice has the effect of one."""
    kind: TransactionKind
    organization_id: OrganizationId
    """Whose money moves. Postings to our own accounts carry it too: every row has its tenant."""
    project_id: ProjectId | None
    """Which of its projects the money was used for; None when it concerns none."""
    postings: tuple[Posting, ...]

    def __post_init__(self) -> None:
        if sum(posting.amount_nano for posting in self.postings) != 0:
            raise ValueError(f"{self.key} does not balance")
        if any(posting.amount_nano == 0 or abs(posting.amount_nano) > NANO_MAX for posting in self.postings):
            raise ValueError(f"{self.key} has a posting of zero or beyond 64 bits")

    @property
    def wallet_nano(self) -> Nano:
        """What it adds to the organization's wallet."""
        return Nano(sum(one.amount_nano for one in self.postings if one.kind is AccountKind.WALLET))


def top_up(organization_id: OrganizationId, amount: Nano, *, key: str) -> Transaction:
    """Money paid in. `key` names the payment within its organization; another one may use the same word."""
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
    """The posting of one charge. `amount` is positive; a charge of nothing is not posted."""
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
