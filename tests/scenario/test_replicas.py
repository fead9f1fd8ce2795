"""Replicas side by side: pairs of loops that write a common table, and many of one loop on the same rows.

What they may do to each other is wait, or lose a race. What they may not do is buy twice, charge twice, lose a machine
on the way to the hub, or wait for each other in a circle: all code takes its locks in the order pool, lease, claim,
machine, standing, hold, and in a cluster in the order nodes that leave, nodes whose keys change, a node, overlay.
"""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from sqlalchemy import text

from control_plane.db.engine import Database, Role
from data_plane.mesh.port import Hub, HubIdentity, Network, Peer
from reconciler import registry
from reconciler.network import HELD_FOR
from reconciler.worlds.complete import CompleteWorld
from tests.scenario import settling
from tests.scenario.conftest import Moment
from tests.scenario.lively import ends_well
from tests.support.rows import rows
from tests.support.stage import Stage
from tests.support.writes import Writes, pairs

pytestmark = pytest.mark.database

LOOPS = sorted(registry.discovered())
_PEERS = text("""
SELECT n.number, p.address, p.public_key
FROM peers p JOIN hub_networks n USING (network_id) JOIN claims c ON c.id = p.claim_id
WHERE c.admitted_at IS NOT NULL AND c.ended_at IS NULL
""")


@asynccontextmanager
async def _replicas(stage: Stage, url: str, count: int) -> AsyncIterator[list[CompleteWorld]]:
    """Reconciler processes with connections of their own."""
    databases = [Database(url, role=Role.RECONCILER, pool_size=4, readers=2) for _ in range(count)]
    try:
        yield [stage.replica(f"replica {n}", database) for n, database in enumerate(databases)]
    finally:
        await asyncio.gather(*(database.close() for database in databases))


async def _at_once(stage: Stage, turns: Sequence[tuple[str, CompleteWorld]]) -> None:
    """Run activations side by side. None of them fails, and none waits for another in a circle."""
    outcomes = await asyncio.gather(
        *(stage.run(name, world=world) for name, world in turns), return_exceptions=True
    )
    for (name, _), outcome in zip(turns, outcomes, strict=True):
        assert not isinstance(outcome, BaseException), f"{name}: {outcome!r}"
        tied = [error for report in outcome for error in report.errors if "deadlock detected" in error]
        assert not tied, f"{name}: {tied}"


async def _nobody_is_lost_on_the_hub(stage: Stage) -> None:
    async with stage.db.reading() as connection:
        belong = await rows(connection, _PEERS)
    for row in belong:
        assert Peer(row.address, row.public_key) in stage.hub.networks.get(row.number, ()), row


def _after(*names: str) -> list[str]:
    """The next activations of loops, of those that they wake, and of those that look at machines and at the hub.

    All loops together take half of the time of this test, and those that write no table of the two have nothing to add.
    """
    woken = {other for name in names for other in registry.discovered()[name].wakes}
    return sorted({*names, *woken, "observe_machines", "sync_hub"})


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_beside_itself_and_beside_every_loop_that_writes_the_same_tables_keeps_the_laws(
    lively: Moment, written: dict[str, Writes], name: str
) -> None:
    for other in (second for first, second in pairs(written) if first == name):
        async with lively.again() as stage:
            one, two = lively.replicas(stage, 2)
            await _at_once(stage, [(name, one), (other, two)])
            await stage.check()
            # And once more, on what the two left to each other.
            stage.clock.advance(3)
            await _at_once(stage, [(other, one), (name, two)])
            await stage.check()
            if other == name:
                await settling.settles(stage, lively, name)
                await stage.round()
            else:
                for following in _after(name, other):
                    await stage.run(following)
            await _nobody_is_lost_on_the_hub(stage)
            await stage.check()


async def test_all_loops_of_three_replicas_at_once_bring_everything_to_its_end(lively: Moment) -> None:
    async with lively.again() as stage:
        replicas = lively.replicas(stage, 3)
        for seconds in (0, 2, 3, 30, 40, 70, 130):
            stage.clock.advance(seconds)
            await _at_once(stage, list(itertools.product(LOOPS, replicas)))
            await stage.check()
        await ends_well(stage)


