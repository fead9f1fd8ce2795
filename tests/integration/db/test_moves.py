"""One door for a state: guarded by state and generation, and by what the database itself refuses."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db import leases, machines
from control_plane.db.engine import Database
from control_plane.db.tables import metadata
from control_plane.domain.ids import LeaseId, MachineId, ProviderRef
from control_plane.domain.lease import LeaseEvent, LeaseMove, LeaseState
from control_plane.domain.lease import step as lease_step
from control_plane.domain.machine import MachineEvent, MachineMove, MachineState, Step
from control_plane.domain.machine import step as machine_step
from control_plane.domain.transitions import Moved
from tests.integration.db.sample import A, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows

pytestmark = pytest.mark.database
LEASE = LeaseId(a_row("leases", A)["id"])
INSTANCE = MachineId(a_row("machines", A)["id"])
NOW = START + timedelta(minutes=1)


@pytest.fixture
async def filled(own: Database) -> Database:
    """One placing lease with one intended machine."""
    async with own.transaction() as connection:
        await fill(connection, A)
    return own


def a_lease_move(state: LeaseState, event: LeaseEvent, *, seen: int = 1) -> LeaseMove:
    moved = lease_step(state, event)
    assert isinstance(moved, Moved)
    return LeaseMove(LEASE, seen, moved, why="a test")


def an_machine_move(
    state: MachineState, event: MachineEvent, *, seen: int = 1, **other: Any
) -> MachineMove:
    moved = machine_step(state, event)
    assert isinstance(moved, Moved)
    return MachineMove(INSTANCE, seen, moved, **other)


async def _move_lease(database: Database, move: LeaseMove) -> bool:
    async with database.transaction() as connection:
        return LEASE in await leases.move(connection, [move], actor="test", now=NOW)


async def _move_machine(database: Database, move: MachineMove) -> bool:
    async with database.transaction() as connection:
        return INSTANCE in await machines.move(connection, [move], actor="test", now=NOW)


async def _one(database: Database, statement: str) -> Any:
    async with database.reading() as connection:
        (row,) = await rows(connection, text(statement))
    return row


RELEASE = a_lease_move(LeaseState.PLACING, LeaseEvent.RELEASED)
ASK = an_machine_move(MachineState.INTENDED, MachineEvent.ASKED, asked_at=START)


async def test_of_eight_that_race_for_one_lease_one_wins_and_its_consequences_happen_once(
    filled: Database,
) -> None:
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE standings SET gpus_held = 50, held_nano = 50"))
    won = await asyncio.gather(*(_move_lease(filled, RELEASE) for _ in range(8)))
    assert sorted(won) == [False] * 7 + [True]
    lines = await _one(filled, "SELECT count(*) AS n FROM journal WHERE event = 'released'")
    assert lines.n == 1
    left = await _one(filled, "SELECT gpus_held, held_nano FROM standings")
    assert tuple(left) == (50 - a_row("leases", A)["gpu_count"], 50 - a_row("holds", A)["amount_nano"])


async def test_of_eight_that_race_for_one_machine_one_wins(filled: Database) -> None:
    won = await asyncio.gather(*(_move_machine(filled, ASK) for _ in range(8)))
    assert sorted(won) == [False] * 7 + [True]
    assert (await _one(filled, "SELECT count(*) AS n FROM journal WHERE event = 'asked'")).n == 1


@pytest.mark.parametrize("seen", [0, 2])
async def test_a_decision_on_another_generation_changes_nothing(filled: Database, seen: int) -> None:
    assert not await _move_lease(filled, a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED, seen=seen))
    stale = an_machine_move(MachineState.INTENDED, MachineEvent.ASKED, seen=seen, asked_at=START)
    assert not await _move_machine(filled, stale)
    assert (await _one(filled, "SELECT count(*) AS n FROM journal WHERE actor = 'test'")).n == 0


async def test_a_decision_on_another_state_changes_nothing(filled: Database) -> None:
    assert not await _move_lease(filled, a_lease_move(LeaseState.STARTING, LeaseEvent.RELEASED))
    assert not await _move_machine(
        filled, an_machine_move(MachineState.LAUNCHING, MachineEvent.ACCEPTED, asked_at=START)
    )


async def test_a_batch_moves_whom_it_can_and_says_who_they_are(filled: Database) -> None:
    async with filled.transaction() as connection:
        await insert(connection, "leases", a_row("leases", A, 2))
        other = LeaseId(a_row("leases", A, 2)["id"])
        stale = LeaseMove(other, 7, a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED).moved)
        fresh = a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED)
        assert await leases.move(connection, [stale, fresh], actor="test", now=NOW) == {LEASE}


async def test_ready_stamps_the_beginning_of_the_bill_and_leaving_it_the_end(filled: Database) -> None:
    assert await _move_lease(filled, a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED))
    assert await _move_lease(filled, a_lease_move(LeaseState.STARTING, LeaseEvent.VERIFIED, seen=2))
    row = await _one(filled, "SELECT ready_at, billed_until, attempts FROM leases")
    assert tuple(row) == (NOW, None, 1)
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE standings SET gpus_held = 50"))
        move = a_lease_move(LeaseState.READY, LeaseEvent.RELEASED, seen=3)
        await leases.move(connection, [move], actor="test", now=NOW + timedelta(hours=1))
    row = await _one(filled, "SELECT ready_at, billed_until, end_reason, end_why FROM leases")
    assert tuple(row) == (NOW, NOW + timedelta(hours=1), "released", "a test")


async def test_the_hold_of_a_lease_that_was_never_ready_comes_back_with_its_end(filled: Database) -> None:
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE standings SET gpus_held = 50, held_nano = 1000"))
        await connection.execute(text("UPDATE holds SET amount_nano = 400"))
    assert await _move_lease(filled, RELEASE)
    row = await _one(filled, "SELECT held_nano, amount_nano, released_at FROM standings JOIN holds ON true")
    assert tuple(row) == (600, 0, NOW)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("leases", "state"),
        ("leases", "end_reason"),
        ("machines", "state"),
        ("machines", "step"),
        ("transactions", "kind"),
        ("postings", "account_kind"),
    ],
)
async def test_a_word_that_the_domain_does_not_know_is_refused(
    filled: Database, table: str, column: str
) -> None:
    asked = {"asked_at": START} if table == "machines" else {}
    row = a_row(table, A, 9, **asked) | {column: "almost"}
    with pytest.raises(IntegrityError, match=f"ck_{table}_{column}_known"):
        async with filled.transaction() as connection:
            await insert(connection, table, row)


async def _set(database: Database, table: str, where: UUID, **values: Any) -> None:
    found = metadata.tables[table]
    async with database.transaction() as connection:
        await connection.execute(found.update().where(found.c.id == where).values(**values))


async def test_a_row_that_was_asked_for_closes_only_with_evidence(filled: Database) -> None:
    with pytest.raises(IntegrityError, match="gone_needs_evidence"):
        await _set(filled, "machines", INSTANCE, state="gone", asked_at=START)
    await _set(filled, "machines", INSTANCE, state="gone", asked_at=START, gone_evidence="it says so")


async def test_nothing_takes_effect_that_was_not_asked_for(filled: Database) -> None:
    with pytest.raises(IntegrityError, match="asked_before_effect"):
        await _set(filled, "machines", INSTANCE, state="launching")


async def test_a_lease_wants_one_machine_at_a_time(filled: Database) -> None:
    with pytest.raises(IntegrityError, match="uq_machines_wanted"):
        async with filled.transaction() as connection:
            await insert(connection, "machines", a_row("machines", A, 2))


async def test_two_open_rows_cannot_name_one_machine_and_a_closed_one_does_not_count(
    filled: Database,
) -> None:
    machine = {"provider_ref": "ref-1", "asked_at": START, "gone_evidence": "it says so"}
    async with filled.transaction() as connection:
        await insert(connection, "machines", a_row("machines", A, 2, state="gone", **machine))
        await insert(connection, "machines", a_row("machines", A, 3, state="ending", **machine))
    with pytest.raises(IntegrityError, match="uq_machines_provider_ref"):
        async with filled.transaction() as connection:
            await insert(connection, "machines", a_row("machines", A, 4, state="ending", **machine))


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"state": "ready"}, "ready_has_its_time"),
        ({"billed_until": START}, "billed_only_after_ready"),
        ({"meter_closed": True}, "meter_closes_after_the_end"),
    ],
)
async def test_a_lease_is_not_billed_out_of_order(
    filled: Database, values: dict[str, object], constraint: str
) -> None:
    with pytest.raises(IntegrityError, match=constraint):
        await _set(filled, "leases", LEASE, **values)


async def test_a_late_answer_is_kept_on_any_open_row_and_never_replaces_another(filled: Database) -> None:
    async def adopt(ref: str) -> bool:
        async with filled.transaction() as connection:
            return await machines.adopt(
                connection, INSTANCE, ProviderRef(ref), actor="test", why="late", now=NOW
            )

    await _set(filled, "machines", INSTANCE, state="ending", asked_at=START)
    assert await adopt("ref-1")
    assert not await adopt("ref-2")
    row = await _one(filled, "SELECT provider_ref, state FROM machines")
    assert tuple(row) == ("ref-1", "ending")
    assert (await _one(filled, "SELECT count(*) AS n FROM journal WHERE event = 'reference_learnt'")).n == 1


async def test_a_closed_row_adopts_nothing(filled: Database) -> None:
    await _set(filled, "machines", INSTANCE, state="gone", asked_at=START, gone_evidence="it says so")
    async with filled.transaction() as connection:
        assert not await machines.adopt(
            connection, INSTANCE, ProviderRef("ref-1"), actor="test", why="late", now=NOW
        )


async def test_a_move_lets_go_of_the_claim_and_writes_what_became_known(filled: Database) -> None:
    await _set(filled, "machines", INSTANCE, claim_token=UUID(int=1), claimed_until=NOW, tries=3)
    move = an_machine_move(
        MachineState.INTENDED,
        MachineEvent.ASKED,
        asked_at=START,
        host_key="ssh-ed25519 k",
        step=Step.PLACED,
    )
    assert await _move_machine(filled, move)
    row = await _one(
        filled,
        "SELECT claim_token, claimed_until, tries, host_key, asked_at, step_at, generation FROM machines",
    )
    assert tuple(row) == (None, None, 0, "ssh-ed25519 k", START, NOW, 2)
