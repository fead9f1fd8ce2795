"""The ledger for finance: its balances, and the transactions that somebody decides on."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import ledger, ledger_entries, organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.ledger import PostedTransaction
from control_plane.db.ledger_entries import LedgerEntry, Wallet
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import DECISIONS, AccountKind, Approval, TransactionKind, balance, decision
from control_plane.domain.ledger import top_up as top_up_transaction
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.organization import OPEN, OrganizationState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = [
    "LedgerEntry",
    "PostedTransaction",
    "Wallet",
]  # For controllers, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class Deciding:
    """Which transaction somebody decides on."""

    organization_id: OrganizationId
    kind: TransactionKind
    """One of the kinds in `domain.ledger.APPROVED`."""
    amount: Nano
    approval: Approval
    back_to: OrganizationId
    """The decider's own organization, whose transaction it is."""


async def post(connection: Connection, world: World, deciding: Deciding) -> PostedTransaction | Refused:
    """Post a transaction that somebody decides on, in the period of this moment.

    Refused where the wallet has too little for a refund, where a payment is more than is owed, and for top-ups and
    credits to an organization that is closing, because nobody could use them.
    """
    organization_id, kind = deciding.organization_id, deciding.kind
    async with acting_for(connection, organization_id, back_to=deciding.back_to):
        standing = await organizations.standing(connection, organization_id, lock=True)
        if standing is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        unusable = _unusable(standing.state) if kind in _TO_USE else None
        if unusable is not None:
            return unusable
        owed = await ledger.owed(connection, organization_id)
        own = Nano(max(NOTHING, standing.available_nano - standing.credit_nano))
        refused = decision(kind, own, owed, deciding.amount)
        if refused is not None:
            return refused
        transaction_id, now = world.new_id(), world.now()
        transaction = DECISIONS[kind](
            organization_id, deciding.amount, key=transaction_id.hex, at=now, approval=deciding.approval
        )
        await ledger.post(connection, [(transaction_id, transaction)], now=now)
        return await ledger.decided(connection, transaction_id)


async def top_up(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    amount: Nano,
    *,
    key: str,
    approval: Approval,
) -> bool | Refused:
    """Post a top-up once per key. False when the key was posted before; refused when the organization is closing."""
    state = await organizations.hold_standing(connection, organization_id)
    if state is None:
        return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
    unusable = _unusable(state)
    if unusable is not None:
        return unusable
    now = world.now()
    transaction = top_up_transaction(organization_id, amount, key=key, at=now, approval=approval)
    return bool(await ledger.post(connection, [(world.new_id(), transaction)], now=now))


_TO_USE = frozenset({TransactionKind.TOP_UP, TransactionKind.CREDIT})
"""Kinds that give an organization money to use."""


def _unusable(state: OrganizationState) -> Refused | None:
    """Why an organization gets no money: nobody could use it, and its closure states the balance that remains."""
    if state in OPEN:
        return None
    states = " or ".join(sorted(OPEN))
    why = f"The organization is {state}; top-ups and credits are posted while it is {states}."
    return Refused(RefusalCode.ORGANIZATION_STATE, why)


async def balances(world: World, platform: OrganizationId) -> dict[AccountKind, Nano]:
    """The balance of every kind of account over all customers, positive on its normal side."""
    async with world.db.reading(platform) as connection:
        sums = await ledger.balances(connection)
    return {kind: balance(kind, sums.get(kind, Nano(0))) for kind in AccountKind}


async def entries(
    world: World,
    platform: OrganizationId,
    account: AccountKind,
    *,
    organization_id: OrganizationId | None = None,
    period: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> list[LedgerEntry]:
    """The entries of an account, newest first: of one organization, or of all.

    With `period`, the first instant of a month, only those that are booked in it.
    """
    async with world.db.reading(platform) as connection:
        return await ledger_entries.entries(
            connection, account, organization_id=organization_id, period=period, before=before, limit=limit
        )


async def wallets(
    world: World, platform: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> list[Wallet]:
    """What we owe each customer, oldest customer first."""
    async with world.db.reading(platform) as connection:
        return await ledger_entries.wallets(connection, after=after, limit=limit)
