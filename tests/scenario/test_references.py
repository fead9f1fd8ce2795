"""Reference times are learnt from passed proofs of unrelated providers, and disappear with them."""

import dataclasses
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import references
from control_plane.world import uuid7
from data_plane.proof.challenger.learning import DEVICES_MIN
from data_plane.proof.challenger.reference import EVERY_DRIVER, TABLE, Basis
from reconciler.loops.proof import learn_references
from reconciler.loops.proof.learn_references import LEARNT_FROM
from reconciler.references import observed
from tests.integration.db.sample import OURS, a_row, insert
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

MODEL = "h100-sxm-80gb"
HONEST = TABLE[MODEL].estimate().walk.rate
_PROVIDER = text("UPDATE provider_accounts SET provider = :provider WHERE name = :name")


async def showing(
    stage: Stage,
    account: str,
    rate: float,
    *,
    devices: int = DEVICES_MIN,
    outcome: str = "passed",
    first: int = 0,
    model: str = MODEL,
    machine: UUID | None = None,
) -> None:
    """Passed proofs at an account, each by a GPU of its own, of one machine or of a machine each."""
    ids = [machine or uuid7() for _ in range(devices)]
    machines = [
        a_row("machines", OURS, id=made, account=account, gpu_model=model, launch_key=f"key {made}")
        for made in dict.fromkeys(ids)
    ]
    proofs = [
        a_row(
            "proofs",
            OURS,
            id=uuid7(),
            organization_id=None,
            project_id=None,
            lease_id=None,
            machine_id=made,
            account=account,
            gpu_model=model,
            driver="570.124.06",
            outcome=outcome,
            at=stage.clock.now(),
            gpu_uuids=[f"GPU-{account}-{first + number}"],
            rates=[
                {"gpu": 0, "phase": "walk", "seconds": 4.0, "work": rate},  # A try that was too late.
                {"gpu": 0, "phase": "walk", "seconds": 2.0, "work": 2 * rate},
            ],
        )
        for number, made in enumerate(ids)
    ]
    async with stage.db.transaction() as connection:
        await insert(connection, "machines", *machines)
        await insert(connection, "proofs", *proofs)


async def learnt(stage: Stage) -> list[tuple[str, int, str, float, int]]:
    await stage.run("learn_references")
    async with stage.db.reading() as connection:
        return [
            (row.gpu_model, row.driver_major, row.phase, row.rate, row.providers)
            for row in await references.learnt(connection)
        ]


@pytest.fixture
async def two(stage: Stage) -> Stage:
    """Accounts `fake` and `other`, of two providers."""
    async with stage.db.transaction() as connection:
        await insert(
            connection,
            "provider_accounts",
            a_row("provider_accounts", number=1, name="other", provider="other"),
        )
    return stage


async def test_what_two_unrelated_providers_show_alike_becomes_the_reference(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    assert await learnt(two) == [], "nobody is believed alone"
    await showing(two, "other", 1.05 * HONEST)
    assert await learnt(two) == [
        (MODEL, EVERY_DRIVER, "walk", 1.05 * HONEST, 2),
        (MODEL, 570, "walk", 1.05 * HONEST, 2),
    ]
    async with two.db.reading() as connection:
        together, branch = observed(await references.learnt(connection))
    assert (branch.model, branch.driver_major) == (MODEL, 570)
    assert branch.paces["walk"].basis is Basis.LEARNT
    assert branch.paces["walk"].note == "2026-11-20, driver 570, 2 providers"
    assert together.paces["walk"].note == "2026-11-20, every driver, 2 providers"


async def test_two_accounts_of_one_provider_are_one_witness(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST)
    async with two.db.transaction() as connection:
        await connection.execute(_PROVIDER, {"provider": "fake", "name": "other"})
    assert await learnt(two) == []


async def test_only_passed_proofs_teach(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST, outcome="failed")
    await showing(two, "other", HONEST, outcome="emulated", first=100)
    assert await learnt(two) == []


async def test_a_reference_leaves_with_the_proofs_that_it_came_from(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST)
    assert len(await learnt(two)) == 2
    [again] = await two.run("learn_references")
    assert again.acted_on == 0, "what did not change is not written"
    two.clock.advance((LEARNT_FROM + timedelta(seconds=1)).total_seconds())
    assert await learnt(two) == []


async def test_a_machine_that_shows_other_gpus_every_time_speaks_only_of_the_first(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST)
    await showing(two, "other", 1.09 * HONEST, first=100, devices=4 * DEVICES_MIN, machine=uuid7())
    assert {rate for _, _, _, rate, _ in await learnt(two)} == {HONEST}


async def test_no_provider_pushes_the_others_out_of_what_is_learnt_from(
    two: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learn_references, "DEVICES_OF_ONE_MAX", 2 * DEVICES_MIN)
    monkeypatch.setattr(learn_references, "DEVICES_PER_ACTIVATION_MAX", 5 * DEVICES_MIN)
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST)
    await showing(two, "other", 5e11, first=100, devices=8 * DEVICES_MIN, model="a10-24gb")
    assert {model for model, *_ in await learnt(two)} == {MODEL}


async def test_providers_that_disagree_take_the_reference_away_and_say_so(two: Stage) -> None:
    await showing(two, "fake", HONEST)
    await showing(two, "other", HONEST)
    await learnt(two)
    await showing(two, "other", 1.3 * HONEST, first=100, devices=3 * DEVICES_MIN)
    [report] = await two.run("learn_references")
    assert report.acted_on == 2
    assert any("providers_disagree" in note for note in report.notes)


def test_every_learnt_phase_is_one_value_of_its_model_and_driver() -> None:
    row = references.Learnt(MODEL, 570, "walk", 1.0, 2, "2026-11-20")
    both = [row, dataclasses.replace(row, phase="int8"), dataclasses.replace(row, driver_major=580)]
    assert [(branch.driver_major, set(branch.paces)) for branch in observed(both)] == [
        (570, {"walk", "int8"}),
        (580, {"walk"}),
    ]


async def test_what_is_learnt_from_is_found_without_reading_every_proof_there_ever_was(stage: Stage) -> None:
    """Proofs are kept for ever, and the loop runs every hour."""
    async with stage.db.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        query = text(f"EXPLAIN {references._DEVICE_RATES.text}")
        plan = [row[0] for row in await rows(connection, query, since=stage.clock.now(), each_max=1, limit=1)]
    assert any("ix_proofs_passed" in line for line in plan), plan
