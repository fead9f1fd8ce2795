"""A state changes only by `move`, which state and generation guard, and so do the database's own checks."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db import leases, machines
from control_plane.db.engine import Database
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LeaseId, MachineId, ProviderRef
from control_plane.domain.lease import LeaseEvent, LeaseMove, LeaseState
from control_plane.domain.lease import step as lease_step
from control_plane.domain.machine import MachineEvent, MachineMove, MachineOrder, MachineState, Purpose
from control_plane.domain.machine import step as machine_step
from control_plane.domain.money import Nano
from control_plane.domain.progress import Step
from control_plane.domain.proof import Record, Tier
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines as outcomes
from tests.integration.db.sample import OURS, A, B, a_row, fill, insert
from tests.support.clock import START
from tests.support.rows import rows
from tests.support.values import a_key

pytestmark = pytest.mark.database
LEASE = LeaseId(a_row("leases", A)["id"])
MACHINE = MachineId(a_row("machines", A)["id"])
NOW = START + timedelta(minutes=1)
ACTOR = Actor(ActorKind.CUSTOMER, "test", "request-1")


@pytest.fixture
async def filled(own: Database) -> Database:
    """One placing lease with a claim on one intended machine, and a machine that nobody claims."""
    async with own.transaction() as connection:
        await fill(connection, A)
    return own


def a_lease_move(state: LeaseState, event: LeaseEvent, *, seen: int = 1) -> LeaseMove:
    moved = lease_step(state, event)
    assert isinstance(moved, Moved)
    return LeaseMove(LEASE, seen, moved, why="a test")


def a_machine_move(state: MachineState, event: MachineEvent, *, seen: int = 1, **other: Any) -> MachineMove:
    moved = machine_step(state, event)
    assert isinstance(moved, Moved)
    return MachineMove(MACHINE, seen, moved, **other)


async def _move_lease(database: Database, move: LeaseMove) -> bool:
    async with database.transaction() as connection:
        return LEASE in await leases.move(connection, [move], actor=ACTOR, now=NOW)


async def _move_machine(database: Database, move: MachineMove) -> bool:
    async with database.transaction() as connection:
        return MACHINE in await machines.move(connection, [move], actor=ACTOR, now=NOW)


async def _one(database: Database, statement: str) -> Any:
    async with database.reading() as connection:
        (row,) = await rows(connection, text(statement))
    return row


RELEASE = a_lease_move(LeaseState.PLACING, LeaseEvent.RELEASED)
ASK = a_machine_move(MachineState.INTENDED, MachineEvent.ASKED, asked_at=START)


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
    stale = a_machine_move(MachineState.INTENDED, MachineEvent.ASKED, seen=seen, asked_at=START)
    assert not await _move_machine(filled, stale)
    assert (await _one(filled, "SELECT count(*) AS n FROM journal WHERE actor = 'test'")).n == 0


async def test_a_decision_on_another_state_changes_nothing(filled: Database) -> None:
    assert not await _move_lease(filled, a_lease_move(LeaseState.STARTING, LeaseEvent.RELEASED))
    assert not await _move_machine(
        filled, a_machine_move(MachineState.LAUNCHING, MachineEvent.ACCEPTED, asked_at=START)
    )


async def test_a_batch_moves_whom_it_can_and_says_who_they_are(filled: Database) -> None:
    async with filled.transaction() as connection:
        await insert(connection, "leases", a_row("leases", A, 2))
        other = LeaseId(a_row("leases", A, 2)["id"])
        stale = LeaseMove(other, 7, a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED).moved)
        fresh = a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED)
        assert await leases.move(connection, [stale, fresh], actor=ACTOR, now=NOW) == {LEASE}


async def test_ready_stamps_the_beginning_of_the_bill_and_leaving_it_the_end(filled: Database) -> None:
    assert await _move_lease(filled, a_lease_move(LeaseState.PLACING, LeaseEvent.PLACED))
    assert await _move_lease(filled, a_lease_move(LeaseState.STARTING, LeaseEvent.VERIFIED, seen=2))
    row = await _one(filled, "SELECT ready_at, billed_until, attempts FROM leases")
    assert tuple(row) == (NOW, None, 1)
    async with filled.transaction() as connection:
        await connection.execute(text("UPDATE standings SET gpus_held = 50"))
        move = a_lease_move(LeaseState.READY, LeaseEvent.RELEASED, seen=3)
        await leases.move(connection, [move], actor=ACTOR, now=NOW + timedelta(hours=1))
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
        ("machines", "purpose"),
        ("machines", "proof"),
        ("claims", "step"),
        ("attempts", "outcome"),
        ("attempts", "fail_reason"),
        ("transactions", "kind"),
        ("ledger_accounts", "kind"),
        ("journal", "actor_kind"),
    ],
)
async def test_a_word_that_the_domain_does_not_know_is_refused(
    filled: Database, table: str, column: str
) -> None:
    needed: dict[str, dict[str, Any]] = {
        "machines": {"asked_at": START},
        "attempts": {"ended_at": START, "outcome": "failed"},
    }
    row = a_row(table, A, 9, **needed.get(table, {})) | {column: "almost"}
    with pytest.raises(IntegrityError, match=f"ck_{table}_{column}_known"):
        async with filled.transaction() as connection:
            await insert(connection, table, row)


async def _set(database: Database, table: str, where: UUID, **values: Any) -> None:
    columns = ", ".join(f"{column} = :{column}" for column in values)
    async with database.transaction() as connection:
        await connection.execute(
            text(f"UPDATE {table} SET {columns} WHERE id = :id"), {**values, "id": where}
        )


async def test_a_row_that_was_asked_for_closes_only_with_evidence(filled: Database) -> None:
    with pytest.raises(IntegrityError, match="gone_needs_evidence"):
        await _set(filled, "machines", MACHINE, state="gone", asked_at=START)
    await _set(filled, "machines", MACHINE, state="gone", asked_at=START, gone_evidence="it says so")


async def test_nothing_takes_effect_that_was_not_asked_for(filled: Database) -> None:
    with pytest.raises(IntegrityError, match="asked_before_effect"):
        await _set(filled, "machines", MACHINE, state="launching")


async def test_a_lease_and_a_whole_machine_have_one_open_claim_and_so_has_each_slot(filled: Database) -> None:
    async with filled.transaction() as connection:
        await insert(connection, "leases", *(a_row("leases", A, number) for number in range(2, 5)))
        await insert(connection, "machines", a_row("machines", A, 2))
    other_lease, other_machine = a_row("leases", A, 2)["id"], a_row("machines", A, 2)["id"]

    async def claim(number: int, lease: UUID, machine: UUID, slot: int | None = None) -> None:
        row = a_row("claims", A, number, lease_id=lease, machine_id=machine, slot=slot)
        async with filled.transaction() as connection:
            await insert(connection, "claims", row)

    with pytest.raises(IntegrityError, match="uq_claims_open_of_lease"):
        await claim(2, LEASE, other_machine)
    with pytest.raises(IntegrityError, match="uq_claims_of_machine"):
        await claim(3, other_lease, MACHINE)
    await claim(4, other_lease, other_machine, slot=1)
    third, fourth = (a_row("leases", A, number)["id"] for number in (3, 4))
    with pytest.raises(IntegrityError, match="uq_claims_open_of_slot"):
        await claim(5, third, other_machine, slot=1)
    await claim(6, third, other_machine, slot=2)
    await _set(filled, "claims", a_row("claims", A, 4)["id"], ended_at=START)
    await claim(7, fourth, other_machine, slot=1)


async def test_two_open_rows_cannot_name_one_machine_and_a_closed_one_does_not_count(
    filled: Database,
) -> None:
    machine = {"provider_ref": "ref-1", "asked_at": START, "gone_evidence": "it says so"}
    async with filled.transaction() as connection:
        await insert(connection, "machines", a_row("machines", A, 2, state="gone", **machine))
        await insert(connection, "machines", a_row("machines", A, 3, state="terminating", **machine))
    with pytest.raises(IntegrityError, match="uq_machines_provider_ref"):
        async with filled.transaction() as connection:
            await insert(connection, "machines", a_row("machines", A, 4, state="terminating", **machine))


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
                connection, MACHINE, ProviderRef(ref), actor=ACTOR, why="late", now=NOW
            )

    await _set(filled, "machines", MACHINE, state="terminating", asked_at=START)
    assert await adopt("ref-1")
    assert not await adopt("ref-2")
    row = await _one(filled, f"SELECT provider_ref, state FROM machines WHERE id = '{MACHINE}'")
    assert tuple(row) == ("ref-1", "terminating")
    row = await _one(filled, "SELECT lease_id, state_after FROM journal WHERE event = 'reference_learnt'")
    assert tuple(row) == (LEASE, "terminating")


async def test_a_closed_row_adopts_nothing(filled: Database) -> None:
    await _set(filled, "machines", MACHINE, state="gone", asked_at=START, gone_evidence="it says so")
    async with filled.transaction() as connection:
        assert not await machines.adopt(
            connection, MACHINE, ProviderRef("ref-1"), actor=ACTOR, why="late", now=NOW
        )


async def test_a_move_gives_the_machine_back_and_writes_what_became_known(filled: Database) -> None:
    await _set(filled, "machines", MACHINE, work_token=UUID(int=1), work_until=NOW, tries=3)
    move = a_machine_move(
        MachineState.INTENDED,
        MachineEvent.ASKED,
        asked_at=START,
        host_key="ssh-ed25519 k",
        step=Step.PLACED,
    )
    assert await _move_machine(filled, move)
    row = await _one(
        filled,
        f"""SELECT work_token, work_until, tries, host_key, asked_at, step_at, due_at, generation, fail_why
        FROM machines WHERE id = '{MACHINE}'""",
    )
    assert tuple(row) == (None, None, 0, "ssh-ed25519 k", START, NOW, NOW, 2, None)


async def test_a_move_keeps_what_it_does_not_say_and_an_end_keeps_its_time_and_evidence(
    filled: Database,
) -> None:
    known = {"address": "192.0.2.7", "ssh_port": 2222, "host_key": "ssh-ed25519 k", "step_at": START}
    await _set(filled, "machines", MACHINE, state="terminating", asked_at=START, **known)
    gone = a_machine_move(MachineState.TERMINATING, MachineEvent.CONFIRMED_GONE, gone_evidence="it says so")
    assert await _move_machine(filled, gone)
    row = await _one(
        filled,
        f"""SELECT address, ssh_port, host_key, step_at, gone_at, gone_evidence, fail_reason
        FROM machines WHERE id = '{MACHINE}'""",
    )
    assert tuple(row) == ("192.0.2.7", 2222, "ssh-ed25519 k", START, NOW, "it says so", None)
    line = await _one(filled, "SELECT event, why FROM journal WHERE event = 'confirmed_gone'")
    assert line.why == "it says so"


async def test_a_failure_is_kept_with_its_reason(filled: Database) -> None:
    await _set(filled, "machines", MACHINE, state="booting", asked_at=START)
    failed = a_machine_move(
        MachineState.BOOTING, MachineEvent.FAILED, why="it never ran", fail_reason=FailReason.NEVER_BOOTED
    )
    assert await _move_machine(filled, failed)
    async with filled.reading() as connection:
        machine = await machines.get(connection, MACHINE)
    assert machine is not None
    assert (machine.fail_reason, machine.fail_why) == (FailReason.NEVER_BOOTED, "it never ran")


# Whose journal a machine's line goes to.


async def _lines(database: Database, machine: MachineId, event: str) -> list[tuple[Any, ...]]:
    statement = """
    SELECT organization_id, project_id, lease_id, actor_kind, actor, request_id, state_before, state_after FROM journal
    WHERE machine_id = :machine AND event = :event ORDER BY lease_id
    """
    async with database.reading() as connection:
        return [tuple(row) for row in await rows(connection, text(statement), machine=machine, event=event)]


async def test_a_line_about_a_machine_goes_to_the_lease_that_claims_it_and_after_its_end_too(
    filled: Database,
) -> None:
    assert await _move_machine(filled, ASK)
    theirs = (A, a_row("projects", A)["id"], LEASE)
    by = ("customer", "test", "request-1")
    assert await _lines(filled, MACHINE, "asked") == [(*theirs, *by, "intended", "launching")]
    await _set(filled, "claims", a_row("claims", A)["id"], ended_at=NOW)
    released = a_machine_move(MachineState.LAUNCHING, MachineEvent.RELEASED, seen=2)
    assert await _move_machine(filled, released)
    assert await _lines(filled, MACHINE, "released") == [(*theirs, *by, "launching", "terminating")]


async def test_a_line_about_a_machine_that_nobody_claims_is_ours_alone(filled: Database) -> None:
    unclaimed = MachineId(a_row("machines", OURS)["id"])
    async with filled.transaction() as connection:
        moved = machine_step(MachineState.INTENDED, MachineEvent.NEVER_ASKED)
        assert isinstance(moved, Moved)
        move = MachineMove(unclaimed, 1, moved, gone_evidence="nothing was asked")
        assert await machines.move(connection, [move], actor=ACTOR, now=NOW) == {unclaimed}
    ours = (None, None, None, "customer", "test", "request-1", "intended", "gone")
    assert await _lines(filled, unclaimed, "never_asked") == [ours]


async def test_a_line_about_a_node_goes_to_every_lease_that_has_a_slot_of_it_now(own: Database) -> None:
    async with own.transaction() as connection:
        await fill(connection, A, B)
    node = MachineId(a_row("machines", OURS)["id"])
    await _set(own, "machines", node, purpose="node", state="verified", asked_at=START)
    leases_of = {tenant: a_row("leases", tenant)["id"] for tenant in (A, B)}
    for slot, tenant in enumerate((A, B), start=1):
        await _set(own, "claims", a_row("claims", tenant)["id"], machine_id=node, slot=slot)
    async with own.transaction() as connection:
        await insert(connection, "leases", a_row("leases", A, 2))
        gone = a_row("claims", A, 2, lease_id=a_row("leases", A, 2)["id"], machine_id=node, slot=3)
        await insert(connection, "claims", gone | {"ended_at": START})
        moved = machine_step(MachineState.VERIFIED, MachineEvent.VANISHED)
        assert isinstance(moved, Moved)
        assert await machines.move(connection, [MachineMove(node, 1, moved)], actor=ACTOR, now=NOW) == {node}
    assert {line[2] for line in await _lines(own, node, "vanished")} == set(leases_of.values())


# Orders.


def an_order(number: int, purpose: Purpose) -> MachineOrder:
    return MachineOrder(
        id=MachineId(UUID(int=number)),
        purpose=purpose,
        account=AccountName(a_row("provider_accounts", OURS)["name"]),
        provider="fake",
        region="eu-central-1",
        native_region="native",
        native_type="gpu",
        offer_key="an offer",
        cost_nano_per_hour=Nano(2_000_000_000),
        gpu_model=GpuModel.H200_SXM_141GB,
        gpu_count=8,
        vcpus=208,
        memory_gib=1_800,
        proof=Tier.PROVEN,
        launch_key=a_key(number),
        reserved_for=LeaseId(UUID(int=number)) if purpose is Purpose.POOL else None,
    )


async def test_an_order_is_written_as_intended_with_a_line_and_reads_as_it_was_ordered(
    filled: Database,
) -> None:
    orders = [an_order(1, Purpose.POOL), an_order(2, Purpose.NODE)]
    async with filled.transaction() as connection:
        await outcomes.order(connection, orders, actor=ACTOR, now=NOW)
    for order in orders:
        async with filled.reading() as connection:
            machine = await machines.get(connection, order.id)
            assert machine is not None
            cost = await rows(
                connection,
                text("SELECT cost_nano_per_hour, due_at FROM machines WHERE id = :id"),
                id=order.id,
            )
        assert tuple(cost[0]) == (order.cost_nano_per_hour, NOW)
        for name in (
            "purpose",
            "account",
            "region",
            "native_type",
            "offer_key",
            "gpu_model",
            "gpu_count",
            "proof",
        ):
            assert getattr(machine, name) == getattr(order, name)
        assert (machine.state, machine.step, machine.record) == (MachineState.INTENDED, Step.PLACED, Record())
        (line,) = await _lines(filled, order.id, "intended")
        assert line[:3] == (None, None, None)


async def test_a_machine_is_known_by_the_host_key_that_it_was_ordered_with(filled: Database) -> None:
    await _set(filled, "machines", MACHINE, host_key="ssh-ed25519 k")
    async with filled.reading() as connection:
        assert await machines.ordered_as(connection, "ssh-ed25519 k") == (GpuModel.H100_SXM_80GB, 1)
        with pytest.raises(LookupError):
            await machines.ordered_as(connection, "another")
