"""Keys rotate in the background: whatever dies on the way, every secret stays readable; what was destroyed never is."""

import asyncio
import dataclasses
from datetime import timedelta
from itertools import count
from typing import Literal

import pytest
from sqlalchemy import text

from control_plane.db import data_keys, secrets
from control_plane.db.connection import Connection
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.ids import OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, WrappedKey
from control_plane.outcomes.secrets import destroy_keys
from control_plane.vault.errors import KeyManagerError, KeyManagerRefused
from control_plane.vault.sealing.envelope import seal_under
from control_plane.vault.sealing.port import NewDataKey
from control_plane.world import uuid7
from reconciler.figures import ROTATION
from reconciler.loops.secrets.rotate_keys import KEYS_PER_ACTIVATION_MAX, SECRETS_PER_KEY_MAX
from reconciler.worlds.complete import CompleteWorld
from tests.support import keys
from tests.support.clock import Clock
from tests.support.crash import Crash
from tests.support.keys import AFTER, BEFORE
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
OLD_AGE = timedelta(days=91)
CALLS_MAX = 60


async def _stocked(stage: Stage) -> dict[SecretId, bytes]:
    """Secrets of every kind that the rotation meets, with their plaintexts."""
    acme, other = await stage.organization(), await stage.organization()
    planned = [
        (BEFORE, acme, Purpose.PROVIDER_CREDENTIALS, timedelta(0)),
        (BEFORE, other, Purpose.SSH_AUTHORITY, OLD_AGE),
        (AFTER, acme, Purpose.PROVIDER_CREDENTIALS, OLD_AGE),
        (AFTER, other, Purpose.PROVIDER_CREDENTIALS, timedelta(0)),
    ]
    found = {}
    for number, (keeper, organization, purpose, age) in enumerate(planned):
        plain = f"secret {number}".encode()
        found[await keys.store(stage.db, stage.clock, keeper, organization, plain, purpose, age=age)] = plain
    return found


async def _all_readable(stage: Stage, planted: dict[SecretId, bytes]) -> None:
    for secret_id, plain in planted.items():
        assert await keys.read(stage.db, AFTER, secret_id) == plain


async def _left(stage: Stage) -> tuple[int, int]:
    async with stage.db.reading() as connection:
        found = await data_keys.counts(
            connection, newest=AFTER.master, old=stage.clock.now() - timedelta(days=90)
        )
    return found.to_rewrap, found.to_replace


async def test_after_a_rotation_every_data_key_is_new_and_every_secret_readable(stage: Stage) -> None:
    planted = await _stocked(stage)
    assert await _left(stage) == (2, 2)
    (report,) = await stage.run("rotate_keys")
    assert report.acted_on
    assert not report.errors
    assert await _left(stage) == (0, 0)
    async with stage.db.reading() as connection:
        lines = await rows(connection, text("SELECT event FROM audit_pending WHERE subject = 'rotate_keys'"))
    assert sorted(line.event for line in lines) == ["data_keys.replace"] * 2 + ["data_keys.rewrap"]
    await _all_readable(stage, planted)
    with pytest.raises(KeyManagerError):  # The key manager before the rotation opens none of them.
        await keys.read(stage.db, BEFORE, next(iter(planted)))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_rotation_killed_at_any_call_leaves_every_secret_readable_and_the_next_one_finishes(
    stage: Stage, when: Literal["before", "after"]
) -> None:
    """All deaths on one database: each death meets what the one before left."""
    planted = await _stocked(stage)

    async def activation(world: CompleteWorld) -> None:
        await stage.run("rotate_keys", world=world)

    for call in count(1):
        assert call < CALLS_MAX
        if not await Crash(at=call, when=when).kills(activation, stage.replica("doomed")):
            break
        await _all_readable(stage, planted)
        stage.clock.advance(180)  # What the dead worker held becomes free.
        planted |= {await _one_more(stage): b"one more"}
    assert call > 4
    for _ in range(2):
        stage.clock.advance(180)
        await stage.run("rotate_keys")
    assert await _left(stage) == (0, 0)
    await _all_readable(stage, planted)


async def _one_more(stage: Stage) -> SecretId:
    return await keys.store(
        stage.db, stage.clock, BEFORE, await stage.organization(), b"one more", age=OLD_AGE
    )


