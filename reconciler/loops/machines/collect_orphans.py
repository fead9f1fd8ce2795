"""Terminates machines that a provider lists under our launch key and that no open record claims.

How they come to be: we die between the provider's answer and our commit, and the row was closed
meanwhile; a provider reports failure and launches anyway; a provider lists a machine as ended that lives on.
Without this loop they are charged to us for ever.

It is also the most dangerous loop: after a restore from backup every machine looks like an orphan. So it
waits (two lists, two minutes), is bounded per run, does nothing on a frozen account, and refuses when
too much of a list looks orphaned (domain/orphan.py). Machines of other installations are left alone.
"""

from datetime import timedelta

from control_plane.db import accounts
from control_plane.domain import orphan as orphan_rules
from control_plane.domain.ids import AccountName
from control_plane.domain.orphan import Orphan
from providers.base import MachineNotFound, ProviderError
from reconciler.loop import AccountLoop, Report
from reconciler.worlds.machines import MachineWorld

NAME = "collect_orphans"


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        state = await accounts.get(connection, account)
        orphans = await accounts.orphans(connection, account)
    verdict = orphan_rules.to_terminate(
        orphans, listing_size=state.listing_size, frozen_why=state.frozen_why, now=now
    )
    report = Report(looked_at=len(orphans))
    if verdict.refused_why:
        report.errors.append(verdict.refused_why)
    for orphan in verdict.terminate:
        if world.orphans_dry_run:
            report.notes.append(f"would terminate {orphan.provider_ref} ({orphan.launch_key})")
        else:
            await _terminate(world, account, orphan, report)
    return report


async def _terminate(world: MachineWorld, account: AccountName, orphan: Orphan, report: Report) -> None:
    ref = orphan.provider_ref
    try:
        await world.accounts[account].terminate(ref)
    except MachineNotFound:
        note = "gone before it was terminated"
    except ProviderError as error:
        note = f"could not be terminated: {type(error).__name__}: {error}"
        report.errors.append(f"{ref}: {note}")
    else:
        note = (
            f"terminated: no open record claims {orphan.launch_key}, unclaimed since {orphan.first_seen_at}"
        )
        report.acted_on += 1
    async with world.db.transaction() as connection:
        await accounts.note_orphan(connection, account, ref, note=note, now=world.now())


LOOP = AccountLoop(NAME, timedelta(seconds=15), activate)
