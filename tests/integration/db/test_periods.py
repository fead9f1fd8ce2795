"""The database keeps closed periods as they are: it books elsewhere, refuses, and reopens for two people only."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db import ledger, organizations, periods, usage
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.db.rows import read_one
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import top_up
from control_plane.domain.money import Nano
from control_plane.domain.period import MAIN_ISSUER, Missing, Period, PeriodState
from control_plane.world import uuid7
from reconciler.loops.money import rate_usage
from reconciler.loops.money.meter_usage import intervals
from reconciler.world import World
from tests.integration.db.leased import Leased
from tests.integration.db.sample import A, a_row, insert
from tests.support.clock import START, Clock
from tests.support.rows import rows
from tests.support.values import PAID

pytestmark = pytest.mark.database

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
_SAMPLE = a_row("charges", A)["period"]


async def _close(database: Database, month: datetime, state: PeriodState = PeriodState.CLOSED) -> None:
    async with database.transaction() as connection:
        await periods.save(connection, Period(MAIN_ISSUER, month, state, START, "user_ada"))


async def _booked(connection: Connection, organization_id: UUID, moment: datetime) -> datetime:
    statement = text("SELECT booking_period(:organization_id, :moment)")
    found = await read_one(connection, statement, datetime, organization_id=organization_id, moment=moment)
    assert found is not None
    return found


@pytest.fixture
async def leased(db: Database, clock: Clock) -> Leased:
    return await Leased(db, clock).begin()


async def test_a_fact_is_booked_in_its_own_month_or_in_the_first_later_one_that_is_not_closed(
    leased: Leased, api_db: Database
) -> None:
    acme = await leased.organization()
    await _close(leased.db, OCTOBER)
    await _close(leased.db, NOVEMBER)
    await _close(leased.db, DECEMBER, PeriodState.CLOSING)
    async with api_db.reading(acme) as connection:
        assert await _booked(connection, acme, OCTOBER + timedelta(days=3)) == DECEMBER
        assert await _booked(connection, acme, DECEMBER) == DECEMBER
        assert await _booked(connection, acme, OCTOBER - timedelta(microseconds=1)) == datetime(
            2026, 9, 1, tzinfo=UTC
        )


async def _meter_an_hour(leased: Leased) -> None:
    """Meter the first hour of the one lease, whose machine its provider lists now."""
    now = leased.clock.now()
    async with leased.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET sighted_at = :now"), {"now": now})
        (metered,) = await usage.take_meters(connection, hour=now, limit=1)
        await usage.record_intervals(connection, [(metered, intervals(metered, now)[0])], now=now)


async def test_usage_that_is_rated_late_corrects_the_closed_month_and_says_which(leased: Leased) -> None:
    claim = await leased.admitted()
    leased.clock.advance((DECEMBER - START).total_seconds() + 3_600)
    await _meter_an_hour(leased)
    await _close(leased.db, NOVEMBER)
    await rate_usage.activate(World(db=leased.db, now=leased.clock.now, new_id=uuid7))
    booked = text("""
    SELECT c.started_at, c.period, t.effective_at, t.period AS posted_in
    FROM charges c JOIN transactions t ON t.key = 'charge:' || replace(c.id::text, '-', '') WHERE c.lease_id = :id
    """)
    async with leased.db.reading() as connection:
        (found,) = await rows(connection, booked, id=claim.lease_id)
    assert found.started_at.astimezone(UTC).month == 11
    assert found.effective_at == found.started_at
    assert found.period == found.posted_in == DECEMBER


async def test_what_is_missing_is_counted_for_the_platform_and_for_nobody_else(
    leased: Leased, api_db: Database
) -> None:
    claim = await leased.admitted()
    leased.clock.advance((DECEMBER - START).total_seconds() + 3_600)
    platform = OrganizationId(uuid7())
    async with leased.db.transaction() as connection:
        await organizations.insert(connection, platform, "us", platform=True, now=START)
    async with api_db.reading(platform) as connection:
        assert await periods.missing(connection, MAIN_ISSUER, OCTOBER) == Missing(0, 0)
        assert await periods.missing(connection, MAIN_ISSUER, NOVEMBER) == Missing(1, 0)
    await _meter_an_hour(leased)
    async with api_db.reading(platform) as connection:
        assert await periods.missing(connection, MAIN_ISSUER, NOVEMBER) == Missing(1, 1)
    async with api_db.reading(claim.organization_id) as connection:
        with pytest.raises(LookupError, match="platform"):
            await periods.missing(connection, MAIN_ISSUER, NOVEMBER)
        assert await ledger.balances(connection) == {}


async def test_a_lease_that_waits_with_its_bill_paused_keeps_no_month_open(
    leased: Leased, api_db: Database
) -> None:
    await leased.admitted()
    leased.clock.advance(3_600)
    await _meter_an_hour(leased)
    platform = OrganizationId(uuid7())
    async with leased.db.transaction() as connection:
        await organizations.insert(connection, platform, "us", platform=True, now=START)
    pause = text("UPDATE leases SET paused_at = ARRAY[metered_until + make_interval(secs => :later)]")
    for later, unmetered in ((0.5, 0), (1, 1), (0, 0)):
        async with leased.db.transaction() as connection:
            await connection.execute(pause, {"later": later})
        async with api_db.reading(platform) as connection:
            found = await periods.missing(connection, MAIN_ISSUER, NOVEMBER)
        assert found == Missing(unmetered, 1), later
    await rate_usage.activate(World(db=leased.db, now=leased.clock.now, new_id=uuid7))
    async with leased.db.transaction() as connection:
        await connection.execute(text("UPDATE leases SET billed_until = metered_until, state = 'ending'"))
    async with api_db.reading(platform) as connection:
        assert await periods.missing(connection, MAIN_ISSUER, NOVEMBER) == Missing(1, 0), "the rest of it"


async def test_a_period_cannot_be_closed_while_something_is_on_its_way_into_it(leased: Leased) -> None:
    acme = await leased.organization()
    locked = text("SELECT pg_try_advisory_xact_lock(period_lock_key('main', :month)) AS free")

    async def is_free(month: datetime) -> bool:
        async with leased.db.transaction() as connection:
            return bool((await rows(connection, locked, month=month))[0].free)

    async with leased.db.transaction() as connection:
        paid = top_up(acme, Nano(5), key="a", at=START, approval=PAID)
        await ledger.post(connection, [(uuid7(), paid)], now=START)
        assert not await is_free(NOVEMBER)
        assert await is_free(DECEMBER)
    assert await is_free(NOVEMBER)


@pytest.fixture
async def closed(owner: Database) -> AsyncIterator[Database]:
    """Rows of two tenants, in a month that is closed since."""
    await _close(owner, _SAMPLE)
    yield owner
    async with owner.transaction() as connection:
        for statement in (
            "ALTER TABLE periods DISABLE TRIGGER USER",
            "DELETE FROM periods WHERE issuer = 'main'",
            "ALTER TABLE periods ENABLE TRIGGER USER",
        ):
            await connection.execute(text(statement))


@pytest.mark.parametrize("table", ["charges", "transactions", "postings"])
async def test_a_row_in_a_closed_period_is_refused_whoever_writes_it(closed: Database, table: str) -> None:
    written = [a_row(table, A, 7)]
    if table == "postings":
        transaction_id = a_row("transactions", A)["id"]
        written = [
            a_row(table, A, transaction_id=transaction_id, line=line, amount_nano=amount)
            for line, amount in ((7, 7), (8, -7))
        ]
    with pytest.raises(DBAPIError, match=r"the period 2026-11 of issuer main is closed"):
        async with closed.transaction() as connection:
            await insert(connection, table, *written)


async def test_no_row_is_booked_before_its_month(owner: Database) -> None:
    early = a_row("charges", A, 8) | {"period": OCTOBER}
    with pytest.raises(DBAPIError, match="ck_charges_booked"):
        async with owner.transaction() as connection:
            await insert(connection, "charges", early)


_ASKED_BY_ADA = """
UPDATE periods SET reopening_requested_by = 'user_ada', reopening_requested_at = now(), reopening_reason = 'x'
WHERE issuer = 'main'
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE periods SET state = 'closing', changed_by = 'user_grace'", "two people"),
        ("UPDATE periods SET month = month + interval '31 days'", "stays its own|ck_periods_months"),
        ("DELETE FROM periods", "is kept"),
        ("TRUNCATE periods", "is kept"),
    ],
)
async def test_a_closed_period_is_neither_reopened_at_once_nor_forgotten(
    closed: Database, change: str, why: str
) -> None:
    with pytest.raises(DBAPIError, match=why):
        async with closed.transaction() as connection:
            await connection.execute(text(change))


async def test_whoever_asked_for_a_reopening_cannot_agree_to_it(closed: Database) -> None:
    agreed = text("UPDATE periods SET state = 'open', changed_by = 'user_ada' WHERE issuer = 'main'")
    async with closed.transaction() as connection:
        await connection.execute(text(_ASKED_BY_ADA))
    with pytest.raises(DBAPIError, match="two people"):
        async with closed.transaction() as connection:
            await connection.execute(agreed)


async def test_a_second_person_reopens_a_closed_period(closed: Database) -> None:
    async with closed.transaction() as connection:
        await connection.execute(text(_ASKED_BY_ADA))
        agree = "UPDATE periods SET state = 'closing', changed_by = 'user_grace' WHERE issuer = 'main'"
        await connection.execute(text(agree))
        await insert(connection, "transactions", a_row("transactions", A, 9))
