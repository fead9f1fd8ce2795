"""A provider account that is new to us, or that other installations and tools use as well: what is theirs stays."""

import dataclasses
from functools import partial

import pytest
from sqlalchemy import text

from control_plane.db import account_requests, accounts
from control_plane.db.engine import Database, Role
from control_plane.domain.account_request import AccountRequest, AccountVerb
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.ids import AccountName, AccountRequestId, LaunchKey, launch_key
from control_plane.domain.lease import Lease
from control_plane.domain.orphan import HeldCode
from control_plane.world import uuid7
from providers.base import LaunchOrder
from providers.fake import FakeMachine
from tests.support import keys, planting
from tests.support.rewinding import Rewinding
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage, set_stage

pytestmark = pytest.mark.database

OTHER = AccountName("fake/other")
_connect = partial(Database, role=Role.RECONCILER, pool_size=5, readers=2)
_HELD = text("SELECT held_code, gone_at FROM orphans ORDER BY provider_ref")


async def _ask(stage: Stage, verb: AccountVerb) -> None:
    async with stage.db.transaction() as connection:
        request = AccountRequest(AccountRequestId(uuid7()), FAKE, verb, None, "ticket 4711")
        await account_requests.insert(connection, request, actor=ADMINISTRATOR, now=stage.clock.now())
    await stage.run("answer_account_requests")


async def _held(stage: Stage) -> list[str | None]:
    """Why the orphans that are listed are held back."""
    async with stage.db.reading() as connection:
        return [row.held_code for row in await rows(connection, _HELD) if row.gone_at is None]


async def test_a_new_account_shows_what_would_be_terminated_and_ends_nothing_until_it_is_armed(
    stage: Stage,
) -> None:
    await _ask(stage, AccountVerb.DISARM)  # As it is when it was added.
    orphan = await stage.plant()
    await stage.play(300, step=30)
    stage.clock.advance(15)
    (report,) = await stage.run("collect_orphans")
    assert report.notes == [f"would terminate {orphan.provider_ref} ({orphan.launch_key})"]
    assert (orphan.ended_at, await _held(stage)) == (None, [HeldCode.NOT_ARMED])
    await _ask(stage, AccountVerb.ARM)
    await stage.play(30, step=10)
    assert orphan.ended_at is not None
    await _ask(stage, AccountVerb.DISARM)
    other = await stage.plant()
    await stage.play(300, step=30)
    assert other.ended_at is None
    stage.cloud.disappear(other.provider_ref)
    await stage.finish()


async def test_an_account_is_not_armed_when_it_is_added_nor_when_it_is_added_again(stage: Stage) -> None:
    secrets = [
        await keys.store(stage.db, stage.clock, keys.AFTER, await stage.organization(), b"a key")
        for _ in range(2)
    ]
    async with stage.db.transaction() as connection:
        for secret in secrets:
            await account_requests.put_in_force(connection, OTHER, "fake", secret, now=stage.clock.now())
            assert (await accounts.get(connection, OTHER)).armed_at is None
            await account_requests.arm(connection, OTHER, now=stage.clock.now())
            assert (await accounts.get(connection, OTHER)).armed_at is not None
            await account_requests.remove(connection, OTHER, now=stage.clock.now())


async def test_two_installations_share_an_account_and_each_ends_only_what_is_its_own(
    stage: Stage, rewinding: Rewinding
) -> None:
    """Staging and production list the same machines, sweep them at the same time, and each has an orphan there."""
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, makes_children=True)
    async with rewinding.database() as rewound:
        theirs = await _another_installation(stage, rewound.database("every tenant", _connect))
        leases = [await one.lease(await one.organization()) for one in (stage, theirs)]
        for one, lease in zip((stage, theirs), leases, strict=True):
            await one.play_until(lease, "ready", seconds_max=60)
        orphans = [await _plant_orphan(one) for one in (stage, theirs)]
        unmarked = _plant(stage, LaunchKey("research-box"))
        for _ in range(14):
            for one in (stage, theirs):
                await one.turns()
            stage.clock.advance(15)
        assert [orphan.ended_at is not None for orphan in orphans] == [True, True]
        assert unmarked.ended_at is None
        for one, lease in zip((stage, theirs), leases, strict=True):
            assert await one.state(lease) == "ready"
            assert await _children(one, lease) == {"volume"}, "its script is deleted"
        # What one installation loses is not ended by the other.
        await theirs.release_all()
        lost = _plant(stage, launch_key(stage.world.installation, uuid7()))
        for _ in range(18):
            await theirs.turns()
            stage.clock.advance(61)
        assert await theirs.state(leases[1]) == "ended"
        assert await _children(theirs, leases[1]) == set()
        assert lost.ended_at is None
        assert await stage.state(leases[0]) == "ready"
        assert await _children(stage, leases[0]) == {"volume"}


async def _children(stage: Stage, lease: Lease) -> set[str]:
    """The kinds of the children of a lease's machine."""
    (machine,) = await stage.machines(lease)
    return {child.kind for child in stage.cloud.leftovers.values() if child.launch_key == machine.launch_key}


async def _plant_orphan(stage: Stage) -> FakeMachine:
    """On the first installation's provider, which both use."""
    key = launch_key(stage.world.installation, uuid7())
    async with stage.db.transaction() as connection:
        await planting.record(connection, key, FAKE, now=stage.clock.now())
    return _plant(stage, key)


def _plant(stage: Stage, key: LaunchKey) -> FakeMachine:
    return stage.cloud.plant(LaunchOrder(key, "h100-sxm-80gb.1", "us-east-1", "", ""))


async def _another_installation(stage: Stage, db: Database) -> Stage:
    """An installation with a database of its own, on the same provider account."""
    other = await set_stage(db, stage.clock, clouds=stage.clouds)
    other.world = dataclasses.replace(other.world, installation="cafe0001")
    return other
