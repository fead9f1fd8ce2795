"""Prices each interval once and posts it: the charge, the ledger transaction and the hold change together.

An interval leaves the queue in the database transaction that rates it, and its number is unique among the lease's
charges, so it is billed once however often this loop runs and wherever it crashes (law 8). The amount is the
difference of two totals, so the charges add up however time is cut (law 7).
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import holds, ledger, organizations, usage
from control_plane.db.holds import Posted
from control_plane.db.usage import MonthSpend, NewCharge, Unrated
from control_plane.domain.ledger import Transaction
from control_plane.domain.ledger import usage as usage_transaction
from control_plane.domain.money import Nano
from control_plane.domain.period import month_of
from control_plane.domain.rating import charge
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "rate_usage"
RATED_PER_ACTIVATION_MAX = 500


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        queued = await usage.take_unrated(connection, limit=RATED_PER_ACTIVATION_MAX)
        charges = [rated(unrated, world.new_id()) for unrated in queued]
        # A charge refers to its lease and so waits for the lease's lock: the order of locks is lease, standing, hold.
        await usage.insert_charges(connection, charges, now=now)
        await organizations.lock_standings(connection, {unrated.organization_id for unrated in queued})
        await ledger.post(connection, _transactions(queued, charges, world.new_id), now=now)
        await usage.count_month(connection, _per_month(queued, charges))
        await holds.use(connection, _per_lease(queued, charges), now=now)
    return Report(looked_at=len(queued), acted_on=len(queued), more=len(queued) == RATED_PER_ACTIVATION_MAX)


def rated(unrated: Unrated, charge_id: UUID) -> NewCharge:
    """The charge of an interval."""
    amount = charge(unrated.nano_per_unit_hour, unrated.unit_seconds_before, unrated.unit_seconds)
    return NewCharge(charge_id, unrated.lease_id, unrated.number, amount)


def _transactions(
    queued: Sequence[Unrated], charges: Sequence[NewCharge], new_id: Callable[[], UUID]
) -> list[tuple[UUID, Transaction]]:
    """The ledger transactions of the charges. A charge of zero has none."""
    return [
        (
            new_id(),
            usage_transaction(
                unrated.organization_id,
                unrated.project_id,
                made.amount_nano,
                charge_id=made.id,
                at=unrated.started_at,
            ),
        )
        for unrated, made in zip(queued, charges, strict=True)
        if made.amount_nano > 0
    ]


def _per_lease(queued: Sequence[Unrated], charges: Sequence[NewCharge]) -> list[Posted]:
    """The sum to take out of each lease's hold."""
    posted: dict[UUID, Posted] = {}
    for unrated, made in zip(queued, charges, strict=True):
        before = posted.get(unrated.lease_id, Posted(unrated.lease_id, Nano(0), final=False))
        amount = Nano(before.amount_nano + made.amount_nano)
        posted[unrated.lease_id] = Posted(unrated.lease_id, amount, final=before.final or unrated.final)
    return list(posted.values())


def _per_month(queued: Sequence[Unrated], charges: Sequence[NewCharge]) -> list[MonthSpend]:
    """What the environments spent. An interval ends at full hours, and so lies in one calendar month."""
    spent: dict[tuple[UUID, datetime], MonthSpend] = {}
    for unrated, made in zip(queued, charges, strict=True):
        key = unrated.environment_id, month_of(unrated.started_at)
        before = spent[key].charged_nano if key in spent else 0
        spent[key] = MonthSpend(
            unrated.organization_id, unrated.project_id, *key, Nano(before + made.amount_nano)
        )
    return list(spent.values())


LOOP = Loop(NAME, timedelta(seconds=2), activate)
