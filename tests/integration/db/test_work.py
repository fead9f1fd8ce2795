"""Rows that a worker holds are left alone by the others until the hold runs out; keys are taken once."""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import accounts, idempotency, machine_deadlines, machines, mesh, waiting
from control_plane.db.engine import Database
from control_plane.db.idempotency import KeyTaken, StoredAnswer
from control_plane.domain.ids import AccountName, ClaimId, MachineId, NetworkId, OrganizationId
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.progress import Step
from tests.integration.db.sample import OURS, A, B, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
ACCOUNT = AccountName(a_row("provider_accounts", OURS)["name"])
ONE, TWO, THREE = UUID(int=1), UUID(int=2), UUID(int=3)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def filled(own: Database) -> Database:
    """Twenty machines that have to go, beside those of the sample."""
    async with own.transaction() as connection:
        await fill(connection, A)
        await insert(connection, "machines", *(_a_terminating_machine(number) for number in range(2, 22)))
    return own


def _a_terminating_machine(number: int) -> dict[str, object]:
    return a_row("machines", A, number, state="terminating", asked_at=START, provider_ref=f"ref-{number}")


async def _take(
    database: Database,
    token: UUID,
    *,
    now: datetime = START,
    limit: int = 12,
    state: MachineState = MachineState.TERMINATING,
    until: asyncio.Event | None = None,
) -> list[Machine]:
    """Take machines, and keep the transaction open until the event, when there is one."""
    async with database.transaction() as connection:
        taken = await machines.take(
            connection,
            ACCOUNT,
            state,
            token=token,
            until=now + 60 * SECOND,
            now=now,
            limit=limit,
            with_reference=True,
        )
        if until is not None:
            await until.wait()
        return taken


def _ids(taken: list[Machine]) -> set[MachineId]:
    return {machine.id for machine in taken}


async def test_two_workers_take_different_machines_without_waiting_for_each_other(filled: Database) -> None:
    done = asyncio.Event()
    first = asyncio.create_task(_take(filled, ONE, until=done))
    await asyncio.sleep(0.1)
    # The first one's transaction is open: a worker that waited for it would run into the lock timeout.
    second = await _take(filled, TWO)
    done.set()
    assert len(await first) == 12
    assert len(second) == 8
    assert not _ids(await first) & _ids(second)


async def test_a_worker_holds_what_it_took_until_the_hold_runs_out_and_then_anyone_may_take_it(
    filled: Database,
) -> None:
    mine = await _take(filled, ONE, limit=100)
    assert len(mine) == 20
    assert await _take(filled, TWO, now=START + 59 * SECOND, limit=100) == []
    assert _ids(await _take(filled, TWO, now=START + 60 * SECOND, limit=100)) == _ids(mine)


async def test_a_worker_that_lost_its_hold_writes_nothing_any_more(filled: Database) -> None:
    (machine,) = await _take(filled, ONE, limit=1)
    (again,) = await _take(filled, TWO, now=START + 60 * SECOND, limit=1)
    assert again.id == machine.id
    async with filled.transaction() as connection:
        assert not await machines.record_step(
            connection, machine.id, Step.BOOTED, token=ONE, now=START, until=START
        )
        await machines.retry(connection, machine.id, token=ONE, now=START, due_at=START)
        await machines.postpone(connection, machine.id, token=ONE, due_at=START, deadline_at=START)
        await machines.terminate_asked(connection, machine.id, token=ONE, now=START, due_at=START)
        left = await rows(
            connection,
            text(
                "SELECT work_token, tries, step, deadline_at, terminate_asked_at FROM machines WHERE id = :id"
            ),
            id=machine.id,
        )
        assert [tuple(row) for row in left] == [(TWO, 0, "placed", None, None)]
        assert await machines.record_step(
            connection, machine.id, Step.BOOTED, token=TWO, now=START, until=START
        )


async def test_every_step_holds_the_machine_on(filled: Database) -> None:
    (machine,) = await _take(filled, ONE, limit=1)
    async with filled.transaction() as connection:
        for step in (Step.BOOTED, None):
            assert await machines.record_step(
                connection, machine.id, step, token=ONE, now=START, until=START + 90 * SECOND
            )
        shown = await machines.get(connection, machine.id)
        assert shown is not None
        assert shown.step is Step.BOOTED, "holding on shows no step and hides none"
    assert machine.id not in _ids(await _take(filled, TWO, now=START + 60 * SECOND, limit=100))
    assert machine.id in _ids(await _take(filled, THREE, now=START + 90 * SECOND, limit=100))


