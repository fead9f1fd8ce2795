"""The payment port: posts what a payment provider tells us, once."""

from pathlib import Path

from control_plane.db import balance_alerts, holds, ledger, organizations, payments
from control_plane.db.connection import Connection
from control_plane.domain.ledger import Transaction, top_up
from control_plane.domain.money import Nano
from control_plane.domain.organization import OPEN
from control_plane.domain.payment import (
    SECRET_LENGTH_MIN,
    PaymentEvent,
    PaymentEventKind,
    charge_back,
    from_wallet,
    refund,
    refund_refusal,
    repeats,
    top_up_key,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.settings import SettingsError
from control_plane.world import World
from environment.private_files import read_private


def secrets(path: Path | None) -> tuple[bytes, ...]:
    """The secrets that events may be signed with, one in each line of a file; none when there is no file."""
    if path is None:
        return ()
    name = f"SPLITPLANE_PAYMENT_SECRETS_PATH is {str(path)!r}"
    try:
        found = tuple(line.strip() for line in read_private(path).splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name}: {error.strerror if isinstance(error, OSError) else error}") from None
    if not found or min(map(len, found)) < SECRET_LENGTH_MIN:
        raise SettingsError(f"{name}: each line has to be a secret of {SECRET_LENGTH_MIN} characters or more")
    return found


async def take(world: World, event: PaymentEvent) -> bool | Refused:
    """Post an event. False when it was posted before."""
    async with world.db.transaction(event.organization_id) as connection:
        # With the lock, the same event is not posted at the same time.
        standing = await organizations.standing(connection, event.organization_id, lock=True)
        if standing is None:
            return Refused(RefusalCode.ORGANIZATION_UNKNOWN, "There is no such organization.")
        if event.kind is PaymentEventKind.REFUNDED:
            own = Nano(standing.available_nano - standing.credit_nano)
            refunded = refund(event, from_wallet=from_wallet(event.amount_nano, own))
            return await _give_back(connection, world, event, refunded)
        if event.kind is PaymentEventKind.CHARGED_BACK:
            return await _give_back(connection, world, event, charge_back(event))
        if standing.state not in OPEN:
            why = f"The organization is {standing.state}; give the money back, because nobody can use it."
            return Refused(RefusalCode.ORGANIZATION_STATE, why)
        return await _pay(connection, world, event)


async def _pay(connection: Connection, world: World, event: PaymentEvent) -> bool | Refused:
    transaction = top_up(
        event.organization_id,
        event.amount_nano,
        key=top_up_key(event),
        at=event.at,
        approval=event.approval,
    )
    known = repeats(event, await payments.posted(connection, event.organization_id, transaction.key))
    if known is not False:
        return known if isinstance(known, Refused) else False
    await ledger.post(connection, [(world.new_id(), transaction)], now=world.now())
    await balance_alerts.look_again(connection, event.organization_id, due_at=world.now())
    await holds.look_at_terms(connection, event.organization_id, now=world.now())
    return True


async def _give_back(
    connection: Connection, world: World, event: PaymentEvent, transaction: Transaction
) -> bool | Refused:
    known = repeats(event, await payments.posted(connection, event.organization_id, transaction.key))
    if known is not False:
        return known if isinstance(known, Refused) else False
    paid_key = f"top_up:{event.organization_id.hex}:{top_up_key(event)}"
    refused = refund_refusal(
        event,
        await payments.posted(connection, event.organization_id, paid_key),
        await payments.given_back(connection, event.organization_id, event.payment),
    )
    if refused is not None:
        return refused
    await ledger.post(connection, [(world.new_id(), transaction)], now=world.now())
    await balance_alerts.look_again(connection, event.organization_id, due_at=world.now())
    await holds.look_at_terms(connection, event.organization_id, now=world.now())
    return True
