"""Notifications: what is written is told at the commit, and a listener comes back when its connection is lost."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import bell, journal
from control_plane.db.bell import LEASES, PLACING
from control_plane.db.engine import Database, Role
from control_plane.db.listen import PING_SECONDS, RECONNECT_CEILING
from control_plane.db.rows import write
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import ApiKeyId, LeaseId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.organization import OrganizationState
from control_plane.services.changes import Changes
from tests.integration.db.sample import a_row, insert
from tests.support.clock import Clock
from tests.support.listening import Pauses, listener, running, until
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """Another process, which tells of its changes."""
    database = Database(database_url, role=Role.RECONCILER, pool_size=5, readers=3, rings=True)
    yield database
    await database.close()


US = Actor(ActorKind.LOOP, "test")
_CLAIM_STEP = text("UPDATE claims SET step = :step WHERE lease_id = :lease_id")
_WAIT = text(
    "UPDATE leases SET waiting_since = CAST(:now AS timestamptz), waiting_why = :step WHERE id = :lease_id"
)
_MACHINE_STEP = text("""
UPDATE machines SET step = :step WHERE id IN (SELECT machine_id FROM claims WHERE lease_id = :lease_id)
""")
_NODE_STEP = text("""
INSERT INTO node_steps (node_id, step, organization_id, at, evidence)
SELECT id, :step, organization_id, CAST(:now AS timestamptz), '{}' FROM nodes WHERE lease_id = :lease_id
""")
_CLAIM = text("SELECT id, machine_id FROM claims WHERE lease_id = :lease_id")
_CUT = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'splitplane listener'"
    " AND datname = current_database()"
)
_CUT_BELL = text("""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'splitplane bell' AND datname = current_database()
""")


@pytest.fixture
async def stage(db: Database, clock: Clock) -> Stage:
    return await set_stage(db, clock)


class Heard:
    """What a listener was told."""

    def __init__(self, url: str) -> None:
        self.pauses = Pauses()
        self.leases: list[LeaseId] = []
        self.keys: list[ApiKeyId] = []
        self.subjects: list[UUID] = []
        self.organizations: list[tuple[OrganizationId, OrganizationState]] = []
        self.connections = 0
        self.changes = Changes(listener(url, self.pauses))
        self.changes.subscribe(
            lease=self.leases.append,
            api_key=self.keys.append,
            subject=self.subjects.append,
            organization=lambda organization_id, state: self.organizations.append((organization_id, state)),
            anything=self._connected,
        )

    def _connected(self) -> None:
        self.connections += 1

    async def until_told(self, *leases: Lease) -> None:
        await until(lambda: {lease.id for lease in leases} <= set(self.leases))

    async def begin(self, db: Database, lease: Lease, clock: Clock) -> None:
        """Wait until this database's process names leases: its first notification says that anything may have changed."""
        await until(lambda: self.changes.listening)
        while lease.id not in self.leases:
            before = self.connections
            await _note(db, lease, clock)
            await until(partial(self._told_more, before))
        self.leases.clear()

    def _told_more(self, before: int) -> bool:
        return bool(self.leases) or self.connections > before


async def _note(db: Database, lease: Lease, clock: Clock) -> None:
    async with db.transaction() as connection:
        await journal.note_lease(
            connection, lease.id, event=Note.CHANGED, why="test", actor=US, now=clock.now()
        )


async def _note_and_fail(db: Database, lease: Lease, clock: Clock) -> None:
    async with db.transaction() as connection:
        await journal.note_lease(connection, lease.id, event=Note.CHANGED, why="x", actor=US, now=clock.now())
        raise ZeroDivisionError