async def test_what_is_given_back_waits_for_its_turn(filled: Database) -> None:
    (machine,) = await _take(filled, ONE, limit=1)
    async with filled.transaction() as connection:
        await machines.retry(connection, machine.id, token=ONE, now=START, due_at=START + 5 * SECOND)
    assert machine.id not in _ids(await _take(filled, TWO, now=START + 4 * SECOND, limit=100))
    (again,) = await _take(filled, THREE, now=START + 5 * SECOND, limit=100)
    assert (again.id, again.tries) == (machine.id, 1)


async def test_what_is_postponed_counts_no_failed_try_and_its_deadline_comes_no_nearer(
    filled: Database,
) -> None:
    now = START
    for number, (given, kept) in enumerate([(9, 9), (5, 9), (None, 9), (12, 12)]):
        token = UUID(int=100 + number)
        (machine,) = await _take(filled, token, now=now, limit=1)
        deadline_at = None if given is None else START + given * SECOND
        async with filled.transaction() as connection:
            await machines.postpone(connection, machine.id, token=token, due_at=now, deadline_at=deadline_at)
            (row,) = await rows(
                connection, text("SELECT tries, deadline_at FROM machines WHERE id = :id"), id=machine.id
            )
        assert tuple(row) == (0, START + kept * SECOND)


async def test_a_machine_whose_reference_is_not_known_yet_cannot_be_asked_to_end(filled: Database) -> None:
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE machines SET provider_ref = NULL"))
    assert await _take(filled, ONE) == []


async def test_a_machine_is_tried_once_more_after_its_deadline_and_then_not_set_up_any_more(
    filled: Database,
) -> None:
    late = START + 2 * SECOND
    async with filled.transaction() as connection:
        await connection.execute(
            text("""
            UPDATE machines SET state = 'bootstrapping', deadline_at = CAST(:deadline AS timestamptz)
            WHERE state = 'terminating'
            """),
            {"deadline": START + SECOND},
        )

    async def overdue() -> dict[MachineId, datetime | None]:
        async with filled.reading() as connection:
            found = await machine_deadlines.overdue(connection, now=late, limit=100)
        return {machine.id: machine.attended_until for machine in found}

    taken = await _take(filled, ONE, limit=5, state=MachineState.BOOTSTRAPPING)
    assert len(taken) == 5
    assert len(await overdue()) == 15, "who holds a machine at its deadline may finish"
    before, at, waits, *held = [machine.id for machine in taken]
    async with filled.transaction() as connection:
        await machines.retry(connection, before, token=ONE, now=START, due_at=late)
        await machines.retry(connection, at, token=ONE, now=START + SECOND, due_at=late)
        await machines.postpone(connection, waits, token=ONE, due_at=late)
    attended = await overdue()
    assert (attended[before], attended[at], attended[waits]) == (START, START + SECOND, None)
    tried = _ids(await _take(filled, TWO, now=late, limit=100, state=MachineState.BOOTSTRAPPING))
    assert len(tried) == 17, (
        "fifteen that nobody tried, one tried before its deadline, one that waited for us"
    )
    assert not tried & {at, *held}


async def test_a_machine_that_is_erased_is_not_terminated_before(filled: Database) -> None:
    async with filled.transaction() as connection:
        await connection.execute(
            text("UPDATE machines SET erasing_until = :until"), {"until": START + SECOND}
        )
    assert await _take(filled, ONE) == []
    assert len(await _take(filled, ONE, now=START + SECOND)) == 12


async def _intended(database: Database) -> set[MachineId]:
    async with database.transaction() as connection:
        return _ids(await machines.take_intended(connection, ACCOUNT, now=START, limit=100))


