"""Compares our records with one complete inventory listing per provider account.

One listing serves every machine of the account: a launch whose answer was lost is found by its launch key, a booting
machine shows its address, a terminating one its end, and a running one that it is still alive. `domain/sweep.py`
decides what a listing means. A failed listing means nothing; one that lacks too many of the expected machines
freezes the account, and then no absence is believed.

A machine on every list costs no write: the time of the account's last listing is the evidence that it is alive.
"""

from datetime import datetime, timedelta

from control_plane.db import accounts, machines
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.ids import AccountName
from control_plane.domain.sighting import Sighting
from control_plane.domain.sweep import Swept, Timing, sweep
from control_plane.outcomes import machines as outcomes
from providers.base import Provider, ProviderError
from reconciler.loop import AccountLoop, Report
from reconciler.worlds.machines import MachineWorld

NAME = "observe_machines"
EVERY = timedelta(seconds=2)


async def activate(world: MachineWorld, account: AccountName) -> Report:
    asked_at = world.now()
    async with world.db.transaction() as connection:
        if not await accounts.take_listing(connection, account, now=asked_at, due_next=asked_at + EVERY):
            return Report()
    provider = world.accounts[account]
    try:
        listing = await _listing(provider)
    except ProviderError as error:
        why = f"{type(error).__name__}: {error}"
        async with world.db.transaction() as connection:
            await accounts.record_failure(connection, account, why=why, now=world.now())
        return Report(errors=[why])

    async with world.db.transaction() as connection:
        before = (await accounts.get(connection, account)).freeze
        records = await machines.open_of_account(connection, account)
    capabilities = provider.capabilities
    swept = sweep(
        records,
        listing,
        before,
        installation=world.installation,
        timing=Timing(capabilities.list_lag_seconds, capabilities.boot_seconds_max),
        asked_at=asked_at,
    )
    actor = world.actor(NAME)
    async with world.db.transaction() as connection:
        await _write_machines(connection, account, swept, actor=actor, asked_at=asked_at)
        await _write_account(connection, account, swept, size=len(listing), asked_at=asked_at)
    for loss in swept.losses:
        async with world.db.transaction() as connection:
            await outcomes.fail(connection, loss.id, loss.failure, actor=actor, now=asked_at)
    return _report(swept, looked_at=len(records))


async def _listing(provider: Provider) -> list[Sighting]:
    return [
        Sighting(
            machine.provider_ref,
            machine.launch_key,
            machine.state,
            machine.native_status,
            machine.address,
            machine.ssh_port,
        )
        for machine in await provider.inventory()
    ]


async def _write_machines(
    connection: Connection, account: AccountName, swept: Swept, *, actor: Actor, asked_at: datetime
) -> None:
    if swept.written:
        await machines.lock(connection, swept.written)
    # A missed machine was last sighted by the previous listing, so misses are stored before this listing's time.
    await machines.record_missed(connection, swept.missed, asked_at=asked_at)
    await machines.record_sighted(connection, swept.sighted, asked_at=asked_at)
    await machines.move(connection, swept.moves, actor=actor, now=asked_at)
    for adoption in swept.adoptions:
        why = f"found at {account} by its launch key, while terminating"
        await machines.adopt(
            connection, adoption.id, adoption.provider_ref, actor=actor, why=why, now=asked_at
        )


async def _write_account(
    connection: Connection, account: AccountName, swept: Swept, *, size: int, asked_at: datetime
) -> None:
    await accounts.see_orphans(connection, account, swept.orphans, asked_at=asked_at)
    await accounts.record_listing(
        connection, account, asked_at=asked_at, size=size, foreign=swept.foreign, freeze=swept.freeze
    )


def _report(swept: Swept, *, looked_at: int) -> Report:
    acted = len(swept.moves) + len(swept.adoptions) + len(swept.losses)
    notes = [f"frozen: {swept.freeze.why}"] if swept.freeze else []
    return Report(looked_at=looked_at, acted_on=acted, notes=notes)


LOOP = AccountLoop(
    NAME, EVERY, activate, wakes=("bootstrap_machines", "terminate_machines", "close_leases", "place_leases")
)
