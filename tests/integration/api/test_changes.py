"""Changes that another process makes reach this one's streams and keys: by notification, or by looking while there is none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import structlog
from sqlalchemy import text

from control_plane.api import streams
from control_plane.api.app import create_app
from control_plane.api.streams import HEARTBEAT_TICKS, POLL_TICKS
from control_plane.db import journal
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import LeaseId
from control_plane.domain.journal import Note
from control_plane.domain.status import CONTACT_LOST_AFTER
from control_plane.services import lease_overviews, principals
from control_plane.services.changes import Changes
from tests.integration.api.conftest import SETTINGS, Api, Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.open_stream import OpenStream
from tests.integration.api.problems import SOME_ID, hold
from tests.support.listening import Pauses, listener, running, until
from tests.support.stage import Stage

pytestmark = pytest.mark.database


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """Another process, which tells of its changes."""
    database = Database(database_url, role=Role.RECONCILER, pool_size=5, readers=3, rings=True)
    yield database
    await database.close()


US = Actor(ActorKind.LOOP, "test")
_CUT = text("""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'splitplane listener' AND datname = current_database()
""")


class Process:
    """One process of the API: an app with a listener and a clock of its own, which stands still until `pauses.end`."""

    def __init__(self, api: Api, url: str) -> None:
        self.listener_pauses, self.pauses = Pauses(), Pauses()
        self.changes = Changes(listener(url, self.listener_pauses))
        self.app = create_app(api.world, SETTINGS, changes=self.changes, sleep=self.pauses)

    async def ticks(self, count: int) -> None:
        """Let the clock of the streams go on."""
        for _ in range(count):
            await until(lambda: self.pauses.waiting)
            self.pauses.end()

    async def ticks_until(self, true: Callable[[], bool]) -> None:
        """Let the clock of the streams go on until something is the case."""
        async with asyncio.timeout(20):
            while not true():
                await self.ticks(1)

    def of(self, api: Api) -> Api:
        api.app = self.app
        return api


@asynccontextmanager
async def processes(api: Api, url: str, count: int = 1) -> AsyncIterator[list[Process]]:
    made = [Process(api, url) for _ in range(count)]
    async with running(made[0].changes.run), running(made[-1].changes.run if count > 1 else _nothing):
        await until(lambda: all(process.changes.listening for process in made))
        yield made


async def _nothing() -> None:
    """A second process that is not there."""


async def note(connection: Connection, api: Api, lease: str, event: Note) -> None:
    """A line of the lease's journal, as a loop writes it."""
    lease_id = LeaseId(UUID(hex=lease.removeprefix("le_")))
    await journal.note_lease(connection, lease_id, event=event, why="test", actor=US, now=api.clock.now())


