"""The hub refuses, hangs or is slow: it is asked with a back-off, and nobody else waits for it."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import pytest
from sqlalchemy import text

from control_plane.domain.hub_silence import RETRY_CEILING
from control_plane.domain.ids import NetworkId, OrganizationId
from control_plane.world import uuid7
from data_plane.access.port import AccessError, StepFailed, Unreachable
from data_plane.mesh.port import HubIdentity, Network, Peer, ReadAuthorities
from reconciler.loop import Report
from reconciler.loops.mesh import sync_hub
from reconciler.patient_hub import PatientHub
from reconciler.worlds.complete import CompleteWorld
from reconciler.worlds.mesh import HubTrust
from tests.support import node_pools
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

Answer = TypeVar("Answer")
_NETWORK = text("""
INSERT INTO networks (id, organization_id, project_id, name, block, created_at)
SELECT :id, organization_id, project_id, :name, :block, created_at FROM networks ORDER BY id LIMIT 1
RETURNING organization_id
""")
_ON_HUB = text("INSERT INTO hub_networks (network_id, organization_id, number) VALUES (:id, :of, :number)")


class _Hub:
    """A hub that takes its time for each call, and may fail then."""

    def __init__(self, stage: Stage, seconds: float, error: AccessError | None) -> None:
        self._stage, self.seconds, self.error = stage, seconds, error
        self.hung: set[int] = set()
        """Networks for which each call runs out of time."""
        self.calls = 0

    async def sync(self, network: Network, peers: Sequence[Peer], *, fence: int | None = None) -> HubIdentity:
        if network.number in self.hung:
            return await self._call(self._late)
        return await self._call(lambda: self._stage.hub.sync(network, peers, fence=fence))

    async def drop(self, network: Network, *, fence: int | None = None) -> None:
        await self._call(lambda: self._stage.hub.drop(network, fence=fence))

    async def trust(self, read: ReadAuthorities) -> Sequence[str]:
        return await self._call(lambda: self._stage.hub.trust(read))

    async def _late(self) -> HubIdentity:
        raise StepFailed("sync hub", None, "no answer after 20 s")

    async def _call(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls += 1
        self._stage.clock.advance(self.seconds)
        if self.error is not None:
            raise self.error
        return await call()


def _behind(stage: Stage, hub: _Hub) -> CompleteWorld:
    return dataclasses.replace(stage.world, hub=PatientHub(hub, stage.clock.now), hub_trust=HubTrust())


async def _networks(stage: Stage, *numbers: int) -> None:
    """Private networks that the hub has to be told of."""
    await stage.organization()
    async with stage.db.transaction() as connection:
        for number in numbers:
            values = {"id": NetworkId(uuid7()), "name": f"net-{number}", "block": 1_000 + number}
            (made,) = await rows(connection, _NETWORK, **values)
            of = OrganizationId(made.organization_id)
            await connection.execute(_ON_HUB, {"id": values["id"], "of": of, "number": number})


async def _turns(stage: Stage, world: CompleteWorld, *names: str, lasting: timedelta) -> list[Report]:
    """Every five seconds each of these loops runs once."""
    until, reports = stage.clock.now() + lasting, list[Report]()
    while stage.clock.now() < until:
        for name in names:
            reports += await stage.run(name, world=world)
        stage.clock.advance(5)
    return reports


async def test_a_hub_that_hangs_is_asked_about_once_a_minute_and_costs_nobody_else_time(stage: Stage) -> None:
    await _networks(stage, *range(1, 13))
    hub = _Hub(stage, 8, Unreachable("no answer in time"))
    world = _behind(stage, hub)
    began = stage.clock.now()
    reports = await _turns(stage, world, "sync_hub", "rotate_ssh_authorities", lasting=timedelta(minutes=10))
    assert 9 <= hub.calls <= 16, "the back-off ends at a minute"
    errors = {error for report in reports for error in report.errors}
    silent = f"the hub has not answered since {began + timedelta(seconds=8):%Y-%m-%d %H:%M:%S} UTC"
    assert all(silent in error or "no answer in time" in error for error in errors)
    assert len(errors) <= 5, "the same words each time, so that the log does not repeat them"
    assert all(len(report.errors) == 1 for report in reports if report.errors), "one line for all networks"
    hub.error, hub.seconds = None, 0
    stage.clock.advance(RETRY_CEILING.total_seconds())
    await stage.run("sync_hub", world=world)
    assert stage.hub.networks.keys() == set(range(1, 13)), "the first success lets all of them go on"


async def test_one_network_that_hangs_on_the_hub_delays_no_other_and_two_in_a_row_are_the_hub(
    stage: Stage,
) -> None:
    await _networks(stage, *range(1, 7))
    hub = _Hub(stage, 1, None)
    hub.hung = {1}
    world = _behind(stage, hub)
    (report,) = await stage.run("sync_hub", world=world)
    assert stage.hub.networks.keys() == {2, 3, 4, 5, 6}
    (error,) = report.errors
    assert error.startswith("network 1: HubAway")
    hub.hung = set(range(1, 7))
    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE hub_networks SET synced_at = NULL"))
    before = hub.calls
    await stage.run("sync_hub", world=world)
    assert hub.calls - before <= sync_hub.CALLS_MAX, "the rest was not asked in vain"


async def test_a_slow_hub_is_given_as_much_as_an_activation_has_time_for(stage: Stage) -> None:
    await _networks(stage, *range(1, 13))
    hub = _Hub(stage, 4, None)
    world = _behind(stage, hub)
    (report,) = await stage.run("sync_hub", world=world)
    assert (report.more, report.errors) == (True, [])
    assert hub.calls < 12
    while report.more:
        (report,) = await stage.run("sync_hub", world=world)
    assert stage.hub.networks.keys() == set(range(1, 13))


async def test_while_the_hub_hangs_the_nodes_of_a_cluster_get_their_tunnels_and_lose_those_of_removed_ones(
    stage: Stage,
) -> None:
    cluster = Cluster(stage)
    owner = await cluster.build()
    pool = await node_pools.pool(stage, owner, nodes=3)
    await cluster.play_until(lambda: len(cluster.open_nodes) == 3)
    members = cluster.members
    members.behind_nat.update(str(machine.address) for machine in stage.cloud.alive())
    async with stage.db.transaction() as connection:
        # Two nodes behind NAT need a relay on the hub.
        await connection.execute(text("UPDATE nodes SET endpoint = NULL"))
    hub = _Hub(stage, 8, Unreachable("no answer in time"))
    world = _behind(stage, hub)
    await _turns(stage, world, "sync_overlay", lasting=timedelta(minutes=5))
    assert hub.calls <= 9
    (lease, *_) = await node_pools.members(stage, pool)
    await node_pools.lose(stage, lease)
    (away,) = await stage.machines(lease)
    key = members.members[str(away.address)].key
    began, before = stage.clock.now(), hub.calls
    for _ in range(60):
        await stage.run("release_machines")
        await stage.run("leave_nodes")
        await stage.run("sync_overlay", world=world)
        if not members.members["eu-1.internal"].lists(key):
            break
        stage.clock.advance(2)
    waited = stage.clock.now() - began
    assert not members.members["eu-1.internal"].lists(key)
    assert waited <= timedelta(seconds=30 + 8 * (hub.calls - before)), waited
    assert hub.calls - before <= 2