async def test_two_rotations_at_once_lose_nothing(stage: Stage) -> None:
    planted = await _stocked(stage)
    runs = await asyncio.gather(
        *(stage.run("rotate_keys", world=stage.replica(name)) for name in ("one", "two", "three"))
    )
    assert sum(report.acted_on for reports in runs for report in reports) == 3, "each secret once"
    await _all_readable(stage, planted)


async def test_a_rotation_works_in_bounded_batches_and_shows_how_much_is_left(stage: Stage) -> None:
    organization = await stage.organization()
    many = KEYS_PER_ACTIVATION_MAX + 3
    for number in range(many):
        await keys.store(stage.db, stage.clock, BEFORE, organization, b"%d" % number)
    (report,) = await stage.run("rotate_keys")
    assert report.more
    assert report.notes == [f"3 of {many} data keys: to be wrapped under the newest master key."]
    assert ROTATION.counts == data_keys.Counts(secrets=many, data_keys=many, to_rewrap=3, to_replace=0)
    (report,) = await stage.run("rotate_keys")
    assert (report.more, report.notes) == (False, [])


async def test_a_batch_is_bounded_whatever_plan_the_database_chooses(stage: Stage) -> None:
    """A plan that runs the choice of rows again for each row of the table took all of them."""
    organization = await stage.organization()
    for number in range(5):
        await keys.store(stage.db, stage.clock, BEFORE, organization, b"%d" % number)
    now = stage.clock.now()
    async with stage.db.transaction() as connection:
        for setting in ("hashjoin", "material", "hashagg", "sort"):
            await connection.execute(text(f"SET LOCAL enable_{setting} = off"), {})
        taken = await data_keys.take_due(
            connection, newest=AFTER.master, old=now - OLD_AGE, token=uuid7(), now=now, until=now, limit=2
        )
    assert len(taken) == 2


async def test_a_data_key_with_many_secrets_is_replaced_in_several_steps(stage: Stage) -> None:
    organization = await stage.organization()
    first = await keys.store(stage.db, stage.clock, AFTER, organization, b"same key", age=OLD_AGE)
    async with stage.db.transaction() as connection:
        sealed = await secrets.get(connection, first)
        assert sealed is not None
        data_key = await AFTER.unwrap(sealed.key)
        made = NewDataKey(data_key, Plain(sealed.key.wrapped), sealed.key.master)
        for _ in range(SECRETS_PER_KEY_MAX):
            await _under_the_same_key(connection, stage.clock, made, sealed.key)
    (report,) = await stage.run("rotate_keys")
    assert report.acted_on == SECRETS_PER_KEY_MAX
    assert await _left(stage) == (0, 1)
    await stage.run("rotate_keys")
    assert await _left(stage) == (0, 0)
    async with stage.db.reading() as connection:
        ids = [SecretId(row.id) for row in await rows(connection, text("SELECT id FROM secrets"))]
    assert {await keys.read(stage.db, AFTER, found) for found in ids} == {b"same key"}
    async with stage.db.reading() as connection:
        assert len(await rows(connection, text("SELECT id FROM data_keys"))) == 2, "the old key is deleted"


async def test_a_data_key_whose_secret_was_deleted_is_forgotten_after_a_while(stage: Stage) -> None:
    secret = await keys.store(stage.db, stage.clock, AFTER, await stage.organization(), b"short-lived")
    async with stage.db.transaction() as connection:
        await secrets.delete(connection, secret)
    for seconds, left in ((0, 1), (3_601, 0)):
        stage.clock.advance(seconds)
        await stage.run("rotate_keys")
        async with stage.db.reading() as connection:
            assert len(await rows(connection, text("SELECT id FROM data_keys"))) == left


async def _under_the_same_key(
    connection: Connection, clock: Clock, made: NewDataKey, key: WrappedKey
) -> None:
    sealed = seal_under(made, key, Plain(b"same key"), secret_id=SecretId(uuid7()))
    await connection.execute(
        text("""
        INSERT INTO secrets (id, organization_id, purpose, data_key_id, nonce, ciphertext, created_at)
        VALUES (:id, :organization_id, :purpose, :key, :nonce, :ciphertext, :now)
        """),
        {
            "id": sealed.id,
            "organization_id": key.context.organization_id,
            "purpose": key.context.purpose,
            "key": key.id,
            "nonce": sealed.nonce,
            "ciphertext": sealed.ciphertext,
            "now": clock.now(),
        },
    )


