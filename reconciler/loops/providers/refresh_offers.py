"""Refreshes the offers of every provider account, with the time at which they were listed.

Without this loop, placement would use yesterday's prices and stock of an hour ago. An account that does not
answer keeps its old offers, which become stale by age; a slow provider makes only its own offers stale. Operators read
on the account why its offers could not be refreshed. What cannot be sold, because its GPU or its region has no name of
ours or because it cannot be right, is left out, and operators read it on the account; the account's others are used.
"""

import math
from datetime import datetime, timedelta

from control_plane.db import accounts, catalogue, offer_blocks, offer_histories
from control_plane.domain.effective_price import History, Terms
from control_plane.domain.ids import AccountName
from control_plane.domain.listed import usable
from control_plane.domain.offer_key import offer_key, record_key
from control_plane.domain.placement import HISTORY_WINDOW, Offer
from control_plane.domain.power_action import PowerAction
from providers.base import Capabilities, LeftOut, ListedOffer, ProviderError
from reconciler import account_faults, offers_left_out
from reconciler.loop import AccountLoop, Report
from reconciler.worlds.providers import ProviderWorld

NAME = "refresh_offers"
EVERY = timedelta(seconds=30)
NOTES_MAX = 20
"""So much of what is left out is named; a provider may list thousands."""


async def activate(world: ProviderWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_offers(connection, account, now=now, due_next=now + EVERY):
            return Report()
        histories = await offer_histories.of_account(connection, account, since=now - HISTORY_WINDOW)
    try:
        listed = await world.accounts[account].offers()
    except ProviderError as error:
        why = f"{type(error).__name__}: {error}"
        await account_faults.store(world, account, accounts.record_offers_failure, why)
        return Report(errors=[why])

    observed_at = world.now()
    capabilities = world.accounts[account].capabilities
    async with account_faults.marked(
        world, account, accounts.record_offers_failure, "they could not be stored"
    ):
        offers, odd = usable(
            _offer(account, each, capabilities, histories, observed_at)
            for each in listed
            if isinstance(each, ListedOffer)
        )
        unnamed = [each for each in listed if isinstance(each, LeftOut)]
        offers_left_out.count(account, unnamed, odd=len(odd))
        left_out = [*offers_left_out.notes(unnamed), *odd][:NOTES_MAX]
        async with world.db.transaction() as connection:
            if not await accounts.record_refresh(connection, account, now=now, left_out=left_out):
                return Report(
                    notes=["the account was removed, or offers that were asked for later are stored"]
                )
            await catalogue.replace_offers(connection, account, offers, now=now)
            await offer_blocks.forget(connection, account, now=now)
    return Report(looked_at=len(offers), acted_on=0, notes=left_out)


_NOT_OF_SPOT = frozenset({PowerAction.STOP, PowerAction.START})
"""A spot machine is bought to be ended, not to be stopped: AWS refuses to stop one that was ordered once."""


def _terms(capabilities: Capabilities) -> Terms:
    setup = capabilities.boot_seconds_usual if capabilities.billed_while_booting else 0.0
    return Terms(
        math.ceil(setup),
        capabilities.billed_seconds_unit,
        capabilities.billed_seconds_min,
        capabilities.billed_while_booting,
    )


def _offer(
    account: AccountName,
    listed: ListedOffer,
    capabilities: Capabilities,
    histories: dict[str, History],
    observed_at: datetime,
) -> Offer:
    key = offer_key(
        account, listed.native_region, listed.native_type, spot=listed.spot, supplier=listed.supplier
    )
    return Offer(
        key=key,
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
        architecture=listed.architecture,
        spot=listed.spot,
        eviction_notice_seconds=listed.eviction_notice_seconds,
        price_source=listed.price_source.value,
        network_gbps=listed.network_gbps,
        ephemeral_gib=listed.ephemeral_gib,
        stopped_cost_nano_per_hour=listed.stopped_cost_nano_per_hour,
        orderable=capabilities.sells_spot or not listed.spot,
        power=tuple(sorted(capabilities.power - _NOT_OF_SPOT if listed.spot else capabilities.power)),
        firewall=capabilities.firewall,
        terms=_terms(capabilities),
        history=histories.get(record_key(key), History()),
    )


LOOP = AccountLoop(NAME, EVERY, activate)
