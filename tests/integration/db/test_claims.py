"""Work in other hands is left alone; hands that died let go; keys and budgets are taken once."""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import accounts, idempotency, leases, machines, mesh
from control_plane.db.engine import Database
from control_plane.db.idempotency import KeyTaken, StoredAnswer
from control_plane.domain.ids import AccountName, MachineId, OrganizationId
from control_plane.domain.machine import Machine, MachineState, Step
from tests.integration.db.sample import OURS, A, B, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
ACCOUNT = AccountName(a_row("provider_accounts", OURS)["name"])
ONE, TWO, THREE = UUID(int=1), UUID(int=2), UUID(int=3)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def filled(own: Database) -> Database:
    """Twenty machines that have to go."""
    async with own.transaction() as connection:
        await fill(connection, A)
        await insert(
            connection,
            "machines",
            *(
                a_row("machines", A, number, state="ending", asked_at=START, provider_ref=f"ref-{number}")
                for number in range(2, 22)
            ),
        )
    return own


async def _claim(
    database: Database,
    token: UUID,
    *,
    now: datetime = START,
    limit: int = 12,
    until: asyncio.Event | None = None,
) -> list[Machine]:
    """Claim, and keep the transaction open until the event, when there is one."""
    async with database.transaction() as connection:
        claimed = await machines.claim(
            connection,
            ACCOUNT,
            MachineState.TERMINATING,
            token=token,
            until=now + 60 * SECOND,
            now=now,
            limit=limit,
            with_reference=True,
        )
        if until is not None:
            await until.wait()
        return claimed


def _ids(claimed: list[Machine]) -> set[MachineId]:
    return {machine.id for machine in claimed}


async def test_two_workers_claim_different_machines_without_waiting_for_each_other(filled: Database) -> None:
    done = asyncio.Event()
    first = asyncio.create_task(_claim(filled, ONE, until=done))
    await asyncio.sleep(0.1)
    # The first one's transaction is open: a claim that waited for it would run into the lock timeout.
    second = await _claim(filled, TWO)
    done.set()
    assert len(await first) == 12
    assert len(second) == 8
    assert not _ids(await first) & _ids(second)


async def test_a_claim_holds_until_it_expires_and_then_anyone_may_take_over(filled: Database) -> None:
    mine = await _claim(filled, ONE, limit=100)
    assert len(mine) == 20
    assert await _claim(filled, TWO, now=START + 59 * SECOND, limit=100) == []
    assert _ids(await _claim(filled, TWO, now=START + 60 * SECOND, limit=100)) == _ids(mine)


async def test_whoever_lost_a_claim_writes_nothing_any_more(filled: Database) -> None:
    (machine,) = await _claim(filled, ONE, limit=1)
    (again,) = await _claim(filled, TWO, now=START + 60 * SECOND, limit=1)
    assert again.id == machine.id
    async with filled.transaction() as connection:
        assert not await machines.record_step(
            connection, machine.id, Step.BOOTED, token=ONE, now=START, until=START
        )
        await machines.retry(connection, machine.id, token=ONE, due_at=START)
        await machines.terminate_asked(connection, machine.id, token=ONE, now=START, due_at=START)
        left = await rows(
            connection,
            text("SELECT claim_token, tries, step, terminate_asked_at FROM machines WHERE id = :id"),
            id=machine.id,
        )
        assert [tuple(row) for row in left] == [(TWO, 0, None, None)]
        assert await machines.record_step(
            connection, machine.id, Step.BOOTED, token=TWO, now=START, until=START
        )


async def test_every_step_holds_the_claim_on(filled: Database) -> None:
    (machine,) = await _claim(filled, ONE, limit=1)
    async with filled.transaction() as connection:
        for step in (Step.BOOTED, None):
            assert await machines.record_step(
                connection, machine.id, step, token=ONE, now=START, until=START + 90 * SECOND
            )
        shown = await machines.get(connection, machine.id)
        assert shown is not None
        assert shown.step is Step.BOOTED, "holding on shows no step and hides none"
    assert machine.id not in _ids(await _claim(filled, TWO, now=START + 60 * SECOND, limit=100))
    assert machine.id in _ids(await _claim(filled, THREE, now=START + 90 * SECOND, limit=100))


