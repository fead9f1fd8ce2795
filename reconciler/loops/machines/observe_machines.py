"""Compares our records with one complete inventory listing per provider account.

One listing serves every machine of the account: a launch whose answer was lost is found by its launch key, a booting
machine shows its address, a terminating one its end, and a running one that it is still alive. `domain/sweep.py`
decides what a listing means. A failed listing means nothing, and neither does one of a provider that is not told to
look where a machine of ours may be. One that lacks too many of the expected machines freezes the account, and then no
absence is believed, until an operator permits it or, when few machines are missing, such lists last. A machine whose
agent reports is not given up. A list that comes after one that was asked for later is dropped.

A machine on every list costs no write: the time of the account's last listing is the evidence that it is alive.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from control_plane.db import accounts, agents, claims, downtimes, machines, orphans, powers
from control_plane.db import permits as permit_rows
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.downtime import CameUp
from control_plane.domain.evidence import NO_EVIDENCE, Evidence
from control_plane.domain.freeze import Freeze, MissingPermit
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import Machine, MachineEvent, MachineState
from control_plane.domain.outage import OFF
from control_plane.domain.sighting import LateRefusal, Sighting, may_be_refused
from control_plane.domain.sweep import (
    LOST_WINDOW,
    Loss,
    Swept,
    Timing,
    expected_and_missed,
    sweep,
    unlisted_regions,
)
from control_plane.outcomes import downtimes as downtime_outcomes
from control_plane.outcomes import machines as outcomes
from providers.base import Provider, ProviderError
from providers.optional import ListsSomeRegions, RefusesLater
from reconciler import account_faults, traced
from reconciler.figures import VANISHED
from reconciler.loop import AccountLoop, Report, each
from reconciler.worlds.machines import MachineWorld

NAME = "observe_machines"
EVERY = timedelta(seconds=2)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    VANISHED.labels(account)  # From the first activation on, so that the first loss is an increase.
    asked_at = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_listing(connection, account, now=asked_at, due_next=asked_at + EVERY):
            return Report()
    provider = world.accounts[account]
    try:
        listing = await _listing(provider)
    except ProviderError as error:
        why = f"{type(error).__name__}: {error}"
        await account_faults.store(world, account, accounts.record_failure, why)
        return Report(errors=[why])
    async with account_faults.marked(world, account, accounts.record_failure, "its list could not be stored"):
        before, records = await _records(world, account)
        if elsewhere := _elsewhere(provider, records):
            return await _incomplete(world, account, elsewhere)
        swept = await _record(world, account, records, listing, before=before, asked_at=asked_at)
    if swept is None:
        return Report(notes=["a list that was asked for later is stored already"])
    report = _report(swept, looked_at=len(records))
    for loss in await _to_lose(
        world, swept.losses
    ):  # One by one: leases that share a wallet would wait for each other.
        await each([loss], partial(_lose, world, account, report, asked_at), report)
    await each(swept.up, partial(_came_up, world, asked_at), report)
    return report


async def _came_up(world: MachineWorld, asked_at: datetime, up: CameUp) -> None:
    async with world.db.transaction() as connection:
        await downtime_outcomes.came_up(connection, up, actor=world.actor(NAME), now=asked_at)


async def _records(world: MachineWorld, account: AccountName) -> tuple[Freeze | None, Sequence[Machine]]:
    async with world.db.transaction() as connection:
        before = (await accounts.get(connection, account)).freeze
        return before, await machines.open_of_account(connection, account)


def _elsewhere(provider: Provider, records: Sequence[Machine]) -> Sequence[str]:
    return unlisted_regions(records, provider.lists) if isinstance(provider, ListsSomeRegions) else ()


async def _incomplete(world: MachineWorld, account: AccountName, regions: Sequence[str]) -> Report:
    why = (
        f"machines may exist in {', '.join(regions)}, and the account has another region now: set the former one again,"
        " and add an account for the other"
    )
    await account_faults.store(world, account, accounts.record_failure, why)
    return Report(errors=[why])


async def _record(
    world: MachineWorld,
    account: AccountName,
    records: Sequence[Machine],
    listing: Sequence[Sighting],
    *,
    before: Freeze | None,
    asked_at: datetime,
) -> Swept | None:
    """Hold a listing against the records and store what it means; None when it is older than one that is stored."""
    provider = world.accounts[account]
    # Nobody else needs the answer, and with every list it would take half of what a provider allows.
    refused = await _refused(provider) if may_be_refused(records, listing) else ()
    capabilities = provider.capabilities
    swept = sweep(
        records,
        listing,
        before,
        installation=world.installation,
        timing=Timing(capabilities.list_lag_seconds, capabilities.boot_seconds_max),
        asked_at=asked_at,
        refused=refused,
        evidence=await _evidence(world, account, _doubtful(records, listing), now=asked_at),
    )
    actor = world.actor(NAME)
    async with world.db.transaction() as connection:
        if not await accounts.take_listed(connection, account, asked_at=asked_at):
            return None
        await _write_machines(connection, account, swept, actor=actor, asked_at=asked_at)
        await _write_powers(connection, account, records, listing, asked_at=asked_at)
        await _write_account(connection, account, swept, asked_at=asked_at)
        steps = await traced.of_machines(world, connection, NAME, [move.id for move in swept.moves])
    for move in swept.moves:
        steps.note(move.id, move.moved.event)
    return swept


def _doubtful(records: Sequence[Machine], listing: Sequence[Sighting]) -> Sequence[MachineId]:
    """The machines that a list misses, or shows as anything but running."""
    running = {sighting.provider_ref for sighting in listing if sighting.state is ListedState.RUNNING}
    not_running = [
        machine.id
        for machine in records
        if machine.state is MachineState.VERIFIED and machine.provider_ref not in running
    ]
    return [*expected_and_missed(records, listing), *not_running]


async def _evidence(
    world: MachineWorld, account: AccountName, missed: Sequence[MachineId], *, now: datetime
) -> Evidence:
    """What else is known, when a list misses machines or shows them as down. Any other list needs no evidence."""
    if not missed:
        return NO_EVIDENCE
    async with world.db.reading() as connection:
        permits = await permit_rows.valid_for_missing(connection, now=now, account=account)
        granted = [
            MissingPermit(permit.frozen_since, permit.missing)
            for permit in permits
            if permit.frozen_since is not None and permit.missing is not None
        ]
        return Evidence(
            reported_at=await agents.reported_at(connection, missed),
            lost=await machines.count_vanished(connection, account, since=now - LOST_WINDOW),
            permit=granted[0] if granted else None,
            powers=await downtimes.powers(connection, account),
        )


async def _to_lose(world: MachineWorld, losses: Sequence[Loss]) -> list[Loss]:
    """The losses that may apply. A machine that its customer uses is kept although its provider lists it as failed,
    on every list, so what is known without locks is not decided again under locks each time.
    """
    failed = [loss.id for loss in losses if _for_nobody(loss)]
    if not failed:
        return list(losses)
    async with world.db.reading() as connection:
        kept = await claims.in_use(connection, failed)
    return [loss for loss in losses if not _for_nobody(loss) or loss.id not in kept]


def _for_nobody(loss: Loss) -> bool:
    """Whether it applies only to a machine that no customer uses."""
    return loss.failure.event is MachineEvent.FAILED and not loss.failure.overdue


async def _lose(
    world: MachineWorld, account: AccountName, report: Report, asked_at: datetime, loss: Loss
) -> None:
    async with world.db.transaction() as connection:
        actor = world.actor(NAME)
        if loss.stopped and await downtime_outcomes.kept_off(connection, loss.id, actor=actor, now=asked_at):
            return
        lost = await outcomes.fail(connection, loss.id, loss.failure, actor=actor, now=asked_at)
    report.acted_on += lost
    if loss.failure.event is MachineEvent.VANISHED:
        VANISHED.labels(account).inc(lost)


async def _listing(provider: Provider) -> list[Sighting]:
    return [
        Sighting(
            machine.provider_ref,
            machine.launch_key,
            machine.state,
            machine.native_status,
            machine.address,
            machine.ssh_port,
            machine.native_type,
            machine.eviction,
        )
        for machine in await provider.inventory()
    ]


async def _refused(provider: Provider) -> Sequence[LateRefusal]:
    """The launches that were refused late. Without an answer, the time that a boot may take decides in the end."""
    if not isinstance(provider, RefusesLater):
        return ()
    try:
        return await provider.refused_later()
    except ProviderError:  # The guard counts it, and the next activation asks again.
        return ()


async def _write_machines(
    connection: Connection, account: AccountName, swept: Swept, *, actor: Actor, asked_at: datetime
) -> None:
    if swept.written:
        await machines.lock(connection, swept.written)
    # A missed machine was last sighted by the previous listing, so misses are stored before this listing's time.
    await machines.record_missed(connection, swept.missed, asked_at=asked_at)
    await downtimes.begin(connection, swept.down, actor=actor, now=asked_at)
    await downtimes.waver(connection, swept.wavered, now=asked_at)
    await downtimes.reword(connection, swept.reworded)
    await machines.record_sighted(connection, swept.sighted, asked_at=asked_at)
    await machines.move(connection, swept.moves, actor=actor, now=asked_at)
    for moved in swept.readdressed:
        await machines.readdress(
            connection, moved.id, moved.address, moved.ssh_port, actor=actor, now=asked_at
        )
    for news in swept.notices:
        await machines.notice(connection, news, actor=actor, now=asked_at)
    for adoption in swept.adoptions:
        why = f"found at {account} by its launch key, while terminating"
        await machines.adopt(
            connection, adoption.id, adoption.provider_ref, actor=actor, why=why, now=asked_at
        )


async def _write_powers(
    connection: Connection,
    account: AccountName,
    records: Sequence[Machine],
    listing: Sequence[Sighting],
    *,
    asked_at: datetime,
) -> None:
    """Store how machines are listed whose customers wait for a reboot, a stop or a start."""
    watched = await powers.watched(connection, account)
    if not watched:
        return
    listed = {
        sighting.provider_ref: ListedState.STOPPED if sighting.state in OFF else sighting.state
        for sighting in listing
    }
    seen = [
        powers.Listed(machine.id, listed[machine.provider_ref])
        for machine in records
        if machine.id in watched and machine.provider_ref in listed
    ]
    await powers.record_listed(connection, seen, asked_at=asked_at)


async def _write_account(
    connection: Connection, account: AccountName, swept: Swept, *, asked_at: datetime
) -> None:
    await orphans.see(connection, account, swept.orphans, believed=swept.believed, asked_at=asked_at)
    await accounts.record_listing(
        connection, account, asked_at=asked_at, size=swept.size, foreign=swept.foreign, freeze=swept.freeze
    )


def _report(swept: Swept, *, looked_at: int) -> Report:
    acted = len(swept.moves) + len(swept.adoptions)
    notes = [f"frozen: {swept.freeze.why}"] if swept.freeze else []
    return Report(looked_at=looked_at, acted_on=acted, notes=notes)


LOOP = AccountLoop(
    NAME, EVERY, activate, wakes=("bootstrap_machines", "terminate_machines", "close_leases", "place_leases")
)
