"""Holds: what comes out of them when charges are posted, in whatever order replicas post them."""

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db import holds
from control_plane.db.engine import Database
from control_plane.db.holds import Posted
from control_plane.domain.ids import LeaseId
from control_plane.domain.money import Nano
from tests.integration.db.sample import A, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
FIRST, SECOND, THIRD = (LeaseId(a_row("leases", A, number)["id"]) for number in (1, 2, 3))

_HOLDS = text("SELECT lease_id, amount_nano, posted_nano, released_at FROM holds")
_HELD = text("SELECT held_nano FROM standings")


@pytest.fixture
async def held(own: Database) -> Database:
    """Two leases of one organization, with 100 nano-USD set aside for each."""
    async with own.transaction() as connection:
        await fill(connection, A)
        await insert(connection, "leases", a_row("leases", A, 2))
        await insert(connection, "leases", a_row("leases", A, 3))
        await insert(connection, "holds", a_row("holds", A, lease_id=SECOND))
        await connection.execute(text("UPDATE holds SET amount_nano = 100, due_at = NULL"))
        await connection.execute(text("UPDATE standings SET held_nano = 200"))
    return own


async def _use(database: Database, *posted: Posted) -> None:
    async with database.transaction() as connection:
        await holds.use(connection, posted, now=START)


async def _state(database: Database) -> tuple[dict[LeaseId, tuple[int, int, bool]], int]:
    """What is held, what was posted, and whether the hold is returned, by lease; and what the standing says."""
    async with database.reading() as connection:
        found = await rows(connection, _HOLDS)
        (standing,) = await rows(connection, _HELD)
    by_lease = {
        LeaseId(row.lease_id): (row.amount_nano, row.posted_nano, row.released_at is not None)
        for row in found
    }
    return by_lease, standing.held_nano


async def test_a_charge_comes_out_of_the_hold_and_the_last_one_returns_the_rest(held: Database) -> None:
    await _use(held, Posted(FIRST, Nano(30), final=False))
    assert await _state(held) == ({FIRST: (70, 30, False), SECOND: (100, 0, False)}, 170)
    await _use(held, Posted(FIRST, Nano(20), final=True))
    assert await _state(held) == ({FIRST: (0, 50, True), SECOND: (100, 0, False)}, 100)


async def test_a_hold_that_is_used_up_keeps_nothing_back(held: Database) -> None:
    await _use(held, Posted(FIRST, Nano(130), final=False))
    assert await _state(held) == ({FIRST: (0, 130, False), SECOND: (100, 0, False)}, 100)


async def test_charges_of_several_leases_come_out_at_once(held: Database) -> None:
    await _use(held, Posted(FIRST, Nano(10), final=False), Posted(SECOND, Nano(1), final=True))
    assert await _state(held) == ({FIRST: (90, 10, False), SECOND: (0, 1, True)}, 90)


async def test_a_charge_that_is_posted_after_the_last_one_is_counted_and_takes_nothing(
    held: Database,
) -> None:
    """Two replicas rate intervals of one lease at the same time, and the later one commits first."""
    await _use(held, Posted(FIRST, Nano(20), final=True))
    await _use(held, Posted(FIRST, Nano(30), final=False))
    assert await _state(held) == ({FIRST: (0, 50, True), SECOND: (100, 0, False)}, 100)


_ANEW = (
    "UPDATE holds SET released_at = NULL",
    "UPDATE holds SET released_at = released_at + interval '1 second'",
    "UPDATE holds SET posted_nano = posted_nano - 1",
    "UPDATE holds SET amount_nano = 1",
    f"UPDATE holds SET lease_id = '{THIRD}' WHERE lease_id = '{FIRST}'",
    "DELETE FROM holds",
    "TRUNCATE holds",
)


async def test_a_hold_is_resolved_once_whoever_writes_it(held: Database) -> None:
    """It cannot be opened again, resolved at another time, or take back what was posted; and it holds nothing. Nor can
    another one take its place, because its row stays with its lease.
    """
    await _use(held, Posted(FIRST, Nano(20), final=True), Posted(SECOND, Nano(0), final=True))
    before = await _state(held)
    for statement in _ANEW:
        with pytest.raises(IntegrityError, match="hold"):
            async with held.transaction() as connection:
                await connection.execute(text(statement))
    assert await _state(held) == before


async def test_a_hold_is_looked_at_from_when_its_lease_is_ready(held: Database) -> None:
    async with held.transaction() as connection:
        await connection.execute(text("UPDATE leases SET state = 'ready', ready_at = :at"), {"at": START})
        assert await holds.due(connection, now=START + timedelta(days=1), limit=9) == []
        await holds.ready(connection, SECOND, due_at=START + timedelta(minutes=2))
        await holds.ready(connection, FIRST, due_at=START + timedelta(minutes=1))
        assert await holds.due(connection, now=START, limit=9) == []
        assert await holds.due(connection, now=START + timedelta(minutes=1), limit=9) == [FIRST]
        assert await holds.due(connection, now=START + timedelta(minutes=2), limit=9) == [FIRST, SECOND]
        assert await holds.due(connection, now=START + timedelta(minutes=2), limit=1) == [FIRST]
