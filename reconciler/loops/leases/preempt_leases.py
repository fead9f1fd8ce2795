"""Lets interruptible leases yield their machines to leases whose readiness is promised, when capacity is short.

A lease in need waits, and its promise would be broken. `domain/preemption.py` decides when a machine is taken back for
it, and whose: the one with the lowest harm. Its customer has notice; then the claim ends, and the machine is
overwritten and ended as after every lease. Once its provider has confirmed that, a machine is ordered in its place,
reserved for the lease in need, which `place_leases` has claim it. This loop stores intents and decisions alone.

Nothing happens until an operator arms it (`splitplane preemption arm`): until then the decisions are stored. Each step
is a transaction, so whoever takes over finds how far a preemption is. When the lease in need does not wait any more
during the notice, the preemption is withdrawn, and the customer is told.
"""

from datetime import timedelta

from control_plane.db import preemptions
from control_plane.db.connection import Connection
from control_plane.domain.ids import LeaseId, PreemptionId
from control_plane.outcomes import preemptions as outcomes
from control_plane.outcomes.preemptions import Setting
from reconciler.loop import Loop, Report, each
from reconciler.worlds.accounts import AccountWorld

NAME = "preempt_leases"
LEASES_PER_ACTIVATION_MAX = 50
UNDER_WAY_PER_ACTIVATION_MAX = 200


async def activate(world: AccountWorld) -> Report:
    async with world.db.reading() as connection:
        under_way = await preemptions.under_way(connection, limit=UNDER_WAY_PER_ACTIVATION_MAX)
        in_need = await preemptions.waiting(connection, now=world.now(), limit=LEASES_PER_ACTIVATION_MAX)
    run = _Run(world, Report(looked_at=len(under_way) + len(in_need)))
    for preemption_id in under_way:
        await each([preemption_id], run.advance, run.report)
    for waiting in in_need:  # One by one: each notice counts for the next one, also one of another worker.
        await each([waiting.lease_id], run.consider, run.report)
    return run.report


class _Run:
    """What one activation has done so far."""

    def __init__(self, world: AccountWorld, report: Report) -> None:
        self._world = world
        self.report = report

    async def advance(self, preemption_id: PreemptionId) -> None:
        async with self._world.db.transaction() as connection:
            setting = await _setting(self._world, connection)
            self.report.count(await outcomes.advance(connection, preemption_id, setting))

    async def consider(self, lease_id: LeaseId) -> None:
        async with self._world.db.transaction() as connection:
            setting = await _setting(self._world, connection)
            told = await outcomes.consider(connection, lease_id, setting)
        self.report.count(told)


async def _setting(world: AccountWorld, connection: Connection) -> Setting:
    switch = await preemptions.switch(connection)
    return Setting(
        account_names=world.account_names,
        installation=world.installation,
        new_id=world.new_id,
        actor=world.actor(NAME),
        now=world.now(),
        armed=switch is not None and switch.armed,
    )


LOOP = Loop(
    NAME, timedelta(seconds=10), activate, wakes=("release_machines", "launch_machines", "place_leases")
)
