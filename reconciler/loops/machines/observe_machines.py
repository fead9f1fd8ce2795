"""Holds our records against one complete inventory listing per provider account.

One listing serves every machine that waits for something: a lost launch answer finds its machine by
launch key, a booting machine shows its address, an ending one its end, a running one that it still
lives. A listing that fails says nothing; one that misses too much of what should be there freezes
the account (domain/sweep.py), and then no absence is believed.

Steady machines cost no write: that the account was listed at a time, and did not miss them, is
their evidence.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import accounts, machines
from control_plane.domain.ids import AccountName, MachineId, ProviderRef
from control_plane.domain.machine import (
    FailReason,
    Machine,
    MachineEvent,
    MachineMove,
    MachineState,
    Step,
    step,
)
from control_plane.domain.transitions import Moved
from control_plane.domain.sighting import ListedState, concluded
from control_plane.domain.sweep import (
    Findings,
    Freeze,
    Listed,
    Record,
    absence_proves_gone,
    freeze_after,
    match,
    oddness,
)
from control_plane.services import attempts
from providers.base import Capabilities, ProviderError, Sighting
from reconciler.loop import AccountLoop, Report, World

NAME = "observe_machines"
EVERY = timedelta(seconds=2)
SETUP_MAX = timedelta(minutes=10)
"""From a machine's first address to a verified machine; then the attempt has failed."""


@dataclass
class Conclusions:
    """What one listing means for the records, sorted by how it is written down."""

    moves: list[MachineMove] = field(default_factory=list[MachineMove])
    adopted: list[tuple[Machine, ProviderRef]] = field(default_factory=list[tuple[Machine, ProviderRef]])
    failed: list[tuple[Machine, attempts.Failed]] = field(
        default_factory=list[tuple[Machine, attempts.Failed]]
    )
    sighted: list[MachineId] = field(default_factory=list[MachineId])
    missed: list[MachineId] = field(default_factory=list[MachineId])


async def activate(world: World, account: AccountName) -> Report:
    asked_at = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_listing(connection, account, now=asked_at, due_next=asked_at + EVERY):
            return Report()
    try:
        sightings = await world.accounts[account].inventory()
    except ProviderError as error:
        why = f"{type(error).__name__}: {error}"
        async with world.db.transaction() as connection:
            await accounts.record_failure(connection, account, why=why, now=world.now())
        return Report(errors=[why])

    async with world.db.transaction() as connection:
        before = await accounts.get(connection, account)
        records = {one.id: one for one in await machines.open_of_account(connection, account)}
    findings = match(
        map(_record, records.values()),
        [Listed(one.provider_ref, one.launch_key) for one in sightings],
        installation=world.installation,
        asked_at=asked_at,
    )
    odd = oddness(findings, len(sightings))
    freeze = freeze_after(before.freeze, odd, now=asked_at)
    believed = freeze is None
    if odd is not None and before.freeze is not None and believed:
        # The odd list persisted. One list proves no absence, so the next ones must be believed as well: the
        # freeze stays on record, with its age, until what is missing was written off and the lists look sane.
        freeze = Freeze(before.freeze.since, before.freeze.lists + 1, odd.why)
    conclusions = _conclude(
        records,
        findings,
        {one.provider_ref: one for one in sightings},
        world.accounts[account].capabilities,
        asked_at,
        believed=believed,
    )
    async with world.db.transaction() as connection:
        await _write(connection, world, account, conclusions, asked_at)
        await _write_listing(connection, account, findings, sightings, freeze, asked_at=asked_at)
    for machine, failed in conclusions.failed:
        async with world.db.transaction() as connection:
            await attempts.fail(
                connection, machine.lease_id, machine.id, failed, actor=world.actor(NAME), now=asked_at
            )
    acted = len(conclusions.moves) + len(conclusions.adopted) + len(conclusions.failed)
    notes = [f"frozen: {freeze.why}"] if freeze else []
    return Report(looked_at=len(records), acted_on=acted, notes=notes)


def _record(machine: Machine) -> Record:
    return Record(
        id=machine.id,
        launch_key=machine.launch_key,
        provider_ref=machine.provider_ref,
        state=machine.state,
        asked_at=machine.asked_at,
        sighted_at=machine.sighted_at,
        missed_since=machine.missed_since,
        missed_lists=machine.missed_lists,
    )