ONE_LIFE = (
    "place_leases",
    "launch_machines",
    "observe_machines",
    "bootstrap_machines",
    "admit_customers",
    "release_machines",
    "terminate_machines",
    "observe_machines again",
    "close_leases",
    "meter_usage",
    "rate_usage",
)
"""Loops in the order in which a lease needs them. Everything is released before `release_machines`."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("place_leases", "SELECT count(*) FROM claims"),
        ("launch_machines", "SELECT count(*) FROM machines WHERE state = 'booting'"),
        ("bootstrap_machines", "SELECT count(*) FROM machines WHERE state = 'verified'"),
        ("admit_customers", "SELECT count(*) FROM leases WHERE state = 'ready'"),
        (
            "release_machines",
            "SELECT count(*) FROM journal WHERE machine_id IS NOT NULL AND event = 'released'",
        ),
        ("terminate_machines", "SELECT count(*) FROM machines WHERE terminate_asked_at IS NOT NULL"),
        ("close_leases", "SELECT count(*) FROM leases WHERE state = 'ended'"),
        ("rate_usage", "SELECT count(*) FROM charges"),
    ],
)
async def test_many_replicas_on_the_same_rows_do_each_once(
    stage: Stage, database_url: str, name: str, expected: str
) -> None:
    leases = [
        await stage.lease(organization_id)
        for organization_id in [await stage.organization(), await stage.organization()]
        for _ in range(8)
    ]
    await stage.run("refresh_offers")
    async with _replicas(stage, database_url, 5) as replicas:
        for loop in ONE_LIFE:
            if loop == "release_machines":
                for lease in leases:
                    stage.clock.advance(1)
                    await stage.release(lease)
            if loop == name:
                for _ in range(5):
                    await _at_once(stage, [(name, replica) for replica in replicas])
                    stage.clock.advance(2)
                break
            stage.clock.advance(3)
            await stage.run(loop.split()[0])
    async with stage.db.reading() as connection:
        assert (await rows(connection, text(expected)))[0][0] == len(leases)
    calls = {"launch_machines": "launch", "terminate_machines": "terminate"}
    if name in calls:
        assert stage.cloud.calls_of(calls[name]) == len(leases), "asked once for each"
    await stage.check()
    await _nobody_is_lost_on_the_hub(stage)
    await stage.finish()


async def _verified(stage: Stage) -> None:
    """Play just until every machine is verified and nobody is let in."""
    await stage.run("refresh_offers")
    for loop in ONE_LIFE[: ONE_LIFE.index("admit_customers")]:
        stage.clock.advance(3)
        await stage.run(loop)


async def test_an_older_list_for_the_hub_never_overtakes_a_newer_one(stage: Stage, database_url: str) -> None:
    """A hub call carries a network's whole list: the older one, arriving last, would drop the newer machine."""
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(2)]
    await _verified(stage)
    under_way, arrives = asyncio.Event(), asyncio.Event()

    class _SlowHub:
        async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int) -> HubIdentity:
            under_way.set()
            await arrives.wait()
            return await stage.hub.sync(network, peers, fence=fence)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.loops.leases.admit_customers.CLAIMS_PER_ACTIVATION_MAX", 1)
        async with _replicas(stage, database_url, 2) as (one, two):
            slow = dataclasses.replace(one, hub=cast("Hub", _SlowHub()))
            older = asyncio.create_task(stage.run("admit_customers", world=slow))
            await under_way.wait()
            await stage.run("admit_customers", world=two)
            arrives.set()
            await older
    assert sorted([await stage.state(lease) for lease in leases]) == ["ready", "starting"], "one had to wait"
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=60)
        await _nobody_is_lost_on_the_hub(stage)
    await stage.finish()


@pytest.mark.parametrize("when", ["after the newer sync", "before the newer sync is recorded"])
async def test_a_list_that_arrives_after_its_hold_expired_is_refused_by_the_hub(
    stage: Stage, database_url: str, when: str
) -> None:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(2)]
    await _verified(stage)
    under_way, arrives = asyncio.Event(), asyncio.Event()

    class _StalledHub:
        async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int) -> HubIdentity:
            under_way.set()
            await arrives.wait()
            return await stage.hub.sync(network, peers, fence=fence)

    class _OvertakenHub:
        async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int) -> HubIdentity:
            identity = await stage.hub.sync(network, peers, fence=fence)
            arrives.set()
            await older
            return identity

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.loops.leases.admit_customers.CLAIMS_PER_ACTIVATION_MAX", 1)
        async with _replicas(stage, database_url, 2) as (one, two):
            stalled = dataclasses.replace(one, hub=cast("Hub", _StalledHub()))
            older = asyncio.create_task(stage.run("admit_customers", world=stalled))
            await under_way.wait()
            stage.clock.advance(HELD_FOR.total_seconds())
            if when == "after the newer sync":
                await stage.run("admit_customers", world=two)
                arrives.set()
                await older
            else:
                overtaken = dataclasses.replace(two, hub=cast("Hub", _OvertakenHub()))
                await stage.run("admit_customers", world=overtaken)
    (network,) = stage.hub.networks.values()
    assert len(network) == 2, "the older list dropped the newer machine"
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=60)
    await _nobody_is_lost_on_the_hub(stage)
    await stage.finish()


async def test_machines_of_one_network_joining_at_many_replicas_are_all_on_the_hub(
    stage: Stage, database_url: str
) -> None:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(12)]
    await _verified(stage)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconciler.loops.leases.admit_customers.CLAIMS_PER_ACTIVATION_MAX", 3)
        async with _replicas(stage, database_url, 4) as replicas:
            for _ in range(12):
                await _at_once(stage, [("admit_customers", replica) for replica in replicas])
                stage.clock.advance(5)
    assert {await stage.state(lease) for lease in leases} == {"ready"}
    await _nobody_is_lost_on_the_hub(stage)
    await stage.finish()


APART = frozenset(name for wing in ("audit", "housekeeping", "secrets") for name in registry.of_wing(wing))
"""Loops to which a release makes no difference."""


async def test_a_release_beside_every_loop_ends_what_it_releases(lively: Moment) -> None:
    for name in LOOPS:
        async with lively.again() as stage:
            await asyncio.gather(stage.run(name), stage.release_all())
            await stage.check()
            if name in ("admit_customers", "bootstrap_machines", "launch_machines", "observe_machines"):
                for seconds in (5, 61, 61, 122, 244, 244, 61, 61):
                    await stage.round(without=APART)
                    stage.clock.advance(seconds)
                await stage.check_finished()