async def _be_a_node(database_url: str, lease: Lease) -> None:
    """Let the machine of a lease be on its way into a cluster."""
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    tenant = lease.organization_id
    place: dict[str, Any] = {"project_id": lease.project_id}
    wanted: dict[str, Any] = {"nodes": 1, "wait_timeout_seconds": 60, "state": "pending"}
    try:
        async with owner.transaction() as connection:
            claim = (await connection.execute(_CLAIM, {"lease_id": lease.id})).all()[0]
            await insert(connection, "clusters", a_row("clusters", tenant, overlay=1))
            pool = a_row("node_pools", tenant, environment_id=lease.environment_id, **wanted, **place)
            await insert(connection, "node_pools", pool)
            of_lease: dict[str, Any] = {
                "lease_id": lease.id,
                "claim_id": claim.id,
                "machine_id": claim.machine_id,
            }
            await insert(
                connection, "nodes", a_row("nodes", tenant, state="joining", number=2, **of_lease, **place)
            )
    finally:
        await owner.close()


async def test_every_write_that_a_customer_sees_is_told_at_its_commit(
    stage: Stage, db: Database, database_url: str, clock: Clock
) -> None:
    organization_id = await stage.organization()
    lease = await stage.lease(organization_id)
    # Each is changed once, after something else, to know when that has been told or has not.
    others = [await stage.lease(organization_id) for _ in range(10)]
    for loop in ("refresh_offers", "place_leases"):
        await stage.run(loop)
    unplaced = await stage.lease(organization_id)
    await _be_a_node(database_url, lease)
    heard = Heard(database_url)
    async with running(heard.changes.run):
        await heard.begin(db, others[0], clock)
        for name, changed, statement, step, told in (
            ("a new step of the claim", lease, _CLAIM_STEP, "mesh_joined", True),
            ("the same step of the claim", lease, _CLAIM_STEP, "mesh_joined", False),
            ("a new step of the machine", lease, _MACHINE_STEP, "connected", True),
            ("the same step of the machine", lease, _MACHINE_STEP, "connected", False),
            ("a step into a cluster", lease, _NODE_STEP, "prepared", True),
            ("a wait for stock", unplaced, _WAIT, "sold out", True),
            ("the same wait for stock", unplaced, _WAIT, "sold out", False),
        ):
            async with db.transaction() as connection:
                await write(connection, statement, lease_id=changed.id, step=step, now=clock.now())
            other = others.pop()
            await _note(db, other, clock)
            await heard.until_told(other)
            assert (changed.id in heard.leases) == told, name
            heard.leases.clear()
        async with db.transaction() as connection:
            for event in (Note.LABELLED, Note.CHANGED):
                await journal.note_lease(
                    connection, lease.id, event=event, why="test", actor=US, now=clock.now()
                )
            other = others.pop()
            await _note(db, other, clock)
            await heard.until_told(other)
            assert lease.id not in heard.leases, "nothing is told before its commit"
        await until(lambda: lease.id in heard.leases)
        heard.leases.clear()
        with pytest.raises(ZeroDivisionError):
            await _note_and_fail(db, lease, clock)
        other = others.pop()
        await _note(db, other, clock)
        await heard.until_told(other)
        assert lease.id not in heard.leases, "nothing is told of what was rolled back"


async def test_a_listener_whose_connection_is_cut_connects_again_and_says_so(
    stage: Stage, db: Database, database_url: str, clock: Clock
) -> None:
    lease = await stage.lease(await stage.organization())
    pauses, connected, told = Pauses(), list[None](), list[str]()
    listening = listener(database_url, pauses)
    listening.on_connected(lambda: connected.append(None))
    listening.on(LEASES, told.append)
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with running(listening.run):
        await until(lambda: pauses.asked == [PING_SECONDS])
        assert (listening.listening, len(connected)) == (True, 1)
        async with owner.transaction() as connection:
            await connection.execute(_CUT)
        await until(lambda: not listening.listening)
        await until(lambda: len(pauses.asked) == 2)
        assert pauses.asked[-1] <= RECONNECT_CEILING.total_seconds()
        pauses.end()
        await until(lambda: listening.listening)
        assert len(connected) == 2
        await _note(db, lease, clock)
        await until(lambda: told)
    assert not listening.listening
    await owner.close()