async def test_an_intent_is_asked_for_while_its_lease_claims_it(filled: Database) -> None:
    claimed, unclaimed = (MachineId(a_row("machines", tenant)["id"]) for tenant in (A, OURS))
    assert await _intended(filled) == {claimed}
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE claims SET ended_at = :now"), {"now": START})
    assert await _intended(filled) == set(), "its lease has released it"
    purposes = {
        "a pool": "purpose = 'pool', pool_id = (SELECT id FROM pools), reserved_for = NULL",
        "a lease that gets another machine": "purpose = 'pool', pool_id = NULL, reserved_for = :lease_id",
        "a cluster": "purpose = 'node', pool_id = NULL, reserved_for = NULL",
    }
    lease_id = a_row("leases", A)["id"]
    for bought_for, values in purposes.items():
        async with filled.transaction() as connection:
            await connection.execute(
                text(f"UPDATE machines SET {values} WHERE id = :id"), {"id": unclaimed, "lease_id": lease_id}
            )
        assert await _intended(filled) == {unclaimed}, bought_for


async def test_two_placers_take_different_leases(own: Database) -> None:
    async with own.transaction() as connection:
        await fill(connection, A)
        await insert(connection, "leases", *(a_row("leases", A, number) for number in range(2, 11)))

    async def take(until: asyncio.Event) -> set[UUID]:
        async with own.transaction() as connection:
            taken = await waiting.take_placing(connection, now=START, limit=6)
            await until.wait()
            return {lease.id for lease in taken}

    done, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    first = asyncio.create_task(take(done))
    await asyncio.sleep(0.1)
    second = await take(at_once)
    done.set()
    assert (len(await first | second), len(await first & second)) == (10, 0)


async def test_leases_that_go_before_those_that_are_due_are_bounded_and_the_foremost_of_their_organization(
    own: Database,
) -> None:
    later = START + 30 * SECOND
    async with own.transaction() as connection:
        await fill(connection, A)
        await connection.execute(text("UPDATE leases SET state = 'ending'"))
        await insert(connection, "organizations", a_row("organizations", B))
        for table in ("projects", "environments", "networks"):
            await insert(connection, table, a_row(table, B))
        wanted = [
            *((A, 10 + number, 20, START - (5 - number) * SECOND) for number in range(5)),
            *((A, 20 + number, 20 + number, later) for number in range(6)),
            (B, 30, 90, later),
        ]
        rows_of = [
            a_row("leases", of, id_, priority=priority, due_at=due) for of, id_, priority, due in wanted
        ]
        await insert(connection, "leases", *rows_of)
    ids = {row["id"]: number for row, (_, number, _, _) in zip(rows_of, wanted, strict=True)}

    async def take(limit: int) -> list[int]:
        async with own.transaction() as connection:
            return [ids[lease.id] for lease in await waiting.take_placing(connection, now=START, limit=limit)]

    first = await take(3)
    assert first[:3] == [10, 11, 12], "those that have been due for the longest time"
    assert sorted(first[3:]) == [23, 24, 25], "as many with a higher priority, the highest ones"
    everything = set(await take(100))
    assert everything == {*range(10, 15), *range(21, 26)}, (
        "neither equals that are not due, nor another organization's"
    )


# Turns.


async def test_one_replica_lists_an_account_per_turn(filled: Database) -> None:
    async def turn(now: datetime) -> bool:
        async with filled.transaction() as connection:
            return await accounts.take_listing(connection, ACCOUNT, now=now, due_next=now + 2 * SECOND)

    assert sorted(await asyncio.gather(*(turn(START) for _ in range(5)))) == [False] * 4 + [True]
    assert not await turn(START + SECOND)
    assert await turn(START + 2 * SECOND)


# Idempotency keys.


def an_answer(body: bytes) -> StoredAnswer:
    return StoredAnswer(b"digest", 201, body)


