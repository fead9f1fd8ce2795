"""Samples are added by the ingest process alone, once each, read by lease and machine, and go with their hour."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db import samples
from control_plane.db.engine import Database, Role
from control_plane.db.samples import Cursor, NewSample
from control_plane.db.tables.telemetry import SAMPLE_SLOTS
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from tests.integration.db.sample import A, B, a_row, insert
from tests.support.clock import START
from tests.support.database import login_url
from tests.support.rows import rows

pytestmark = pytest.mark.database
HOUR = timedelta(hours=1)
DIGEST, NEXT = "5e" * 32, "6f" * 32


@pytest.fixture
async def url(database_url: str) -> str:
    """Two tenants with an agent each, whose credentials are known, and no samples."""
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in ("organizations", "projects", "claims", "agents"):
            for tenant in (A, B):
                more: dict[str, Any] = {}
                if (table, tenant) == ("agents", A):
                    more = {"digest": DIGEST, "next_digest": NEXT}
                await insert(connection, table, a_row(table, tenant, **more))
    await owner.close()
    return database_url


@pytest.fixture
async def ingest(url: str) -> AsyncIterator[Database]:
    database = Database(login_url(url, Role.INGEST), role=Role.INGEST, pool_size=2, readers=1)
    yield database
    await database.close()


@pytest.fixture
async def reconciler(url: str) -> AsyncIterator[Database]:
    database = Database(login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=2, readers=1)
    yield database
    await database.close()


@pytest.fixture
async def api(url: str) -> AsyncIterator[Database]:
    database = Database(login_url(url, Role.API), role=Role.API, pool_size=2, readers=1)
    yield database
    await database.close()


def a_sample(sequence: int, received_at: datetime = START, tenant: UUID = A, **other: Any) -> NewSample:
    agent = a_row("agents", tenant)
    return replace(
        NewSample(
            organization_id=OrganizationId(tenant),
            project_id=ProjectId(a_row("projects", tenant)["id"]),
            claim_id=ClaimId(agent["claim_id"]),
            lease_id=LeaseId(agent["lease_id"]),
            machine_id=MachineId(agent["machine_id"]),
            sequence=sequence,
            at=received_at,
            received_at=received_at,
            skew_ms=0,
            notable=False,
            document=json.dumps({"sequence": sequence}),
        ),
        **other,
    )


async def stored(db: Database, *of: NewSample) -> int:
    async with db.transaction() as connection:
        return await samples.insert(connection, of)


async def sequences(reconciler: Database) -> list[int]:
    async with reconciler.reading() as connection:
        found = await rows(connection, text("SELECT sequence FROM samples ORDER BY received_at, sequence"))
    return [row.sequence for row in found]


async def test_a_sample_that_is_delivered_again_is_stored_once_also_in_another_hour(
    ingest: Database, reconciler: Database
) -> None:
    assert await stored(ingest, a_sample(1), a_sample(2), a_sample(2)) == 2
    assert await stored(ingest, a_sample(2), a_sample(3)) == 1
    assert await stored(ingest, a_sample(1, START + HOUR), a_sample(3, START + HOUR)) == 0
    assert await stored(ingest, a_sample(1, tenant=B)) == 1
    assert await sequences(reconciler) == [1, 1, 2, 3]


async def test_the_ingest_process_learns_whose_a_credential_is_and_reads_no_sample(ingest: Database) -> None:
    await stored(ingest, a_sample(1))
    async with ingest.reading() as connection:
        found = await samples.senders(connection, [DIGEST, NEXT, "00" * 32])
    agent = a_row("agents", A)
    assert {sender.digest for sender in found} == {DIGEST, NEXT}
    assert {(sender.organization_id, sender.claim_id, sender.ended) for sender in found} == {
        (A, agent["claim_id"], False)
    }
    for statement in ("SELECT sequence FROM samples", "SELECT digest FROM agents", "DELETE FROM samples"):
        with pytest.raises(DBAPIError, match="permission denied"):
            async with ingest.transaction() as connection:
                await connection.execute(text(statement))


async def test_the_credential_of_an_ended_claim_is_known_as_ended_before_the_agents_loop_has_marked_it(
    ingest: Database, reconciler: Database
) -> None:
    async with reconciler.transaction() as connection:
        await connection.execute(text("UPDATE claims SET ended_at = now()"))
    async with ingest.reading() as connection:
        (found,) = await samples.senders(connection, [DIGEST])
    assert found.ended


async def test_the_last_sample_is_the_newest_by_its_own_time_not_the_one_that_came_last(
    ingest: Database, reconciler: Database
) -> None:
    await stored(ingest, a_sample(9, at=START), a_sample(1, tenant=B))
    await stored(ingest, a_sample(3, START + HOUR, at=START - timedelta(minutes=5)))  # From a spool.
    machines = [MachineId(a_row("agents", tenant)["machine_id"]) for tenant in (A, B)]
    lease = LeaseId(a_row("agents", A)["lease_id"])
    async with reconciler.reading() as connection:
        latest = await samples.latest(connection, machines)
        assert {(found.organization_id, found.sequence) for found in latest} == {(A, 9), (B, 1)}
        assert [found.sequence for found in await samples.latest_of_leases(connection, [lease])] == [9]
        window = await samples.window(connection, lease, START - timedelta(minutes=1))
        assert [(found.sequence, found.document) for found in window] == [(9, {"sequence": 9})]
        window = await samples.window(connection, lease, START - HOUR)
        assert [found.sequence for found in window] == [9, 3]


async def test_a_tenant_reads_the_samples_of_its_own_machines_alone(ingest: Database, api: Database) -> None:
    await stored(ingest, a_sample(1), a_sample(2, tenant=B))
    machines = [MachineId(a_row("agents", tenant)["machine_id"]) for tenant in (A, B)]
    for tenant, seen in ((A, 1), (B, 2)):
        async with api.reading(tenant) as connection:
            assert [found.sequence for found in await samples.latest(connection, machines)] == [seen]
            other = LeaseId(a_row("agents", B if tenant == A else A)["lease_id"])
            assert await samples.window(connection, other, START - HOUR) == []


async def test_walking_through_notable_samples_meets_each_once_in_the_order_of_arrival(
    ingest: Database, reconciler: Database
) -> None:
    await stored(
        ingest, *(a_sample(n, START + timedelta(minutes=n % 3), notable=n % 2 == 1) for n in range(1, 10))
    )
    met: list[int] = []
    cursor: Cursor | None = None
    before = START + timedelta(minutes=2)
    for _ in range(9):
        async with reconciler.reading() as connection:
            page = await samples.notable_since(connection, cursor, before=before, limit=2)
        if not page:
            before = START + HOUR
            continue
        met += [found.sequence for found in page]
        cursor = Cursor(page[-1].received_at, page[-1].claim_id, page[-1].sequence)
    assert met == [3, 9, 1, 7, 5]


async def test_a_partition_is_emptied_when_all_of_its_hours_are_over_and_never_earlier(
    ingest: Database, reconciler: Database
) -> None:
    for hour in range(SAMPLE_SLOTS - 1):
        await stored(ingest, a_sample(1 + hour, START + hour * HOUR))
        async with reconciler.transaction() as connection:
            await samples.empty(connection, now=START + hour * HOUR, kept_hours=2)
        assert await sequences(reconciler) == [n for n in range(1, hour + 2) if n > hour - 2]
    kept = await sequences(reconciler)
    for wrong in (
        -3 * HOUR,
        2 * HOUR,
    ):  # A clock that is wrong may keep too much, and takes nothing that is young.
        async with reconciler.transaction() as connection:
            await samples.empty(connection, now=START + (SAMPLE_SLOTS - 2) * HOUR + wrong, kept_hours=2)
    assert await sequences(reconciler) == [n for n in kept if n > 4]


async def test_after_a_time_without_the_loop_the_ring_goes_on_and_is_emptied_when_its_turn_comes(
    ingest: Database, reconciler: Database
) -> None:
    late = START + SAMPLE_SLOTS * HOUR
    await stored(ingest, a_sample(1), a_sample(2, late))
    async with reconciler.transaction() as connection:
        assert await samples.empty(connection, now=late, kept_hours=2) == 0, "the slot holds a fresh sample"
    async with reconciler.transaction() as connection:
        assert await samples.empty(connection, now=late + 3 * HOUR, kept_hours=2) == 1
    assert await sequences(reconciler) == []


async def test_nobody_comes_to_a_partition_around_the_rules_of_the_table(url: str) -> None:
    for role in (Role.API, Role.RECONCILER, Role.INGEST):
        connection = await asyncpg.connect(login_url(url, role), server_settings={"role": role.value})
        try:
            for statement in ("SELECT 1 FROM samples_0", "DELETE FROM samples_0", "TRUNCATE samples_0"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
        finally:
            await connection.close()


async def test_a_reader_passes_no_sample_of_a_transaction_that_stalls(
    ingest: Database, reconciler: Database
) -> None:
    """Without the lock of `enter` it reads the later samples, and never comes back for those that are committed then."""
    cursor, seen = Cursor(START - HOUR, ClaimId(UUID(int=0)), 0), list[int]()

    async def walk(now: datetime) -> None:
        nonlocal cursor
        async with reconciler.reading() as connection:
            before = await samples.settled(connection, now=now)
            for found in await samples.notable_since(connection, cursor, before=before, limit=10):
                seen.append(found.sequence)
                cursor = Cursor(found.received_at, found.claim_id, found.sequence)

    async with ingest.transaction() as stalled:
        await samples.enter(stalled, now=START)
        await samples.insert(stalled, [a_sample(1, START, notable=True)])
        async with ingest.transaction() as quick:
            await samples.enter(quick, now=START + HOUR / 2)
            await samples.insert(quick, [a_sample(2, START + HOUR / 2, notable=True)])
        await walk(START + HOUR)
        assert seen == [], "the second one is committed, and the first one is not"
    await walk(START + HOUR)
    assert seen == [1, 2]
    async with reconciler.reading() as connection:
        settled = await samples.settled(connection, now=START + HOUR)
    assert settled == START + HOUR - samples.SETTLED_AFTER, "nobody writes"


async def test_samples_are_stamped_once_readers_know_that_they_are_being_added(
    ingest: Database, reconciler: Database
) -> None:
    """What waited in the queue of the ingest process has no time that readers have passed already."""
    times = iter([START + HOUR, START + HOUR + timedelta(seconds=1)])
    async with ingest.transaction() as connection:
        assert await samples.receive(connection, [a_sample(1, START)], now=lambda: next(times)) == 1
        async with reconciler.reading() as reader:
            assert await samples.settled(reader, now=START + 2 * HOUR) == START + HOUR
    async with reconciler.reading() as reader:
        (row,) = await rows(reader, text("SELECT received_at FROM samples"))
    assert row.received_at == START + HOUR + timedelta(seconds=1)