async def test_what_is_given_back_waits_for_its_turn(filled: Database) -> None:
    (machine,) = await _claim(filled, ONE, limit=1)
    async with filled.transaction() as connection:
        await machines.retry(connection, machine.id, token=ONE, due_at=START + 5 * SECOND)
    assert machine.id not in _ids(await _claim(filled, TWO, now=START + 4 * SECOND, limit=100))
    (again,) = await _claim(filled, THREE, now=START + 5 * SECOND, limit=100)
    assert (again.id, again.tries) == (machine.id, 1)


async def test_a_machine_whose_reference_is_not_known_yet_cannot_be_asked_to_end(filled: Database) -> None:
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE machines SET provider_ref = NULL"))
    assert await _claim(filled, ONE) == []


async def test_two_placers_take_different_leases(own: Database) -> None:
    async with own.transaction() as connection:
        await fill(connection, A)
        await insert(connection, "leases", *(a_row("leases", A, number) for number in range(2, 11)))

    async def take(until: asyncio.Event) -> set[UUID]:
        async with own.transaction() as connection:
            taken = await leases.take_placing(connection, now=START, limit=6)
            await until.wait()
            return {lease.id for lease in taken}

    done, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    first = asyncio.create_task(take(done))
    await asyncio.sleep(0.1)
    second = await take(at_once)
    done.set()
    assert (len(await first | second), len(await first & second)) == (10, 0)


# Turns and budgets.


async def test_one_replica_lists_an_account_per_turn(filled: Database) -> None:
    async def turn(now: datetime) -> bool:
        async with filled.transaction() as connection:
            return await accounts.take_listing(connection, ACCOUNT, now=now, due_next=now + 2 * SECOND)

    assert sorted(await asyncio.gather(*(turn(START) for _ in range(5)))) == [False] * 4 + [True]
    assert not await turn(START + SECOND)
    assert await turn(START + 2 * SECOND)


async def _reserve(database: Database, now: datetime, *, wait_max: float = 60) -> datetime | None:
    async with database.transaction() as connection:
        return await accounts.reserve(
            connection, ACCOUNT, "launch", spacing=12 * SECOND, wait_max=timedelta(seconds=wait_max), now=now
        )


async def test_replicas_that_ask_at_once_are_spaced_out_over_one_line(own: Database) -> None:
    starts = await asyncio.gather(*(_reserve(own, START) for _ in range(5)))
    assert sorted(start for start in starts if start) == [START + 12 * number * SECOND for number in range(5)]


async def test_a_turn_beyond_the_longest_wait_is_refused_and_takes_nothing(own: Database) -> None:
    starts = [await _reserve(own, START, wait_max=12) for _ in range(4)]
    assert starts == [START, START + 12 * SECOND, None, None]
    assert await _reserve(own, START + 12 * SECOND, wait_max=12) == START + 24 * SECOND


async def test_time_that_nobody_used_is_not_saved_up(own: Database) -> None:
    await _reserve(own, START)
    later = START + 3_600 * SECOND
    assert [await _reserve(own, later), await _reserve(own, later)] == [later, later + 12 * SECOND]


# Idempotency keys.


def an_answer(body: bytes) -> StoredAnswer:
    return StoredAnswer(b"digest", 201, body)


