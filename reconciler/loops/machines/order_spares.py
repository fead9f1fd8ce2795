"""Orders another machine for leases whose own is to be replaced only when that one is ready.

`repair_machines` says for which leases (`control_plane/domain/repair.py`, as their service level promises). The machine
is ordered like one of a pool, and reserved for the lease: it is launched, checked and proven like all others, and
`place_leases` gives it to the lease once the old machine is taken away. When no offer can serve it, the lease keeps the
machine that it has, and others have their turn: one is looked for again later and later, also after an order that
failed. `keep_pools` ends what is reserved and not needed any more.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import (
    attempts,
    catalogue,
    envelopes,
    leases,
    repairs,
)
from control_plane.db.connection import Connection
from control_plane.db.repairs import SpareDue
from control_plane.domain.backoff import delay
from control_plane.domain.ids import AccountName, LeaseId, MachineId
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.machine import MachineOrder, Purpose
from control_plane.domain.machine_order import order_of
from control_plane.domain.placement import Offer
from control_plane.outcomes import machines as outcomes
from control_plane.outcomes.rankings import ranking_to_order
from reconciler.loop import Loop, Report, each
from reconciler.worlds.accounts import AccountWorld

NAME = "order_spares"
LEASES_PER_ACTIVATION_MAX = 20
RETRY_FIRST = timedelta(seconds=15)
RETRY_CEILING = timedelta(minutes=10)


async def activate(world: AccountWorld) -> Report:
    async with world.db.reading() as connection:
        due = await repairs.spares_due(connection, now=world.now(), limit=LEASES_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due), more=len(due) == LEASES_PER_ACTIVATION_MAX)
    for spare in due:  # One by one: each order changes what the next one may have.
        await each([spare], partial(_order, world, report), report)
    return report


async def _order(world: AccountWorld, report: Report, spare: SpareDue) -> None:
    again_after = delay(spare.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.transaction() as connection:
        await repairs.spare_tried(connection, spare.lease_id, due_at=world.now() + again_after)
    await _look(world, report, spare.lease_id)


async def _look(world: AccountWorld, report: Report, lease_id: LeaseId) -> None:
    async with world.db.transaction() as connection:
        lease = (await leases.lock(connection, [lease_id])).get(lease_id)
        if lease is None or lease.state is not LeaseState.READY:
            return
        # Read again under the lock of the lease, so that replicas order one machine.
        if not await repairs.lacks_spare(connection, lease_id):
            return
        now = world.now()
        offers = await _offers(connection, world, lease, now)
        if not offers:
            report.notes.append(f"{lease.name}: no offer can serve it now, so it keeps its machine")
            return
        order = _machine(world, lease, offers[0])
        await outcomes.order(connection, [order], actor=world.actor(NAME), now=now)
    report.count(1)


async def _offers(
    connection: Connection, world: AccountWorld, lease: Lease, now: datetime
) -> Sequence[Offer]:
    """What could serve the lease if it waited, best first: what `place_leases` would not give it is not ordered."""
    prices = await catalogue.prices(connection, now=now, sku=lease.sku)
    if not prices:
        return ()
    applied = await envelopes.applied(connection, [lease.environment_id], now=now)
    ranking = await ranking_to_order(
        connection,
        lease.request,
        prices[0].sku.shape,
        lease.nano_per_hour,
        accounts=[AccountName(name) for name in world.account_names],
        now=now,
        failures=(await attempts.failures(connection, [lease.id])).get(lease.id, {}),
        envelopes=[each.envelope for each in applied[lease.environment_id]],
    )
    return ranking.candidates


def _machine(world: AccountWorld, lease: Lease, offer: Offer) -> MachineOrder:
    order = order_of(
        offer,
        MachineId(world.new_id()),
        Purpose.POOL,
        lease.proof,
        lease.nano_per_hour,
        installation=world.installation,
    )
    return replace(order, reserved_for=lease.id)


LOOP = Loop(NAME, timedelta(seconds=15), activate, wakes=("launch_machines",))
