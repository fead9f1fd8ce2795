"""Deletes the children of machines that do not need them any more: start-up scripts, volumes, addresses.

Providers do not delete them with the machine. A script may hold the machine's private host key, so it goes as soon as
the machine was reached; the rest goes once the machine is certainly gone. `domain/child.py` decides. The list of the
provider is the only record of a child: what a killed run left is on the next list.

The journal says what is deleted, and why, before it is.
"""

from datetime import timedelta
from functools import partial

from control_plane.db import accounts, children
from control_plane.domain.child import Child, Sorted, Unneeded, to_delete
from control_plane.domain.ids import AccountName
from providers.base import HasChildren, ProviderError
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "sweep_children"
EVERY = timedelta(minutes=1)
NAMED_MAX = 5
"""How many children without a record a report names."""


async def activate(world: MachineWorld, account: AccountName) -> Report:
    provider = world.accounts[account]
    if not isinstance(provider, HasChildren):
        return Report()
    now = world.now()
    async with world.db.transaction() as connection:
        if not await children.take_listing(connection, account, now=now, every=EVERY):
            return Report()
    try:
        listed = await provider.children()
    except ProviderError as error:
        return Report(errors=[f"{type(error).__name__}: {error}"])
    found = await _sort(world, account, listed)
    report = Report(looked_at=len(listed))
    _tell(found, report)
    await each(found.delete, partial(_delete, world, provider, report), report)
    return report


async def _sort(world: MachineWorld, account: AccountName, listed: tuple[Child, ...]) -> Sorted:
    if not listed:
        return Sorted((), {}, ())
    async with world.db.reading() as connection:
        frozen_why = (await accounts.get(connection, account)).frozen_why
        parents = await children.parents(connection, account, (child.launch_key for child in listed))
    capabilities = world.accounts[account].capabilities
    return to_delete(
        listed,
        parents,
        installation=world.installation,
        frozen_why=frozen_why,
        late=timedelta(seconds=capabilities.list_lag_seconds + capabilities.boot_seconds_max),
        now=world.now(),
    )


def _tell(found: Sorted, report: Report) -> None:
    """Report what is kept: children without a record as an error, because nobody will ever delete them."""
    report.notes += [f"{count} held back: {why}" for why, count in found.held.items()]
    if found.unrecorded:
        named = ", ".join(f"{child.kind} {child.ref}" for child in found.unrecorded[:NAMED_MAX])
        report.errors.append(
            f"{len(found.unrecorded)} with our launch keys have no record and are not touched: {named}"
        )


async def _delete(world: MachineWorld, provider: HasChildren, report: Report, unneeded: Unneeded) -> None:
    child = unneeded.child
    why = f"{child.kind} {child.ref}: {unneeded.why}"
    async with world.db.transaction() as connection:
        await children.note_deletion(
            connection, unneeded.machine_id, why=why, actor=world.actor(NAME), now=world.now()
        )
    try:
        await provider.delete_child(child)
    except ProviderError as error:
        report.errors.append(f"{child.kind} {child.ref}: {type(error).__name__}: {error}")
        return
    report.acted_on += 1


LOOP = AccountLoop(NAME, EVERY, activate)