async def test_a_line_is_sent_when_it_is_committed_without_any_clock(
    api: Api, db: Database, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    async with processes(api, database_url) as (process,):
        stream = OpenStream(process.app, acme.secret, lease)
        await stream.until(b"event: status")
        async with db.transaction() as connection:
            await note(connection, api, lease, Note.CHANGED)
        await stream.until(b"changed")
        assert process.pauses.asked == [1.0]
        await stream.leave()


async def test_a_line_that_is_committed_after_later_ones_is_not_skipped(
    api: Api, db: Database, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    listing = f"/v1/leases/{lease}/journal"
    async with processes(api, database_url) as (process,):
        stream = OpenStream(process.app, acme.secret, lease)
        async with db.transaction() as late:
            await note(late, api, lease, Note.FUNDING_WARNED)
            async with db.transaction() as early:
                await note(early, api, lease, Note.ENVELOPE_WARNED)
            await stream.until(b"envelope_warned")
            first = (await acme.http.get(listing, params={"limit": 1})).json()
            seen = (await acme.http.get(listing, params={"cursor": first["next_cursor"]})).json()
            assert [line["event"] for line in (*first["items"], *seen["items"])] == [
                "admitted",
                "envelope_warned",
            ]
            async with db.transaction() as early:
                await note(early, api, lease, Note.ENVELOPE_CLEARED)
            await stream.until(b"envelope_cleared")
            cursor = (await acme.http.get(listing, params={"limit": 2})).json()["next_cursor"]
            assert cursor
        await stream.until(b"funding_warned")
        assert stream.noted == ["admitted", "envelope_warned", "envelope_cleared", "funding_warned"]
        rest = (await acme.http.get(listing, params={"cursor": cursor})).json()["items"]
        assert [line["event"] for line in rest] == ["funding_warned", "envelope_cleared"]
        for sent in range(1, 4):  # A client that lost the stream in between gets the rest, once.
            last = [event.id for event in stream.events if event.name == "journal"][sent - 1]
            again = OpenStream(process.app, acme.secret, lease, after=last or "")
            await again.until(b"event: status")
            assert sorted([*stream.noted[:sent], *again.noted]) == sorted(stream.noted)
            await again.leave()
        await stream.leave()


async def test_many_streams_of_a_lease_share_a_read(
    api: Api, db: Database, acme: Tenant, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await acme.lease()
    async with processes(api, database_url) as (process,):
        streams = [OpenStream(process.app, acme.secret, lease) for _ in range(30)]
        for stream in streams:
            await stream.until(b"event: status")
        reads = 0
        watch = lease_overviews.watch

        async def counted(*arguments: object, **named: object) -> object:
            nonlocal reads
            reads += 1
            return await watch(*arguments, **named)  # type: ignore[arg-type]  # They are passed on as they came.

        monkeypatch.setattr(lease_overviews, "watch", counted)
        async with db.transaction() as connection:
            await note(connection, api, lease, Note.CHANGED)
        for stream in streams:
            await stream.until(b"changed")
            assert stream.noted == ["admitted", "changed"]
            await stream.leave()
        assert reads <= 2


async def test_what_happened_while_a_process_heard_nothing_is_sent_once_it_hears_again(
    api: Api, db: Database, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with processes(api, database_url) as (process,):
        stream = OpenStream(process.app, acme.secret, lease)
        await stream.until(b"event: status")
        async with owner.transaction() as connection:
            await connection.execute(_CUT)
        await until(lambda: not process.changes.listening)
        async with db.transaction() as connection:
            await note(connection, api, lease, Note.CHANGED)
        await process.ticks(POLL_TICKS)
        await stream.until(b"changed")  # By looking at the database.
        async with db.transaction() as connection:
            await note(connection, api, lease, Note.LABELLED)
        process.listener_pauses.end()
        await stream.until(b"labelled")  # Because of the new connection.
        await stream.leave()
    await owner.close()


async def test_a_stream_outlives_a_database_that_does_not_answer(
    api: Api, db: Database, acme: Tenant, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await acme.lease()
    watch = lease_overviews.watch

    async def away(*_: object, **__: object) -> object:
        raise ConnectionRefusedError("planted")

    async with processes(api, database_url) as (process,):
        stream = OpenStream(process.app, acme.secret, lease)
        await stream.until(b"event: status")
        monkeypatch.setattr(lease_overviews, "watch", away)
        async with db.transaction() as connection:
            await note(connection, api, lease, Note.CHANGED)
        await process.ticks(HEARTBEAT_TICKS + 1)
        await stream.until(b": heartbeat")
        assert not stream.task.done()
        monkeypatch.setattr(lease_overviews, "watch", watch)
        await process.ticks(4)
        await stream.until(b"changed")
        await stream.leave()


async def test_streams_send_heartbeats_while_the_database_stands_still(
    api: Api, acme: Tenant, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that waits for its answer must not keep a stream silent: proxies cut silent connections."""
    lease = await acme.lease()
    asked: list[str] = []

    def standing_still(what: str) -> Callable[..., Awaitable[object]]:
        async def ask(*_: object, **__: object) -> object:
            asked.append(what)
            return await asyncio.Event().wait()

        return ask

    process = Process(api, database_url)  # It hears of no change, so it looks for changes.
    stream = OpenStream(process.app, acme.secret, lease)
    await stream.until(b"event: status")
    monkeypatch.setattr(lease_overviews, "watch", standing_still("lease"))
    monkeypatch.setattr(principals, "of_keys", standing_still("keys"))
    await process.ticks_until(lambda: b": heartbeat" in stream.text)
    await process.ticks_until(lambda: stream.text.count(b": heartbeat") == 2)
    assert sorted(asked) == ["keys", "lease"], "each is asked once"
    await stream.leave()


async def test_a_status_that_changes_by_time_alone_is_sent(
    api: Api, stage: Stage, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    for _ in range(20):
        await stage.round()
        api.clock.advance(2)
    async with processes(api, database_url) as (process,):
        stream = OpenStream(process.app, acme.secret, lease)
        await stream.until(b'"state":"ready"')
        api.clock.advance(CONTACT_LOST_AFTER.total_seconds())
        await process.ticks(int(CONTACT_LOST_AFTER.total_seconds()) + 1)
        await stream.until(b'"unconfirmed":{')
        await stage.run("observe_machines")
        await process.ticks(6)
        await until(lambda: stream.events[-1].data.get("unconfirmed", 1) is None)
        await stream.leave()


# Revocation


async def _second(api: Api, tenant: Tenant) -> tuple[str, str]:
    """Another key of the tenant's: its id and its secret."""
    own = {"Authorization": f"Bearer {tenant.secret}"}
    issued = (await tenant.http.post("/v1/api-keys", json={"name": "second"}, headers=own)).json()
    return issued["key"]["id"], issued["secret"]


async def test_a_revocation_counts_at_once_here_and_in_the_other_process_and_ends_the_key_s_streams(
    api: Api, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    async with processes(api, database_url, 2) as (here, there):
        key, secret = await _second(api, acme)
        streams = [OpenStream(process.app, secret, lease) for process in (here, there)]
        for stream in streams:
            await stream.until(b"event: status")
        bystander = OpenStream(there.app, acme.secret, lease)
        await bystander.until(b"event: status")
        api.app = here.app
        assert (await api.client(acme.secret).delete(f"/v1/api-keys/{key}")).status_code == 204
        hold(await api.client(secret).get("/v1/organization"), "unauthenticated")
        for stream in streams:
            await until(stream.task.done)
            assert stream.events[-1] == ("end", None, {"reason": "revoked"})
        api.app = there.app
        hold(await api.client(secret).get("/v1/organization"), "unauthenticated")
        assert not bystander.task.done()
        await bystander.leave()
    # No clock moved: neither the streams' nor the one by which keys are forgotten.


@pytest.mark.parametrize("believes_to_hear", [False, True])
async def test_while_revocations_are_not_heard_a_key_is_remembered_for_a_second_and_its_streams_end(
    believes_to_hear: bool, api: Api, acme: Tenant, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Changes, "listening", believes_to_hear)
    lease = await acme.lease()
    deaf = Process(api, database_url)
    key, secret = await _second(api, acme)
    stream = OpenStream(deaf.app, secret, lease)
    await stream.until(b"event: status")
    await acme.http.delete(f"/v1/api-keys/{key}")
    api.app = deaf.app
    await deaf.ticks(1)
    await until(stream.task.done)
    assert stream.events[-1].data == {"reason": "revoked"}
    api.clock.advance(1)
    hold(await api.client(secret).get("/v1/organization"), "unauthenticated")


async def test_an_owner_that_was_read_before_the_revocation_is_not_remembered_after_it(
    api: Api, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await _second(api, acme)
    look_up = api.app.state.context.authenticator._look_up
    revoking: list[Callable[[], Awaitable[object]]] = [lambda: acme.http.delete(f"/v1/api-keys/{key}")]

    async def slow(given: str) -> object:
        owner = await look_up(given)
        if given == secret and revoking:
            await revoking.pop()()
        return owner

    monkeypatch.setattr(api.app.state.context.authenticator, "_look_up", slow)
    hold(await api.client(secret).get("/v1/organization"), "unauthenticated")


async def test_a_revoked_key_gives_nobody_access(
    api: Api, acme: Tenant, operator: Tenant, database_url: str
) -> None:
    """In a process that still remembers the key, because it heard nothing of the revocation."""
    deaf = Process(api, database_url)
    for tenant, path, body in (
        (acme, "/v1/api-keys", {"name": "more"}),
        (acme, "/v1/ssh-keys", {"name": "more", "public_key": SSH_KEY}),
        (operator, "/v1/operator/organizations", {"name": "more"}),
    ):
        key, secret = await _second(api, tenant)
        first, api.app = api.app, deaf.app
        client, api.app = api.client(secret), first
        assert (await client.get("/v1/organization")).status_code == 200
        own = {"Authorization": f"Bearer {tenant.secret}"}
        assert (await tenant.http.delete(f"/v1/api-keys/{key}", headers=own)).status_code == 204
        assert (await client.get("/v1/organization")).status_code == 200, "it still remembers the key"
        hold(await client.post(path, json=body), "unauthenticated")
        hold(await client.get(f"/v1/leases/le_{SOME_ID}/events"), "unauthenticated")
        assert (await tenant.http.post(path, json=body)).status_code == 201


async def test_streams_end_when_the_process_stops_and_new_ones_at_once(
    api: Api, acme: Tenant, database_url: str
) -> None:
    lease = await acme.lease()
    process = Process(api, database_url)
    streams = [OpenStream(process.app, acme.secret, lease) for _ in range(3)]
    for stream in streams:
        await stream.until(b"event: status")
    with structlog.testing.capture_logs() as lines:
        async with asyncio.timeout(20):
            await process.app.state.context.streams.stop()
            late = OpenStream(process.app, acme.secret, lease)
            await asyncio.gather(late.task, *(stream.task for stream in streams))
        for stream in (*streams, late):
            assert stream.text.endswith(b"retry: 2000\n\n")
            assert "end" not in {event.name for event in stream.events}
    assert {line["event"] for line in lines} == {"request"}


async def test_a_client_that_does_not_read_is_cut_when_its_stream_has_to_end(
    api: Api, acme: Tenant, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await acme.lease()
    process = Process(api, database_url)
    key, secret = await _second(api, acme)
    revoked, stopped = (OpenStream(process.app, each, lease) for each in (secret, acme.secret))
    for stream in (revoked, stopped):
        await stream.until(b"event: status")
        stream.reads.clear()
    await acme.http.delete(f"/v1/api-keys/{key}")
    await process.ticks_until(revoked.task.done)
    assert not stopped.task.done()
    monkeypatch.setattr(streams, "CLOSE_SECONDS_MAX", 0.01)
    await process.app.state.context.streams.stop()
    await stopped.task