async def test_of_two_requests_with_one_key_the_second_is_told_and_its_effect_is_gone(
    filled: Database,
) -> None:
    first_may_commit, second_waits = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with filled.transaction() as connection:
            await idempotency.insert(connection, OrganizationId(A), "k", an_answer(b"first"), now=START)
            second_waits.set()
            await first_may_commit.wait()

    async def second() -> None:
        await second_waits.wait()
        async with filled.transaction() as connection:
            await insert(connection, "ssh_keys", a_row("ssh_keys", A, 2, name="of the second"))
            first_may_commit.set()
            await idempotency.insert(connection, OrganizationId(A), "k", an_answer(b"second"), now=START)

    one, two = await asyncio.gather(first(), second(), return_exceptions=True)
    assert one is None
    assert isinstance(two, KeyTaken)
    async with filled.transaction() as connection:
        stored = await idempotency.get(connection, OrganizationId(A), "k")
        assert stored == an_answer(b"first")
        left = await rows(connection, text("SELECT id FROM ssh_keys WHERE name = 'of the second'"))
        assert not left


async def test_two_organizations_may_use_one_key(own: Database) -> None:
    async with own.transaction() as connection:
        await fill(connection, A, B)
        for tenant in (A, B):
            await idempotency.insert(
                connection, OrganizationId(tenant), "k", an_answer(tenant.bytes), now=START
            )
        assert await idempotency.get(connection, OrganizationId(B), "k") == an_answer(B.bytes)


# Networks.


async def test_organizations_that_come_at_once_get_networks_of_their_own(own: Database) -> None:
    tenants = [UUID(int=number) for number in range(100, 106)]
    async with own.transaction() as connection:
        await insert(connection, "organizations", *(a_row("organizations", tenant) for tenant in tenants))

    async def number(tenant: UUID) -> int:
        async with own.transaction() as connection:
            return await mesh.network_number(connection, OrganizationId(tenant))

    assert sorted(await asyncio.gather(*map(number, tenants))) == [1, 2, 3, 4, 5, 6]
    assert await number(tenants[0]) == await number(tenants[0])


async def test_a_slot_that_became_free_is_given_again_and_none_twice(filled: Database) -> None:
    taken = a_row("peers", A)["slot"]
    async with filled.transaction() as connection:
        others = [MachineId(a_row("machines", A, number)["id"]) for number in (2, 3)]
        for other in others:
            slot = await mesh.slot_for(connection, OrganizationId(A), other)
            assert slot != taken
            peer = mesh.PeerRow(other, slot, f"10.0.0.{slot}", f"key {slot}")
            await mesh.put_peer(connection, OrganizationId(A), peer)
        assert await mesh.slot_for(connection, OrganizationId(A), others[0]) == 2
        assert await mesh.slot_for(connection, OrganizationId(A), others[1]) == 3
        await connection.execute(text("DELETE FROM peers WHERE slot = 1"))
        newcomer = MachineId(a_row("machines", A, 4)["id"])
        assert await mesh.slot_for(connection, OrganizationId(A), newcomer) == 1


async def test_peers_of_machines_that_have_to_go_are_forgotten_and_the_hub_is_told(filled: Database) -> None:
    going = MachineId(a_row("machines", A, 2)["id"])
    async with filled.transaction() as connection:
        await mesh.put_peer(connection, OrganizationId(A), mesh.PeerRow(going, 2, "10.0.0.2", "key"))
        await connection.execute(text("UPDATE networks SET synced_at = :now"), {"now": START})
        assert await mesh.drop_ended(connection) == 1
        left = await rows(connection, text("SELECT machine_id FROM peers"))
        assert [row.machine_id for row in left] == [a_row("machines", A)["id"]]
        assert len(await mesh.unsynced(connection, before=START, limit=10)) == 1


async def test_one_worker_at_a_time_speaks_to_the_hub_for_a_network(filled: Database) -> None:
    async def claim(token: UUID, now: datetime) -> bool:
        async with filled.transaction() as connection:
            return await mesh.claim(
                connection, OrganizationId(A), token=token, now=now, until=now + 60 * SECOND
            )

    assert await claim(ONE, START)
    assert not await claim(TWO, START + 59 * SECOND)
    assert await claim(TWO, START + 60 * SECOND)
    async with filled.transaction() as connection:
        await mesh.unclaim(connection, OrganizationId(A), token=ONE, synced_at=START)
        (row,) = await rows(connection, text("SELECT claim_token, synced_at FROM networks"))
    assert tuple(row) == (TWO, None)
