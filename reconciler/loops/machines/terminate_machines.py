"""Asks providers to terminate machines, repeatedly until they are gone.

An accepted request proves nothing: a row closes only when the inventory shows the end (observe_machines). Until then
it is an open liability, and this loop asks again. A 404 proves nothing either: a provider may not know a machine for
a moment and still charge for it.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import machines
from control_plane.domain.backoff import delay
from control_plane.domain.ids import AccountName
from control_plane.domain.machine import Machine, MachineState
from providers.base import MachineNotFound, ProviderError
from reconciler import traced
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "terminate_machines"
MACHINES_PER_ACTIVATION_MAX = 32
HELD_FOR = timedelta(seconds=120)
"""Longer than the guard ever takes for a terminate request."""
ASK_AGAIN_FIRST = timedelta(seconds=15)
ASK_AGAIN_CEILING = timedelta(minutes=5)
REFUSED_FIRST = timedelta(seconds=5)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    token = world.new_id()
    async with world.db.transaction() as connection:
        terminating = await machines.take(
            connection,
            account,
            MachineState.TERMINATING,
            token=token,
            until=now + HELD_FOR,
            now=now,
            limit=MACHINES_PER_ACTIVATION_MAX,
            with_reference=True,
        )
        steps = await traced.of_machines(world, connection, NAME, [machine.id for machine in terminating])
    report = Report(looked_at=len(terminating), more=len(terminating) == MACHINES_PER_ACTIVATION_MAX)
    await each(
        terminating,
        lambda machine: steps.around(machine.id, _terminate(world, account, machine, token, report)),
        report,
    )
    return report


async def _terminate(
    world: MachineWorld, account: AccountName, machine: Machine, token: UUID, report: Report
) -> None:
    if machine.provider_ref is None:
        raise ValueError(f"{machine.id} was taken with a reference and has none")
    refused: ProviderError | None = None
    try:
        await world.accounts[account].terminate(machine.provider_ref)
    except MachineNotFound:
        pass  # It is gone, or the provider is wrong: the inventory decides.
    except ProviderError as error:
        refused = error  # One stuck machine must not stop the others.
    now = world.now()
    async with world.db.transaction() as connection:
        if refused is None:
            wait = delay(machine.tries + 1, first=ASK_AGAIN_FIRST, ceiling=ASK_AGAIN_CEILING)
            await machines.terminate_asked(connection, machine.id, token=token, now=now, due_at=now + wait)
            report.acted_on += 1
            return
        wait = delay(machine.tries + 1, first=REFUSED_FIRST, ceiling=ASK_AGAIN_CEILING)
        await machines.retry(connection, machine.id, token=token, now=now, due_at=now + wait)
    report.errors.append(f"{machine.launch_key} {machine.provider_ref}: {type(refused).__name__}: {refused}")


LOOP = AccountLoop(NAME, timedelta(seconds=1), activate, wakes=("observe_machines",))
