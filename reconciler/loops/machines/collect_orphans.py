"""Terminates orphans: machines that a provider lists under a launch key of ours and that no open record matches.

They arise when we crash between the provider's answer and our commit and the row is closed meanwhile, when a
provider reports a failure and launches anyway, or when it lists a machine as ended that still runs. Without this
loop, we would be charged for them indefinitely.

It is also the most dangerous loop: after a restore from a backup, every machine looks like an orphan. So it
waits (two lists, two minutes), terminates only a few per run and none on a frozen account, and refuses when too
much of a list looks orphaned (domain/orphan.py). It never touches machines of other installations.
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
        note = f"terminated: no open record has matched {orphan.launch_key} since {orphan.first_seen_at}"
        report.acted_on += 1
    async with world.db.transaction() as connection:
        await accounts.note_orphan(connection, account, ref, note=note, now=world.now())


LOOP = AccountLoop(NAME, timedelta(seconds=15), activate)
