"""Rates of requests that several API processes keep together, by way of PostgreSQL."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import text

from control_plane.api import budgets
from control_plane.api.app import create_app
from control_plane.api.budgets import Budgets
from control_plane.api.limits import Limiter
from control_plane.db.engine import Database, Role
from control_plane.db.request_budgets import take
from control_plane.domain.ids import OrganizationId
from control_plane.domain.request_budget import Ask
from control_plane.services import administration, process
from control_plane.world import World, uuid7
from demo.ports import free_port
from tests.integration.api.conftest import SETTINGS, Api, Tenant
from tests.integration.db.sample import A, B, a_row, insert
from tests.support.clock import Clock
from tests.support.database import login_url
from tests.support.rows import rows

pytestmark = pytest.mark.database
FIRST, SECOND = uuid7(), uuid7()


@pytest.fixture
async def world(database_url: str, clock: Clock) -> AsyncIterator[World]:
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        for tenant in (A, B):
            await insert(connection, "organizations", a_row("organizations", tenant))
    await owner.close()
    db = Database(login_url(database_url, Role.API), role=Role.API, pool_size=2, readers=8)
    yield World(db, now=clock.now)
    await db.close()


def ask(*, taken: float = 0, wanted: float = 0, rate: float = 0.0, burst: float = 10) -> Ask:
    return Ask(A, OrganizationId(A), taken, wanted, rate, burst)


async def test_processes_take_from_one_bucket_until_it_is_empty(world: World) -> None:
    async with world.db.statement() as connection:
        first = await take(connection, FIRST, [ask(wanted=7)])
        second = await take(connection, SECOND, [ask(wanted=7)])
        third = await take(connection, FIRST, [ask(taken=4, wanted=7)])
    assert [answer.given[0].granted for answer in (first, second, third)] == [7, 3, 0]
    assert [answer.given[0].level for answer in (first, second, third)] == [3, 0, -4]
    assert [answer.processes for answer in (first, second, third)] == [1, 2, 2]


async def test_a_debt_is_bounded_by_the_burst_and_a_bucket_is_never_fuller_than_that(world: World) -> None:
    async with world.db.statement() as connection:
        assert (await take(connection, FIRST, [ask(taken=1_000)])).given[0].level == -10
        assert (await take(connection, FIRST, [ask(taken=-1_000)])).given[0].level <= 1_000
        assert (await take(connection, FIRST, [ask()])).given[0].level == 10


async def test_processes_that_ask_for_many_buckets_at_once_neither_deadlock_nor_take_too_much(
    world: World,
) -> None:
    pair = [ask(wanted=3), Ask(B, OrganizationId(B), 0, 3, 0.0, 10)]

    async def one(number: int) -> float:
        async with world.db.statement() as connection:
            answer = await take(connection, uuid7(), pair if number % 2 else pair[::-1])
        return sum(given.granted for given in answer.given)

    assert sum(await asyncio.gather(*map(one, range(20)))) == 20


async def test_a_process_that_is_gone_has_no_share(world: World, database_url: str) -> None:
    async with world.db.statement() as connection:
        assert (await take(connection, FIRST, [])).processes == 1
        assert (await take(connection, SECOND, [])).processes == 2
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await connection.execute(
            text("UPDATE api_processes SET seen_at = seen_at - interval '6 seconds' WHERE id = :id"),
            {"id": FIRST},
        )
    await owner.close()
    async with world.db.statement() as connection:
        assert (await take(connection, SECOND, [])).processes == 1


async def test_the_buckets_are_out_of_reach_but_for_the_one_function(world: World) -> None:
    async with world.db.statement() as connection:
        await take(connection, FIRST, [ask(wanted=7)])
        assert not await rows(connection, text("SELECT level FROM request_budgets"))
    for change in ("UPDATE request_budgets SET level = 1000", "DELETE FROM api_processes"):
        with pytest.raises(Exception, match="permission denied"):
            async with world.db.transaction(A) as connection:
                await connection.execute(text(change))


async def test_what_is_shared_is_not_worth_a_log_of_the_database(database_url: str) -> None:
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.reading() as connection:
        found = await rows(
            connection, text("SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'")
        )
    await owner.close()
    # What customers ask a console for is worth ten minutes.
    assert {row.relname for row in found} == {"request_budgets", "api_processes", "consoles"}


async def test_a_database_that_does_not_answer_costs_no_request_anything(
    world: World, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    limiter = Limiter(rate=10, burst=20)
    shared = Budgets(world, [limiter])
    key = (OrganizationId(A), A)
    await shared.share()
    assert limiter.take(key, clock.now().timestamp()).allowed

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(budgets, "ANSWER_SECONDS_MAX", 0.01)
    monkeypatch.setattr("control_plane.services.request_budgets.take", never)
    await shared.share()
    await shared.share()
    assert shared.failures == 2
    await clock.sleep(10)
    assert limiter.take(key, clock.now().timestamp()).remaining == 19, "it lives on its own share"


async def test_two_processes_that_share_a_database_share_a_callers_rate(api: Api, acme: Tenant) -> None:
    settings = replace(SETTINGS, organization_requests_per_second=0.001, organization_requests_burst=40)
    apps = [create_app(api.world, settings, sleep=api.sleep) for _ in range(2)]
    for app in apps * 2:
        await app.state.context.budgets.share()
    passed = 0
    for _ in range(4):
        for app in apps:
            transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
            headers = {"Authorization": f"Bearer {acme.secret}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://api", headers=headers
            ) as client:
                answers = [await client.get("/v1/organization") for _ in range(60)]
            passed += sum(answer.is_success for answer in answers)
            await app.state.context.budgets.share()
    assert passed == 40 + 20, "the burst, and the share that the second process gave out before it had asked"


@contextmanager
def _serving(database_url: str, **settings: str) -> Iterator[str]:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROVIDER_")} | {
        "SPLITPLANE_DATABASE_URL": login_url(database_url, Role.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{port}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
        "SPLITPLANE_LOG_LEVEL": "error",
    }
    started = subprocess.Popen([sys.executable, "-m", "control_plane", "serve"], env=environment | settings)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait(30)


async def _hammer(url: str, secret: str, until: float) -> int:
    """How many requests a process answers, sent as fast as they are answered."""
    passed = 0
    async with httpx.AsyncClient(
        base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=20
    ) as client:
        while time.monotonic() < until:
            answers = await asyncio.gather(*(client.get("/v1/organization") for _ in range(8)))
            assert {answer.status_code for answer in answers} <= {200, 429}
            passed += sum(answer.is_success for answer in answers)
    return passed


async def _until_ready(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        for _ in range(400):
            try:
                if (await client.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
    pytest.fail(f"{url} never was ready")


async def test_two_real_processes_let_a_caller_have_its_rate_and_at_most_two_bursts(
    database_url: str,
) -> None:
    rate, burst = 20, 40
    async with process.administrator(database_url) as world:
        made = await administration.bootstrap(world, "acme", top_up=None, gpu_quota=1)
    assert isinstance(made, administration.FirstOrganization)
    bounds = {
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": str(rate),
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": str(burst),
    }
    with _serving(database_url, **bounds) as first, _serving(database_url, **bounds) as second:
        await asyncio.gather(_until_ready(first), _until_ready(second))
        begun = time.monotonic()
        passed = sum(
            await asyncio.gather(*(_hammer(url, made.issued.secret, begun + 3) for url in (first, second)))
        )
        seconds = time.monotonic() - begun
    assert burst < passed <= rate * seconds + 2 * burst
