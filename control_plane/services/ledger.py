"""The ledger for finance: its balances, and the transactions that somebody decides on."""

from dataclasses import dataclass

from control_plane.db import ledger, organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.ledger import PostedTransaction
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import DECISIONS, AccountKind, Approval, TransactionKind, balance, decision
from control_plane.domain.money import Nano
from control_plane.domain.organization import OPEN
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["PostedTransaction"]  # For controllers, which must not import the layer below.


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

    Refused where the wallet has too little for a refund, where a payment is more than is owed, and for credits to an
    organization that is closing, because nobody could use them.
    """
    organization_id, kind = deciding.organization_id, deciding.kind
    async with acting_for(connection, organization_id, back_to=deciding.back_to):
        standing = await organizations.standing(connection, organization_id, lock=True)
        if standing is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        if kind is TransactionKind.CREDIT and standing.state not in OPEN:
            why = f"The organization is {standing.state}; credits are posted while it is active or suspended."
            return Refused(RefusalCode.ORGANIZATION_STATE, why)
        owed = await ledger.owed(connection, organization_id)
        refused = decision(kind, standing.available_nano, owed, deciding.amount)
        if refused is not None:
            return refused
        transaction_id, now = world.new_id(), world.now()
        transaction = DECISIONS[kind](
            organization_id, deciding.amount, key=transaction_id.hex, at=now, approval=deciding.approval
        )
        await ledger.post(connection, [(transaction_id, transaction)], now=now)
        return await ledger.decided(connection, transaction_id)


async def balances(world: World, platform: OrganizationId) -> dict[AccountKind, Nano]:
    """The balance of every kind of account over all customers, positive on its normal side."""
    async with world.db.reading(platform) as connection:
        sums = await ledger.balances(connection)
    return {kind: balance(kind, sums.get(kind, Nano(0))) for kind in AccountKind}
