"""Prices each interval once and posts it: charge, ledger transaction and hold in one transaction.

An interval leaves the queue in the transaction that rates it, and its number is unique among
charges: run twice, crash anywhere, and it is still billed once (law 8). The amount is the difference
of two totals, so any cutting of time adds up (law 7).
"""

from datetime import timedelta

from control_plane.db import ledger, usage
from control_plane.domain.ledger import usage as usage_transaction
from control_plane.domain.rating import charge
from reconciler.loop import Loop, Report, World

NAME = "rate_usage"
RATED_PER_ACTIVATION_MAX = 200


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        queued = await usage.take_unrated(connection, limit=RATED_PER_ACTIVATION_MAX)
        await ledger.lock_standings(connection, [one.organization_id for one in queued])
        for unrated in queued:
            interval = unrated.interval
            amount = charge(unrated.nano_per_gpu_hour, interval.gpu_seconds_before, interval.gpu_seconds)
            charge_id = world.new_id()
            await usage.insert_charge(connection, charge_id, unrated, amount, now=now)
            if amount > 0:
                transaction = usage_transaction(unrated.organization_id, amount, charge_id=charge_id)
                await ledger.post(connection, transaction, transaction_id=world.new_id(), now=now)
            await ledger.use_hold(connection, unrated.lease_id, amount, final=interval.final, now=now)
    return Report(looked_at=len(queued), acted_on=len(queued), more=len(queued) == RATED_PER_ACTIVATION_MAX)


LOOP = Loop(NAME, timedelta(seconds=2), activate)
