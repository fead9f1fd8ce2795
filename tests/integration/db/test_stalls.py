"""A database that stands still or vanishes: every statement ends, and what comes after it works."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import clock as database_clock
from control_plane.db.clock import ClockNotRead, DatabaseClock, PostgresTime
from control_plane.db.connect import connect
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.db.errors import is_database_trouble, sentence
from control_plane.db.fast import FastConnection
from control_plane.db.rows import read
from control_plane.world import utc_now
from tests.support.cases import case
from tests.support.proxy import Proxy, proxied

pytestmark = pytest.mark.database

SECONDS_MAX = 10.0
TENANT = UUID(int=1)
_ONE = text("SELECT 1")


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    async with proxied(database_url) as made:
        yield made


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.db.fast.ANSWER_SECONDS_MAX", 0.2)


@asynccontextmanager
async def _closing(db: Database) -> AsyncIterator[Database]:
    try:
        yield db
    finally:
        async with asyncio.timeout(SECONDS_MAX):
            await db.close()


Way = Callable[[], AbstractAsyncContextManager[Connection]]


def _ways(db: Database) -> dict[str, Way]:
    return {
        "transaction": db.transaction,
        "reading": db.reading,
        "transaction of a tenant": lambda: db.transaction(TENANT),
    }


async def _use(way: Way, *, then: Callable[[], None] | None = None, again: bool = False) -> None:
    """Read once, let something happen, and read `again` or only end."""
    limit = asyncio.timeout(SECONDS_MAX)
    try:
        async with limit, way() as connection:
            assert await read(connection, _ONE, int) == [1]
            if then is not None:
                then()
            if again:
                await read(connection, _ONE, int)
    finally:
        assert not limit.expired(), "only the test ended it"


async def test_a_statement_without_an_answer_ends_and_the_next_one_has_a_new_connection(proxy: Proxy) -> None:
    async with _closing(Database(proxy.url, role=Role.RECONCILER, pool_size=1, readers=1)) as db:
        for name, way in _ways(db).items():
            with case(name):
                with pytest.raises(TimeoutError) as timed_out:
                    await _use(way, then=proxy.flows.clear, again=True)
                assert is_database_trouble(timed_out.value)
                assert sentence(timed_out.value, db.place) == f"no answer from {db.place}"
                proxy.flows.set()
                await _use(way)


async def test_a_connection_that_owes_an_answer_is_not_used_again(proxy: Proxy) -> None:
    async with _closing(Database(proxy.url, role=Role.RECONCILER, pool_size=1, readers=1)) as db:
        async with db.reading() as connection:
            proxy.flows.clear()
            with pytest.raises(TimeoutError):
                await read(connection, _ONE, int)
            assert isinstance(connection, FastConnection)
            assert connection.closed
        proxy.flows.set()


async def test_a_connection_that_could_not_roll_back_is_not_used_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FastConnection._run_script

    async def refused(connection: FastConnection, sql: str) -> None:
        if sql == "ROLLBACK":
            raise RuntimeError("no rollback today")
        await run(connection, sql)

    monkeypatch.setattr(FastConnection, "_run_script", refused)
    whose = text("SELECT pg_backend_pid()")
    used = []

    async def fail() -> None:
        async with db.transaction() as connection:
            used.extend(await read(connection, whose, int))
            raise LookupError("what went wrong first")

    async with _closing(Database(database_url, role=Role.RECONCILER, pool_size=1, readers=1)) as db:
        with pytest.raises(LookupError):
            await fail()
        async with db.transaction() as connection:
            used.extend(await read(connection, whose, int))
    assert len(set(used)) == 2


async def test_a_commit_without_an_answer_ends(proxy: Proxy) -> None:
    async with _closing(Database(proxy.url, role=Role.RECONCILER, pool_size=1, readers=1)) as db:
        for name, way in _ways(db).items():
            if name == "reading":
                continue
            with case(name):
                with pytest.raises(TimeoutError):
                    await _use(way, then=proxy.flows.clear)
                proxy.flows.set()
                await _use(way)


async def test_a_server_that_accepts_and_never_answers_is_given_up(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.db.connect.CONNECT_SECONDS_MAX", 0.2)
    proxy.flows.clear()
    async with _closing(Database(proxy.url, role=Role.RECONCILER, pool_size=1, readers=1)) as db:
        for name, way in _ways(db).items():
            with case(name), pytest.raises(TimeoutError):
                await _use(way)


async def test_a_database_is_closed_at_once_although_the_server_stands_still(proxy: Proxy) -> None:
    db = Database(proxy.url, role=Role.RECONCILER, pool_size=1, readers=1)
    async with db.transaction() as connection:
        await read(connection, _ONE, int)
    proxy.flows.clear()
    async with asyncio.timeout(1):
        await db.close()
    proxy.flows.set()


async def test_a_connection_notices_a_server_that_vanished(proxy: Proxy) -> None:
    connection = await connect(proxy.url, settings={})
    try:
        found = connection._transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, probes = (
            found.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 30
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
    finally:
        connection.terminate()


def _host(ahead: timedelta) -> Callable[[], datetime]:
    return lambda: utc_now() + ahead


async def test_the_clock_is_the_databases_whatever_the_host_shows(db: Database) -> None:
    for ahead in (timedelta(), timedelta(hours=1), timedelta(hours=-1)):
        with case(ahead):
            clock = DatabaseClock(PostgresTime(db), host=_host(ahead))
            with pytest.raises(ClockNotRead) as unread:
                clock.now()
            assert is_database_trouble(unread.value), "a request gets a 503, and a loop tries again"
            await clock.reread()
            async with db.reading() as connection:
                (at,) = await read(connection, database_clock._READ, datetime)
            assert abs(clock.now() - at) < timedelta(seconds=2)
            assert abs(clock.difference() - ahead) < timedelta(seconds=2)
            assert (clock.refusal() is None) is (not ahead)
