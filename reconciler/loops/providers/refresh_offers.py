"""Refreshes the offers of every provider account, with the time at which they were listed.

Without this loop, placement would use yesterday's prices and stock of an hour ago. An account that does not
answer keeps its old offers, which become stale by age; a slow provider makes only its own offers stale. Operators read
on the account why its offers could not be refreshed. An offer that cannot be right is left out with a note, and the
account's others are used.
"""

from datetime import datetime, timedelta

from control_plane.db import accounts, catalogue, offer_blocks
from control_plane.domain.ids import AccountName
from control_plane.domain.listed import usable
from control_plane.domain.placement import Offer
from providers.base import ListedOffer, ProviderError
from reconciler import account_faults
from reconciler.loop import AccountLoop, Report
from reconciler.worlds.providers import ProviderWorld

NAME = "refresh_offers"
EVERY = timedelta(seconds=30)
NOTES_MAX = 20
"""So many odd offers are named in a report; a provider may list thousands."""


async def activate(world: ProviderWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_offers(connection, account, now=now, due_next=now + EVERY):
            return Report()
    try:
        listed = await world.accounts[account].offers()
    except ProviderError as error:
        why = f"{type(error).__name__}: {error}"
        await account_faults.store(world, account, accounts.record_offers_failure, why)
        return Report(errors=[why])

    observed_at = world.now()
    async with account_faults.marked(
        world, account, accounts.record_offers_failure, "they could not be stored"
    ):
        offers, odd = usable(_offer(account, listed_offer, observed_at) for listed_offer in listed)
        async with world.db.transaction() as connection:
            await catalogue.replace_offers(connection, account, offers, now=now)
            await accounts.record_refresh(connection, account, now=now)
            await offer_blocks.forget(connection, account, now=now)
    return Report(looked_at=len(offers), acted_on=0, notes=odd[:NOTES_MAX])


def _offer(account: AccountName, listed: ListedOffer, observed_at: datetime) -> Offer:
    return Offer(
        key=f"{account}:{listed.native_region}:{listed.native_type}",
        account=account,
        provider=account.partition("/")[0],
        region=listed.region,
        native_region=listed.native_region,
        native_type=listed.native_type,
        shape=listed.shape,
        capacity=listed.capacity.value,
        cost_nano_per_hour=listed.cost_nano_per_hour,
        available=listed.available,
        confidence=listed.confidence.value,
        observed_at=observed_at,
    )


LOOP = AccountLoop(NAME, EVERY, activate)
