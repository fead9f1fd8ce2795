"""Ends machines that a provider shows under our launch key and that no open record claims.

How they come to be: we die between the provider's answer and our commit and the row was closed
meanwhile; a provider reports failure and launches anyway; a record was ended on a lie. Without this
loop they bill for ever.

It is also the most dangerous loop: after a restore from backup everything looks like an orphan. So it
waits (two lists, two minutes), is bounded per run, does nothing on a frozen account, and refuses when
too much of a list looks orphaned (domain/sweep.py). Machines of other installations are not looked at.
"""

from datetime import timedelta

from control_plane.db import accounts
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.sweep import orphans_to_end
from providers.base import InstanceNotFound, ProviderError
from reconciler.loop import AccountLoop, Report, World

NAME = "collect_orphans"


async def activate(world: World, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        state = await accounts.get(connection, account)
        strangers = await accounts.strangers(connection, account)
    verdict = orphans_to_end(
        strangers,
        listing_size=state.listing_size,
        frozen_why=state.freeze.why if state.freeze else None,
        now=now,
    )
    report = Report(looked_at=len(strangers))
    if verdict.refused_why:
        report.errors.append(verdict.refused_why)
    for orphan in verdict.end:
        ref = ProviderRef(orphan.provider_ref)
        if world.orphans_dry_run:
            report.notes.append(f"would end {ref} ({orphan.launch_key})")
            continue
        try:
            await world.accounts[account].terminate(ref)
        except InstanceNotFound:
            note = "gone before it was ended"
        except ProviderError as error:
            note = f"could not be ended: {type(error).__name__}: {error}"
            report.errors.append(f"{ref}: {note}")
        else:
            note = f"ended: no open record claims {orphan.launch_key}, unclaimed since {orphan.first_seen_at}"
            report.acted_on += 1
        async with world.db.transaction() as connection:
            await accounts.note_stranger(connection, account, ref, note=note, now=world.now())
    return report


LOOP = AccountLoop(NAME, timedelta(seconds=15), activate)
