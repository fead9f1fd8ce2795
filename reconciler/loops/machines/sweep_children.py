"""Deletes the children of machines that do not need them any more: start-up scripts, volumes, addresses.

Providers do not delete them with the machine. A script may hold the machine's private host key, so it goes as soon as
the machine was reached; the rest goes once the machine is certainly gone. `domain/child.py` decides. By the list of the
provider alone: what a killed run left is on the next list. What nobody needs and is still there is stored for
operators, as a liability. What has a price is kept for finance, which reads what was left behind and what it cost.

A list that is empty, or that misses too many of those, is not believed, as for machines (`domain/freeze.py`): nothing
is deleted by it, and no liability is forgotten. On an account that no operator armed, only scripts are deleted.

The journal says what we ask the provider to delete, and why, before we do. Children are deleted one after the other:
deletions are the least urgent of all calls, and several at once would not get their turns in time.
"""

from collections.abc import Sequence
from datetime import timedelta

from control_plane.db import accounts, child_costs, children, leftover_decisions
from control_plane.domain.child import Child, Sorted, Unneeded, listed_children, oddness, to_delete
from control_plane.domain.freeze import freeze_after
from control_plane.domain.ids import AccountName
from providers.base import ProviderError, Throttled
from providers.optional import HasChildren
from reconciler.loop import AccountLoop, Report
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
    frozen_why = await _frozen(world, account, listed)
    if frozen_why is not None:
        return Report(looked_at=len(listed), errors=[f"its list of children is not believed: {frozen_why}"])
    found = await _sort(world, account, listed)
    async with world.db.transaction() as connection:
        ours = listed_children(listed, found.leftovers, installation=world.installation, now=now)
        await child_costs.record(connection, account, ours, now=now)
        await children.record_leftovers(connection, account, found.leftovers, listed=len(ours), now=now)
    report = Report(looked_at=len(listed))
    _tell(found, report)
    await _delete_all(world, account, provider, report, found.delete)
    return report


async def _frozen(world: MachineWorld, account: AccountName, listed: Sequence[Child]) -> str | None:
    """Why a list is not believed; None when it is, because it looks right or such lists have lasted."""
    now = world.now()
    async with world.db.transaction() as connection:
        odd = oddness(await children.expected(connection, account), listed)
        frozen = freeze_after(await children.freeze(connection, account), odd, now=now)
        await children.record_freeze(connection, account, frozen)
    return None if frozen is None or frozen.lasted(now) else frozen.why


async def _sort(world: MachineWorld, account: AccountName, listed: tuple[Child, ...]) -> Sorted:
    if not listed:
        return Sorted((), {}, (), ())
    async with world.db.reading() as connection:
        state = await accounts.get(connection, account)
        parents = await children.parents(connection, account, (child.launch_key for child in listed))
        decided = await leftover_decisions.decided(connection, account)
    capabilities = world.accounts[account].capabilities
    return to_delete(
        listed,
        parents,
        installation=world.installation,
        frozen_why=state.frozen_why,
        armed=state.armed_at is not None,
        decided=decided,
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


async def _delete_all(
    world: MachineWorld,
    account: AccountName,
    provider: HasChildren,
    report: Report,
    unneeded: Sequence[Unneeded],
) -> None:
    """One after the other. Once the provider takes no more calls for now, the rest waits for the next run."""
    for number, each in enumerate(unneeded):
        try:
            await _delete(world, provider, each)
        except Throttled as error:
            report.notes.append(f"{len(unneeded) - number} wait for the next run: {error}")
            return
        except ProviderError as error:
            why = f"{type(error).__name__}: {error}"
            report.errors.append(f"{_name(each)}: {why}")
            async with world.db.transaction() as connection:
                await children.record_failure(connection, account, each.child, why=why)
        else:
            report.acted_on += 1
            async with world.db.transaction() as connection:
                await children.record_accepted(connection, account, each.child, now=world.now())


async def _delete(world: MachineWorld, provider: HasChildren, unneeded: Unneeded) -> None:
    if unneeded.machine_id is not None:  # Otherwise the operator's decision is what tells of it.
        why = f"{_name(unneeded)}: {unneeded.why}"
        async with world.db.transaction() as connection:
            await children.note_request(
                connection, unneeded.machine_id, why=why, actor=world.actor(NAME), now=world.now()
            )
    await provider.delete_child(unneeded.child)


def _name(unneeded: Unneeded) -> str:
    return f"{unneeded.child.kind} {unneeded.child.ref}"


LOOP = AccountLoop(NAME, EVERY, activate, lasts=timedelta(minutes=2))