class _Refusing:
    """A key manager that refuses one organization's data keys, as when a customer disables its own key."""

    def __init__(self, organization_id: OrganizationId) -> None:
        self.master = AFTER.master
        self._refused = organization_id

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        return await AFTER.make_data_key(context, master)

    async def unwrap(self, key: WrappedKey) -> Plain:
        return await AFTER.unwrap(key)

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        if key.context.organization_id == self._refused:
            raise KeyManagerRefused("the key is disabled")
        return await AFTER.rewrap(key, master)


async def test_a_master_key_that_is_refused_delays_no_other_organization(stage: Stage) -> None:
    refused, fine = await stage.organization(), await stage.organization()
    kept = await keys.store(stage.db, stage.clock, BEFORE, refused, b"kept")
    await keys.store(stage.db, stage.clock, BEFORE, fine, b"rotated")
    world = dataclasses.replace(stage.world, keys=_Refusing(refused))
    (report,) = await stage.run("rotate_keys", world=world)
    assert (report.acted_on, report.errors) == (1, ["KeyManagerRefused: the key is disabled"])
    (report,) = await stage.run("rotate_keys", world=world)
    assert not report.errors, "it waits before it is tried again"
    assert await keys.read(stage.db, AFTER, kept) == b"kept"
    stage.clock.advance(60)
    (report,) = await stage.run("rotate_keys")
    assert report.acted_on == 1


async def test_an_organizations_own_master_key_takes_over_its_data_keys_and_only_its(stage: Stage) -> None:
    own, other = await stage.organization(), await stage.organization()
    mine = await keys.store(stage.db, stage.clock, AFTER, own, b"mine")
    await keys.store(stage.db, stage.clock, AFTER, other, b"theirs")
    async with stage.db.transaction() as connection:
        await secrets.set_master(connection, own, BEFORE.master, now=stage.clock.now())
    (report,) = await stage.run("rotate_keys")
    assert report.acted_on == 1
    assert await keys.read(stage.db, BEFORE, mine) == b"mine"
    async with stage.db.transaction() as connection:
        await secrets.set_master(connection, own, None, now=stage.clock.now())
    (report,) = await stage.run("rotate_keys")
    assert report.acted_on == 1


# Crypto-shredding


async def _destroy(stage: Stage, organization: OrganizationId) -> data_keys.Destruction:
    async with stage.db.transaction() as connection:
        return await destroy_keys(
            connection,
            organization,
            destruction_id=uuid7(),
            why="the organization was deleted",
            actor=ADMINISTRATOR,
            now=stage.clock.now(),
        )


async def test_a_destroyed_organizations_secrets_are_gone_for_ever_and_the_record_stays(stage: Stage) -> None:
    gone, other = await stage.organization(), await stage.organization()
    secret = await keys.store(stage.db, stage.clock, AFTER, gone, b"gone")
    kept = await keys.store(stage.db, stage.clock, AFTER, other, b"kept")
    assert await _destroy(stage, gone) == data_keys.Destruction(1, 1, stage.clock.now())
    assert await keys.read(stage.db, AFTER, secret) is None
    assert await keys.read(stage.db, AFTER, kept) == b"kept"
    async with stage.db.reading() as connection:
        (key,) = await rows(
            connection, text("SELECT wrapped FROM data_keys WHERE organization_id = :o"), o=gone
        )
        (record,) = await rows(
            connection, text("SELECT organization_id, why, actor, secrets FROM key_destructions")
        )
    assert key.wrapped == b""
    assert tuple(record) == (gone, "the organization was deleted", "administrator", 1)
    assert (await _destroy(stage, gone)).data_keys == 0, "once more changes nothing"


async def test_a_rotation_that_is_under_way_does_not_bring_destroyed_secrets_back(stage: Stage) -> None:
    gone = await stage.organization()
    for keeper, age in ((BEFORE, timedelta(0)), (AFTER, OLD_AGE)):
        await keys.store(stage.db, stage.clock, keeper, gone, b"gone", age=age)

    class Meanwhile(_Refusing):
        """The organization is destroyed while its data keys are with the key manager."""

        async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
            made = await super().make_data_key(context, master)
            await _destroy(stage, gone)
            return made

        async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
            done = await super().rewrap(key, master)
            await _destroy(stage, gone)
            return done

    world = dataclasses.replace(stage.world, keys=Meanwhile(OrganizationId(uuid7())))
    (report,) = await stage.run("rotate_keys", world=world)
    assert report.acted_on == 0
    async with stage.db.reading() as connection:
        found = await rows(connection, text("SELECT wrapped FROM data_keys"))
    assert {row.wrapped for row in found} == {b""}