def _longer(told: list[str], before: int) -> bool:
    return len(told) > before


async def test_a_lease_that_was_created_is_told_to_whoever_places_it_and_no_other_change_is(
    stage: Stage, database_url: str, clock: Clock
) -> None:
    organization_id = await stage.organization()
    first = await stage.lease(organization_id)
    placing, leases = list[str](), list[str]()
    listening = listener(database_url, Pauses())
    listening.on(PLACING, placing.append)
    listening.on(LEASES, leases.append)
    ringing = Database(database_url, role=Role.RECONCILER, pool_size=2, readers=1, rings=True)
    async with running(listening.run):
        await until(lambda: listening.listening)
        for database in (stage.db, ringing):
            # The first notification of a process says that anything may have changed, also that a lease was created.
            while str(first.id) not in " ".join(leases):
                before = len(leases)
                await _note(database, first, clock)
                await until(partial(_longer, leases, before))
            leases.clear()
            await _note(database, first, clock)
            await until(lambda: str(first.id) in " ".join(leases))
            placing.clear()
            leases.clear()
        for notes in (1, 2):  # What a commit says of placing is sent behind what it says of leases.
            await _note(ringing, first, clock)
            await until(partial(_longer, leases, notes - 1))
        assert not placing
        created = await dataclasses.replace(stage, db=ringing).lease(organization_id)
        await until(lambda: placing)
        assert created.id != first.id
    await ringing.close()


async def test_each_of_many_concurrent_transactions_is_told(
    stage: Stage, database_url: str, clock: Clock
) -> None:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(12)]
    heard = Heard(database_url)
    few = Database(database_url, role=Role.RECONCILER, pool_size=2, readers=1, rings=True)
    async with running(heard.changes.run):
        await heard.begin(few, leases[0], clock)
        for _ in range(5):
            heard.leases.clear()
            await asyncio.gather(*(_note(few, lease, clock) for lease in leases))
            await heard.until_told(*leases)
    await few.close()


async def _cut_bell(owner: Database) -> None:
    async with owner.transaction() as connection:
        await connection.execute(_CUT_BELL)


async def _refuse_once(monkeypatch: pytest.MonkeyPatch) -> None:
    send = bell.Bell._send

    async def refused(self: bell.Bell, channel: str, payloads: list[str]) -> None:
        monkeypatch.setattr(bell.Bell, "_send", send)
        raise ConnectionResetError("planted")

    monkeypatch.setattr(bell.Bell, "_send", refused)


async def test_a_notification_that_cannot_be_sent_is_sent_later(
    stage: Stage, db: Database, database_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await stage.lease(await stage.organization())
    heard = Heard(database_url)
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    monkeypatch.setattr(bell, "RETRY_SECONDS", 0.0)
    async with running(heard.changes.run):
        await heard.begin(db, lease, clock)
        for cut in (partial(_cut_bell, owner), partial(_refuse_once, monkeypatch)):
            heard.leases.clear()
            await cut()
            await _note(db, lease, clock)
            await heard.until_told(lease)
    await owner.close()


def test_payloads_fit_into_a_notification() -> None:
    ids = {str(UUID(int=number)) for number in range(1_000)}
    payloads = bell.payloads(ids)
    assert {each for payload in payloads for each in payload.split()} == ids
    assert max(map(len, payloads)) < 8_000
    assert bell.payloads({*ids, bell.ANYTHING}) == [bell.ANYTHING]


async def test_a_listener_gives_up_a_connection_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr("control_plane.db.listen.ANSWER_SECONDS_MAX", 0.05)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    pauses = Pauses()
    unanswered = listener(f"postgresql://u@127.0.0.1:{server.sockets[0].getsockname()[1]}/none", pauses)
    async with running(unanswered.run):
        for pause in (0.2, 0.4, 0.8):
            await until(lambda: pauses.waiting)
            assert pauses.asked[-1] == pause
            assert not unanswered.listening
            pauses.end()
    server.close()
