"""Terminates orphans: machines that a provider lists under a launch key of ours and that no open record matches.

They arise when we crash between the provider's answer and our commit and the row is closed meanwhile, when a
provider reports a failure and launches anyway, or when it lists a machine as ended that still runs. Without this
loop, we would be charged for them indefinitely.

It is also the most dangerous loop: after a restore from a backup, machines of customers look like orphans. One without
a record is left to an operator, and disarms the account. With any other, it waits (two lists, two minutes), terminates
only a few per run, none on an account that is frozen or failing or that no operator armed, none that a record of
another account claims, and disarms the account when too much of a list looks orphaned (domain/orphan.py). The bound
per run holds for all replicas together. What it does not terminate it marks with the reason. An operator who has looked
may decide on single orphans: what is to end ends at once, what is left is not touched, and what is to be adopted is
given to its record when that can take it. Each one is looked at again, under a lock, before the provider is asked to
terminate it. It never touches machines of other installations.
"""

from collections.abc import Sequence
from datetime import timedelta

from control_plane.db import accounts
from control_plane.db import orphans as rows
from control_plane.domain import orphan as orphan_rules
from control_plane.domain.ids import AccountName
from control_plane.domain.orphan import Choice, HeldCode, Orphan, Verdict
from control_plane.outcomes import orphans as outcomes
from providers.base import MachineNotFound, ProviderError
from reconciler.loop import AccountLoop, Event, Report
from reconciler.worlds.machines import MachineWorld

NAME = "collect_orphans"
EVERY = timedelta(seconds=15)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_orphans(connection, account, now=now, due_next=now + EVERY):
            return Report()
        state = await accounts.get(connection, account)
        orphans = await rows.of_account(connection, account)
    report = Report(looked_at=len(orphans))
    adopted = [orphan for orphan in orphans if await _adopted(world, account, orphan, report)]
    orphans = [orphan for orphan in orphans if orphan not in adopted]
    verdict = orphan_rules.to_terminate(
        orphans,
        listing_size=state.listing_size,
        frozen_why=state.frozen_why,
        failing_why=state.failing_why,
        armed=state.armed_at is not None,
        disarmed_why=state.disarmed_why,
        dry_run=world.orphans_dry_run,
        now=now,
    )
    async with world.db.transaction() as connection:
        await rows.hold(connection, account, verdict.held)
        if verdict.disarm_why is not None and state.armed_at is not None:
            await accounts.trip(connection, account, armed_at=state.armed_at, why=verdict.disarm_why)
    _tell(orphans, verdict, report)
    for orphan in verdict.terminate:
        await _terminate(world, account, orphan, report)
    return report


def _tell(orphans: Sequence[Orphan], verdict: Verdict, report: Report) -> None:
    """Report what holds orphans back: a dry run as notes, a breaker once as an error."""
    for orphan in orphans:
        held = verdict.held.get(orphan.provider_ref)
        if held is None or held.code in _NOTHING_TO_TELL:
            continue
        if held.code in (HeldCode.NOT_ARMED, HeldCode.DRY_RUN):
            report.notes.append(f"would terminate {orphan.provider_ref} ({orphan.launch_key})")
        elif held.why not in report.errors:
            report.errors.append(held.why)


_NOTHING_TO_TELL = frozenset({HeldCode.WATCHED, HeldCode.NEXT_RUN, HeldCode.LEFT, HeldCode.ADOPTING})


async def _adopted(world: MachineWorld, account: AccountName, orphan: Orphan, report: Report) -> bool:
    """Give the orphan to its record, if an operator decided that and the record can take it."""
    if orphan.choice is not Choice.ADOPT or orphan.not_adopted_why is not None:
        return False
    boot = timedelta(seconds=world.accounts[account].capabilities.boot_seconds_max)
    now = world.now()
    async with world.db.transaction() as connection:
        taken = await outcomes.adopt_orphan(
            connection, account, orphan, deadline_at=now + boot, actor=world.actor(NAME), now=now
        )
    report.acted_on += taken
    return taken


async def _taken(world: MachineWorld, account: AccountName, orphan: Orphan) -> bool:
    """Store that it is about to be terminated, unless that was decided otherwise, or a record claimed it, since."""
    async with world.db.transaction() as connection:
        now = await rows.still(connection, account, orphan)
        if now is None or now.choice is not orphan.choice:
            return False
        await rows.ask(connection, account, orphan.provider_ref, now=world.now())
        return True


async def _terminate(world: MachineWorld, account: AccountName, orphan: Orphan, report: Report) -> None:
    ref = orphan.provider_ref
    if not await _taken(world, account, orphan):
        return
    try:
        await world.accounts[account].terminate(ref)
    except MachineNotFound:
        asked = orphan.terminate_asked_at
        note = (
            "gone before it was terminated" if asked is None else "gone after its termination was requested"
        )
    except ProviderError as error:
        note = f"could not be terminated: {type(error).__name__}: {error}"
        report.errors.append(f"{ref}: {note}")
    else:
        note = f"terminated: {_reason(orphan)}"
        report.acted_on += 1
        report.events.append(
            Event(
                "orphan_terminated",
                {
                    "account": account,
                    "provider_ref": ref,
                    "launch_key": orphan.launch_key,
                    "first_seen_at": orphan.first_seen_at.isoformat(),
                    "why": _reason(orphan),
                },
            )
        )
    async with world.db.transaction() as connection:
        await rows.note(connection, account, ref, note=note)


def _reason(orphan: Orphan) -> str:
    if orphan.choice is not None:
        return f"{orphan.decided_by} decided it at {orphan.decided_at}: {orphan.decided_why}"
    return f"no open record has matched {orphan.launch_key} since {orphan.first_seen_at}"


LOOP = AccountLoop(NAME, EVERY, activate)