def _conclude(
    records: dict[MachineId, Machine],
    findings: Findings,
    sightings: dict[ProviderRef, Sighting],
    capabilities: Capabilities,
    asked_at: datetime,
    *,
    believed: bool,
) -> Conclusions:
    conclusions = Conclusions()
    for record, listed in findings.found:
        machine = records[record.id]
        sighting = sightings[ProviderRef(listed.provider_ref)]
        if sighting.state is ListedState.GONE:
            # Listed as ended is not listed as living: this list is no evidence that it ran until now.
            conclusions.missed.append(record.id)
        elif record.sighted_at is None or record.missed_since is not None:
            conclusions.sighted.append(record.id)
        _found(conclusions, machine, sighting, capabilities, asked_at)
    for record in findings.missed if believed else ():
        conclusions.missed.append(record.id)
        if absence_proves_gone(
            record,
            list_lag_seconds=capabilities.list_lag_seconds,
            boot_seconds_max=capabilities.boot_seconds_max,
            now=asked_at,
        ):
            _absent(conclusions, records[record.id])
    return conclusions


def _found(
    conclusions: Conclusions,
    machine: Machine,
    sighting: Sighting,
    capabilities: Capabilities,
    asked_at: datetime,
) -> None:
    event = concluded(machine.state, sighting.state, has_address=sighting.address is not None)
    if machine.provider_ref is None and machine.state is MachineState.TERMINATING:
        conclusions.adopted.append((machine, sighting.provider_ref))
    if event is None:
        return
    moved = step(machine.state, event)
    if not isinstance(moved, Moved):
        return
    says = f"the provider lists it as {sighting.native_status!r}"
    match event:
        case MachineEvent.FOUND:
            deadline = asked_at + timedelta(seconds=capabilities.boot_seconds_max)
            move = MachineMove(
                machine.id,
                machine.generation,
                moved,
                why="found in the inventory by its launch key",
                provider_ref=sighting.provider_ref,
                step=Step.LAUNCHED,
                deadline_at=deadline,
            )
            conclusions.moves.append(move)
        case MachineEvent.REACHABLE:
            move = MachineMove(
                machine.id,
                machine.generation,
                moved,
                provider_state=sighting.native_status,
                address=sighting.address,
                ssh_port=sighting.ssh_port,
                step=Step.BOOTED,
                deadline_at=asked_at + SETUP_MAX,
            )
            conclusions.moves.append(move)
        case MachineEvent.CONFIRMED_GONE:
            conclusions.moves.append(
                MachineMove(machine.id, machine.generation, moved, gone_evidence=says)
            )
        case MachineEvent.VANISHED:
            conclusions.failed.append((machine, attempts.Failed(event, FailReason.VANISHED, says)))
        case _:
            reason = FailReason.PROVIDER_REPORTED_FAILURE
            conclusions.failed.append((machine, attempts.Failed(event, reason, says)))


def _absent(conclusions: Conclusions, machine: Machine) -> None:
    since = machine.missed_since.isoformat(timespec="seconds") if machine.missed_since else "never listed"
    evidence = f"missing from {machine.missed_lists + 1} complete lists, the first at {since}"
    gone = step(machine.state, MachineEvent.CONFIRMED_GONE)
    if isinstance(gone, Moved):
        conclusions.moves.append(MachineMove(machine.id, machine.generation, gone, gone_evidence=evidence))
    elif isinstance(step(machine.state, MachineEvent.VANISHED), Moved):
        failed = attempts.Failed(MachineEvent.VANISHED, FailReason.VANISHED, evidence)
        conclusions.failed.append((machine, failed))


async def _write(
    connection: AsyncConnection,
    world: World,
    account: AccountName,
    conclusions: Conclusions,
    asked_at: datetime,
) -> None:
    actor = world.actor(NAME)
    # Misses are counted against the listing before this one, so they come before its time is recorded.
    await machines.record_missed(connection, conclusions.missed, asked_at=asked_at)
    await machines.record_sighted(connection, conclusions.sighted, asked_at=asked_at)
    await machines.move(connection, conclusions.moves, actor=actor, now=asked_at)
    for machine, ref in conclusions.adopted:
        why = f"found at {account} by its launch key, while ending"
        await machines.adopt(connection, machine.id, ref, actor=actor, why=why, now=asked_at)


async def _write_listing(
    connection: AsyncConnection,
    account: AccountName,
    findings: Findings,
    sightings: tuple[Sighting, ...],
    freeze: Freeze | None,
    *,
    asked_at: datetime,
) -> None:
    listed = {one.provider_ref: one for one in sightings}
    strangers = [
        (one, listed[ProviderRef(one.provider_ref)].native_status)
        for one in findings.strangers
        # A machine that ended and is still shown for a while is history, not an orphan.
        if listed[ProviderRef(one.provider_ref)].state is not ListedState.GONE
    ]
    await accounts.see_strangers(connection, account, strangers, asked_at=asked_at)
    await accounts.record_listing(
        connection,
        account,
        asked_at=asked_at,
        size=len(sightings),
        foreign=findings.foreign,
        freeze=freeze,
    )


LOOP = AccountLoop(
    NAME, EVERY, activate, wakes=("bootstrap_machines", "end_machines", "close_leases", "place_leases")
)