async def test_of_two_requests_with_one_key_the_second_is_refused_and_its_effect_rolled_back(
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


NETWORK = NetworkId(a_row("networks", A)["id"])


async def test_networks_that_are_joined_at_once_get_places_of_their_own_on_the_hub(own: Database) -> None:
    tenants = [UUID(int=number) for number in range(100, 106)]
    async with own.transaction() as connection:
        for table in ("organizations", "projects", "networks"):
            await insert(connection, table, *(a_row(table, tenant) for tenant in tenants))

    async def number(tenant: UUID, numbers: int = 100) -> int | None:
        async with own.transaction() as connection:
            network = NetworkId(a_row("networks", tenant)["id"])
            return await mesh.hub_number(connection, network, OrganizationId(tenant), numbers=numbers)

    assert sorted(filter(None, await asyncio.gather(*map(number, tenants[:-1])))) == [1, 2, 3, 4, 5]
    assert await number(tenants[0]) == await number(tenants[0])
    assert await number(tenants[-1], numbers=6) is None, "all places are taken"
    async with own.transaction() as connection:
        await connection.execute(text("DELETE FROM hub_networks WHERE number = 3"))
    assert await number(tenants[-1], numbers=6) == 3


def _a_claim(number: int) -> ClaimId:
    return ClaimId(a_row("claims", A, number)["id"])


async def _claims(database: Database, *numbers: int) -> None:
    """Open claims of leases of their own on machines of their own."""
    async with database.transaction() as connection:
        for number in numbers:
            lease, machine = a_row("leases", A, number), a_row("machines", A, number)
            await insert(connection, "leases", lease)
            claim = a_row("claims", A, number, lease_id=lease["id"], machine_id=machine["id"])
            await insert(connection, "claims", claim)


async def test_a_host_number_that_became_free_is_given_again_and_none_twice(filled: Database) -> None:
    await _claims(filled, 2, 3, 4)
    taken = a_row("peers", A)["host_number"]
    async with filled.transaction() as connection:
        for number in (2, 3):
            host_number = await mesh.host_number_for(connection, NETWORK, _a_claim(number))
            assert host_number != taken
            peer = mesh.Peer(_a_claim(number), host_number, f"10.0.0.{host_number}", f"key {host_number}")
            await mesh.put_peer(connection, OrganizationId(A), NETWORK, peer, now=START)
        assert await mesh.host_number_for(connection, NETWORK, _a_claim(2)) == 2
        assert await mesh.host_number_for(connection, NETWORK, _a_claim(3)) == 3
        await connection.execute(text("DELETE FROM peers WHERE host_number = 1"))
        assert await mesh.host_number_for(connection, NETWORK, _a_claim(4)) == 1


async def test_peers_of_claims_that_ended_are_forgotten_and_the_hub_is_due_for_an_update(
    filled: Database,
) -> None:
    await _claims(filled, 2)
    async with filled.transaction() as connection:
        peer = mesh.Peer(_a_claim(2), 2, "10.0.0.2", "key")
        await mesh.put_peer(connection, OrganizationId(A), NETWORK, peer, now=START)
        await connection.execute(text("UPDATE hub_networks SET synced_at = :now"), {"now": START})
        ended = text("UPDATE claims SET ended_at = :now WHERE id = :id")
        await connection.execute(ended, {"now": START, "id": _a_claim(2)})
        assert peer not in await mesh.peers(connection, NETWORK)
        assert await mesh.drop_ended(connection, now=START) == 1
        left = await rows(connection, text("SELECT claim_id FROM peers"))
        assert [row.claim_id for row in left] == [_a_claim(1)]
        assert len(await mesh.unsynced(connection, before=START, limit=10)) == 1
        assert not await mesh.empty(connection, before=START + SECOND, limit=10), "one machine is left in it"
        await connection.execute(ended, {"now": START, "id": _a_claim(1)})
        assert await mesh.drop_ended(connection, now=START) == 1
        assert [row.network_id for row in await mesh.empty(connection, before=START + SECOND, limit=10)] == [
            NETWORK
        ]
        assert not await mesh.empty(connection, before=START, limit=10), "only just empty"


async def test_one_worker_at_a_time_speaks_to_the_hub_for_a_network(filled: Database) -> None:
    async def take(token: UUID, now: datetime) -> int | None:
        async with filled.transaction() as connection:
            return await mesh.take(connection, NETWORK, token=token, now=now, until=now + 60 * SECOND)

    first = await take(ONE, START)
    assert first is not None
    assert first >= START.timestamp() * 1_000, "above what the hub has seen before a restore"
    assert await take(TWO, START + 59 * SECOND) is None
    second = await take(TWO, START + 60 * SECOND)
    assert second is not None
    assert second > first
    again = await take(TWO, START + 60 * SECOND)
    assert again is not None
    assert again > second, "also within one millisecond"
    async with filled.transaction() as connection:
        await mesh.give_back(connection, NETWORK, token=ONE, synced_at=START)
        (row,) = await rows(connection, text("SELECT work_token, synced_at FROM hub_networks"))
        assert tuple(row) == (TWO, None)
        await mesh.give_back(connection, NETWORK, token=TWO, synced_at=START)
        (row,) = await rows(connection, text("SELECT work_token, synced_at FROM hub_networks"))
        assert tuple(row) == (None, START)
