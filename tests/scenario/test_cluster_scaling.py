"""Nodes come for pods that wait and leave when no pod needs them, as NodePools and ScalingPolicies in a cluster ask."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import clusters as cluster_rows
from control_plane.db import projects, scaled_pools
from control_plane.domain.envelope import Envelope
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import LIVE, Lease
from control_plane.domain.node_pool import NodePool, NodePoolState
from control_plane.world import uuid7
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Invalid, NotFound
from data_plane.cluster.resource import NODE_POOL, POD, SCALING_POLICY, Object, resource_of
from data_plane.simulation.kubernetes import FakeKubernetes
from reconciler import scaling_watch
from reconciler.cluster_tenants import tenant_of
from reconciler.loops.clusters import scale_clusters
from tests.support import clusters, node_pools, scaling
from tests.support.node_cluster import Cluster
from tests.support.rows import rows
from tests.support.scaling import condition
from tests.support.stage import Stage

pytestmark = pytest.mark.database


@dataclasses.dataclass
class Place:
    """The namespace of an organization's default project in a cluster."""

    cluster: Cluster
    organization_id: OrganizationId
    tenant: Tenant

    @property
    def stage(self) -> Stage:
        return self.cluster.stage

    @property
    def server(self) -> FakeKubernetes:
        return self.cluster.server

    def write(self, *things: Object) -> None:
        """As an update does, where an object of the name is there: it stays the same object."""
        for thing in things:
            metadata = thing["metadata"]
            place = (resource_of(thing).plural, metadata["namespace"], metadata["name"])
            before = self.server.objects.get(place, {"metadata": {}})
            self.server.put({**before, **thing, "metadata": {**before["metadata"], **metadata}})

    def scale(self, **more: Any) -> None:
        """A node pool and a policy for it."""
        namespace = self.tenant.namespace
        self.write(scaling.node_pool(namespace), scaling.policy(namespace, **more))

    def pend(self, *names: str, **more: Any) -> None:
        for name in names:
            self.write(scaling.pending(self.tenant, name, self.stage.clock.now(), **more))

    def bind(self, name: str, node: str) -> None:
        """What the scheduler and the kubelet do."""
        pod = self._object(POD, name)
        self.write({**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}})

    async def end(self, name: str) -> None:
        await self.server.delete(POD, name, self.tenant.namespace)

    def _object(self, resource: Any, name: str) -> Object:
        return self.server.objects[resource.plural, self.tenant.namespace, name]

    def pool_object(self, name: str = "train") -> Object:
        return self._object(NODE_POOL, name)

    def policy_object(self, name: str = "grow") -> Object:
        return self._object(SCALING_POLICY, name)

    async def pool(self, name: str = "train") -> NodePool:
        async with self.stage.db.reading() as connection:
            (row,) = await rows(
                connection,
                text("SELECT id FROM node_pools WHERE name = :name AND state <> 'gone'"),
                name=name,
            )
        return await node_pools.stored(self.stage, row.id)

    async def live(self, name: str = "train") -> list[Lease]:
        found = await node_pools.members(self.stage, await self.pool(name))
        return [lease for lease in found if lease.state in LIVE]


@pytest.fixture
async def place(stage: Stage) -> Place:
    return await place_on(stage)


async def place_on(stage: Stage) -> Place:
    cluster = Cluster(stage)
    organization_id = await cluster.build()
    cluster.kubelets.gpus = 1
    async with stage.db.reading() as connection:
        found = await cluster_rows.named(connection, "eu-1")
        project = await projects.default(connection, organization_id)
    assert found is not None
    await clusters.issued(stage, found, organization_id, "laptop")
    return Place(cluster, organization_id, tenant_of(organization_id, project.id))


async def look(place: Place, seconds: float = 11) -> None:
    """One look of the loop, so long later that it is due."""
    place.stage.clock.advance(seconds)
    for report in await place.stage.run("scale_clusters"):
        assert report.errors == []


async def test_a_pod_that_waits_gets_a_node_which_leaves_once_it_is_empty(place: Place) -> None:
    place.scale()
    place.pend("trainer")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    (node,) = place.cluster.open_nodes
    place.bind("trainer", node["metadata"]["name"])
    await place.cluster.play(30)
    status = place.pool_object()["status"]
    assert (status["nodes"], status["readyNodes"], status["usdPerHour"]) == (1, 1, "3.60")
    assert condition(place.policy_object(), "CapacityAvailable")["status"] == "True"
    await place.cluster.play(600, step=30)
    assert len(place.cluster.open_nodes) == 1, "it has work"
    await place.end("trainer")
    await place.cluster.play(240, step=30)
    assert len(await place.live()) == 1, "it has not been empty for long enough"
    await place.cluster.play_until(lambda: not place.stage.cloud.alive())
    assert await place.live() == []
    pool = await place.pool()
    assert (pool.state, pool.nodes) == (NodePoolState.READY, 0)
    await place.stage.check()


async def test_what_is_on_its_way_is_not_ordered_again(place: Place) -> None:
    place.scale()
    place.pend("one", "two")
    for _ in range(10):
        await look(place)
    assert len(await place.live()) == 2
    place.pend("three")
    for _ in range(3):
        await look(place)
    assert len(await place.live()) == 3


async def _opened(place: Place, **more: Any) -> str:
    """A pool with one node, on which a pod runs. Returns the name of the node."""
    place.scale(**more)
    place.pend("trainer")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    (node,) = place.cluster.open_nodes
    place.bind("trainer", node["metadata"]["name"])
    await place.cluster.play(30)
    return str(node["metadata"]["name"])


async def test_limits_and_the_budget_hold_nodes_back_and_say_so(place: Place) -> None:
    place.scale(pools={"train": (0, 10)}, limits={"gpus": 3}, usd_per_hour="7.20")
    place.pend(*(f"pod-{number}" for number in range(5)))
    await look(place)
    await look(place)
    assert len(await place.live()) == 2, "the budget is for two"
    policy = place.policy_object()
    over = condition(policy, "BudgetReached")
    assert (over["status"], over["reason"]) == ("True", "Reached")
    assert "nodes cost 7.20 of 7.20 USD per hour, and one more of train costs 3.60" in over["message"]
    assert condition(policy, "LimitReached")["status"] == "False"
    assert (policy["status"]["nodes"], policy["status"]["usdPerHour"], policy["status"]["pendingPods"]) == (
        2,
        "7.20",
        5,
    )
    since = over["lastTransitionTime"]
    place.scale(pools={"train": (0, 10)}, limits={"gpus": 3}, usd_per_hour="100")
    await look(place)
    await look(place)
    assert len(await place.live()) == 3
    assert "there are 3 of 3 GPUs" in condition(place.policy_object(), "LimitReached")["message"]
    place.scale(pools={"train": (0, 10)}, limits={"gpus": 3}, usd_per_hour="1")
    for _ in range(3):
        await look(place)
    assert len(await place.live()) == 3, "a lower budget ends nothing that is needed"
    assert condition(place.policy_object(), "BudgetReached")["lastTransitionTime"] > since


async def test_capacity_that_cannot_be_bought_is_said_with_the_reason_and_since_when(place: Place) -> None:
    before = dict(place.stage.cloud.stock)
    place.stage.cloud.stock.update(dict.fromkeys(before, 0))
    await place.stage.run("refresh_offers")
    place.scale()
    place.pend("trainer")
    await look(place)
    await place.cluster.play(30)
    for thing in (place.pool_object(), place.policy_object()):
        said = condition(thing, "CapacityAvailable")
        assert (said["status"], said["reason"]) == ("False", "NoCapacity")
        assert "1 node waits for stock: " in said["message"]
    since = condition(place.policy_object(), "CapacityAvailable")["lastTransitionTime"]
    await place.cluster.play(120)
    said = condition(place.policy_object(), "CapacityAvailable")
    assert (said["status"], said["lastTransitionTime"]) == ("False", since)
    assert len(await place.live()) == 1, "nothing is ordered again meanwhile"
    place.stage.cloud.stock.update(before)
    await place.stage.run("refresh_offers")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    await place.cluster.play(15)
    assert condition(place.policy_object(), "CapacityAvailable")["status"] == "True"


async def test_an_object_spends_no_more_than_the_organization_may(place: Place) -> None:
    await place.stage.narrow(place.organization_id, Envelope(gpus=2))
    place.scale(pools={"train": (0, 10)})
    place.pend(*(f"pod-{number}" for number in range(5)))
    for _ in range(5):
        await look(place)
    assert len(await place.live()) == 2
    said = condition(place.pool_object(), "Admitted")
    assert (said["status"], said["reason"]) == ("False", "QuotaExceeded")
    assert (await place.pool()).nodes == 2, "nothing goes on asking in its place"
    await place.stage.narrow(place.organization_id, Envelope(gpus=4))
    for _ in range(5):
        await look(place)
    assert len(await place.live()) == 4
    assert condition(place.pool_object(), "Admitted")["status"] == "False", (
        "the fifth one is asked for in vain"
    )
    await place.end("pod-4")
    for _ in range(4):
        await look(place)
    assert condition(place.pool_object(), "Admitted")["status"] == "True", (
        "nobody asks for another one any more"
    )


async def test_the_object_itself_says_how_many_nodes_while_no_policy_does(place: Place) -> None:
    namespace = place.tenant.namespace
    place.write(scaling.node_pool(namespace, nodes=2))
    await look(place)
    assert len(await place.live()) == 2
    place.write(scaling.node_pool(namespace, nodes=1))
    await look(place)
    assert len(await place.live()) == 1
    assert place.pool_object()["status"]["lastScaledWhy"] == "its NodePool says 1 node"
    place.write(scaling.node_pool(namespace))
    await look(place)
    assert await place.live() == []


async def test_deleting_the_object_ends_its_nodes_and_then_it_is_gone(place: Place) -> None:
    await _opened(place)
    pool = await place.pool()
    await place.server.delete(NODE_POOL, "train", place.tenant.namespace)
    await look(place)
    assert (await node_pools.stored(place.stage, pool.id)).state is NodePoolState.DELETING
    assert condition(place.pool_object(), "Accepted")["reason"] == "Deleting"
    await place.cluster.play_until(lambda: not place.server.named(NODE_POOL))
    assert (await node_pools.stored(place.stage, pool.id)).state is NodePoolState.GONE
    await place.stage.check()


async def test_an_object_that_vanished_takes_no_node_with_work_along(place: Place) -> None:
    node = await _opened(place)
    place.server._drop(("nodepools", place.tenant.namespace, "train"))
    place.server._drop(("scalingpolicies", place.tenant.namespace, "grow"))
    await place.cluster.play(3_600, step=60)
    assert [each["metadata"]["name"] for each in place.cluster.open_nodes] == [node]
    await place.end("trainer")
    pool = await place.pool()
    await place.cluster.play_until(lambda: not place.stage.cloud.alive())
    await place.cluster.play(60)
    assert (await node_pools.stored(place.stage, pool.id)).state is NodePoolState.GONE


async def test_an_object_that_is_created_again_goes_on_with_its_nodes(place: Place) -> None:
    node = await _opened(place)
    place.server._drop(("nodepools", place.tenant.namespace, "train"))
    await look(place)
    place.scale()
    await look(place)
    await place.cluster.play(600, step=30)
    assert [each["metadata"]["name"] for each in place.cluster.open_nodes] == [node]
    assert condition(place.pool_object(), "Accepted")["status"] == "True"


async def test_a_cluster_that_is_away_or_answers_in_part_ends_nothing(place: Place) -> None:
    await _opened(place)
    place.server.away = True
    for _ in range(5):
        place.stage.clock.advance(301)
        (report,) = await place.stage.run("scale_clusters")
        assert report.errors, "operators read it"
    assert len(await place.live()) == 1
    place.server.away = False
    place.server.fail_next = [NotFound("the server could not find the requested resource")]
    place.stage.clock.advance(301)
    (report,) = await place.stage.run("scale_clusters")
    assert "NotFound" in report.errors[0]
    assert len(await place.live()) == 1


async def test_looks_that_are_far_apart_do_not_count_as_one_empty_time(place: Place) -> None:
    await _opened(place, empty_for=300)
    await place.end("trainer")
    for _ in range(5):
        await look(place, seconds=301)
    assert len(await place.live()) == 1, "nobody knows what ran there in between"
    for _ in range(4):
        await look(place, seconds=100)
    assert await place.live() == []


async def test_a_pod_that_lands_at_the_last_moment_keeps_its_node(place: Place) -> None:
    node = await _opened(place, empty_for=60)
    await place.end("trainer")
    await look(place)
    patch = place.server.patch

    async def landed(resource: Any, name: str, change: Object, namespace: str | None = None) -> Object:
        if "unschedulable" in change.get("spec", {}) and change["spec"]["unschedulable"]:
            late = scaling.pending(place.tenant, "late", place.stage.clock.now())
            place.write({**late, "spec": {**late["spec"], "nodeName": node}, "status": {"phase": "Running"}})
        return await patch(resource, name, change, namespace)

    place.server.patch = landed  # type: ignore[method-assign] # The scheduler is quicker.
    await look(place, seconds=61)
    assert len(await place.live()) == 1
    (found,) = place.cluster.open_nodes
    assert "unschedulable" not in found["spec"], "and other pods may land there again"


async def test_two_workers_order_a_node_once(place: Place) -> None:
    place.scale()
    place.pend("one", "two")
    place.stage.clock.advance(11)
    await asyncio.gather(*(scale_clusters.activate(place.stage.replica(name)) for name in ("a", "b", "c")))
    assert len(await place.live()) == 2


async def test_what_cannot_be_followed_is_told_why_and_spends_nothing(place: Place) -> None:
    namespace = place.tenant.namespace
    await node_pools.pool(place.stage, place.organization_id, name="mine", nodes=1)
    place.write(
        scaling.node_pool(namespace, "mine"),
        scaling.node_pool(namespace, "unsold", sku="b300x8"),
        scaling.node_pool(namespace, "reserved", labels={"splitplane.io/project": "prj_other"}),
        scaling.node_pool(namespace, "nowhere", environment="moon"),
        scaling.node_pool(namespace, "twice"),
        scaling.policy(namespace, "first", pools={"twice": (0, 2)}),
    )
    await look(place)
    place.write(scaling.policy(namespace, "second", pools={"twice": (0, 2), "other": (0, 1)}))
    await look(place)
    told = {
        name: condition(place.pool_object(name), "Accepted")
        for name in ("mine", "unsold", "reserved", "nowhere", "twice")
    }
    assert {name: (each["status"], each["reason"]) for name, each in told.items()} == {
        "mine": ("False", "NameTaken"),
        "unsold": ("False", "SkuUnknown"),
        "reserved": ("False", "Unreadable"),
        "nowhere": ("False", "EnvironmentUnknown"),
        "twice": ("True", "Accepted"),
    }
    assert "keys below splitplane.io are reserved" in told["reserved"]["message"]
    second = condition(place.policy_object("second"), "Accepted")
    assert (second["status"], second["message"]) == (
        "False",
        "the ScalingPolicy first scales twice already, and is the older one",
    )
    assert condition(place.policy_object("first"), "Accepted")["status"] == "True"


async def test_a_pool_that_is_deleted_in_the_api_is_not_made_again(place: Place) -> None:
    await _opened(place)
    await node_pools.delete(place.stage, await place.pool())
    for _ in range(3):
        await look(place)
    said = condition(place.pool_object(), "Accepted")
    assert (said["status"], said["reason"]) == ("False", "Deleted")
    assert "its customer deleted it" in said["message"]
    await place.cluster.play_until(lambda: not place.stage.cloud.alive())
    await place.cluster.play(60)
    assert condition(place.pool_object(), "Accepted")["reason"] == "Deleted"
    await place.server.delete(NODE_POOL, "train", place.tenant.namespace)
    await look(place)
    assert not place.server.named(NODE_POOL)


async def test_objects_outside_the_namespace_of_a_project_are_not_looked_at(place: Place) -> None:
    place.write(scaling.node_pool("kube-system", nodes=3), scaling.node_pool("prj-0000", nodes=3))
    await look(place)
    assert await place.stage.states() == {}


async def test_a_pod_that_the_scheduler_keeps_off_its_node_costs_one_node_for_a_while_and_no_more(
    place: Place,
) -> None:
    place.scale(empty_for=60)
    place.pend("stuck")
    await place.cluster.play_until(lambda: place.cluster.open_nodes)
    await place.cluster.play_until(lambda: not place.stage.cloud.alive())
    said = condition(place.policy_object(), "PodsUnplaceable")
    assert said["status"] == "True"
    assert "stuck: scaling does not understand what keeps it off a node" in said["message"]
    await place.cluster.play(1_200, step=60)
    assert not place.stage.cloud.alive(), "nothing is bought for it again"


async def test_what_a_cluster_refuses_of_one_project_is_no_failure_of_the_cluster(place: Place) -> None:
    """What a customer stores in a cluster can make requests about it fail, and others share the cluster."""
    await _opened(place)
    patch_status = place.server.apply_status

    async def refused(intent: Object) -> Object:
        raise Invalid(f"{intent['metadata']['name']} is refused as it is")

    place.server.apply_status = refused  # type: ignore[method-assign] # Only of this project.
    place.pend("later")
    place.stage.clock.advance(11)
    (report,) = await place.stage.run("scale_clusters")
    assert "Invalid" in report.errors[0]
    async with place.stage.db.reading() as connection:
        (turn,) = await rows(connection, text("SELECT tries, due_at FROM scaling_turns"))
    assert turn.tries == 0, "the cluster itself is well"
    assert turn.due_at - place.stage.clock.now() <= timedelta(seconds=10)
    place.server.apply_status = patch_status  # type: ignore[method-assign] # It is accepted again.
    await look(place)


async def eventually(what: str, is_true: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(20):
            while not is_true():  # noqa: ASYNC110 - rows and lists have no event
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(what) from None


class Bell:
    """Rung by what watches clusters."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def rings(self) -> None:
        async with asyncio.timeout(20):
            await self._rung.wait()
        self._rung.clear()


async def acted(place: Place, bell: Bell, is_so: Callable[[], bool]) -> None:
    """Look whenever the bell rings, and never by the clock, until something is so."""
    while not is_so():
        await bell.rings()
        (report,) = await place.stage.run("scale_clusters")
        assert report.errors == []


def _accepts(place: Place, name: str) -> bool:
    place_of = (NODE_POOL.plural, place.tenant.namespace, name)
    found = place.server.objects.get(place_of, {})
    return "status" in found and condition(found, "Accepted")["status"] == "True"


@pytest.fixture
async def bell(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bell]:
    """The cluster is watched, and was looked at."""
    for name in ("LOOKS_APART_SECONDS", "HELD_AGAIN_SECONDS"):
        monkeypatch.setattr(scaling_watch, name, 0.01)
    monkeypatch.setattr(scaling_watch, "RETRY_FIRST", timedelta(milliseconds=10))
    await look(place)
    bell = Bell()
    watching = asyncio.create_task(scaling_watch.keep(place.stage.world, bell.ring))
    await bell.rings()
    yield bell
    watching.cancel()
    await asyncio.wait([watching])
    async with place.stage.db.reading() as connection:
        (turn,) = await rows(connection, text("SELECT watch_until FROM scaling_turns"))
    assert turn.watch_until is None, "another process may watch it at once"


async def test_a_cluster_that_is_watched_is_looked_at_when_something_changes_and_a_pod_when_it_is_time(
    place: Place, bell: Bell
) -> None:
    began = place.stage.clock.now()
    place.scale()
    await acted(place, bell, lambda: _accepts(place, "train"))
    assert place.stage.clock.now() == began, "the clock alone leads to no look"
    place.pend("trainer")
    await acted(place, bell, lambda: place.policy_object()["status"].get("pendingPods") == 1)
    assert await place.live() == [], "a pod waits for ten seconds"
    place.stage.clock.advance(10)
    await place.stage.run("scale_clusters")
    assert len(await place.live()) == 1


async def test_a_watch_that_breaks_begins_anew_and_misses_nothing(place: Place, bell: Bell) -> None:
    await place.stage.run("scale_clusters")
    place.server.away = True
    place.server.break_watches()
    place.scale()
    place.server.away = False
    await acted(place, bell, lambda: _accepts(place, "train"))


async def test_a_change_during_a_look_leads_to_the_next_one_at_once(place: Place, bell: Bell) -> None:
    apply_status = place.server.apply_status

    async def later(intent: Object) -> Object:
        place.server.apply_status = apply_status  # type: ignore[method-assign] # Once.
        place.write(scaling.node_pool(place.tenant.namespace, "more"))
        return await apply_status(intent)

    place.server.apply_status = later  # type: ignore[method-assign] # Somebody is quicker.
    place.scale()
    await acted(place, bell, lambda: _accepts(place, "more"))


async def test_one_process_watches_a_cluster_and_another_one_takes_over_when_it_is_gone(
    place: Place, bell: Bell
) -> None:
    other = Bell()
    replica = place.stage.replica("other")
    waits = asyncio.create_task(scaling_watch.keep(replica, other.ring))
    place.scale()
    await bell.rings()
    assert len(place.server.watched_by) == 3, "one connection for each kind, whatever the number of processes"
    # The first process goes on here, so that what another one takes over is only that its time was over.
    async with place.stage.db.transaction() as connection:
        await connection.execute(text("UPDATE scaling_turns SET watch_token = NULL, watch_until = NULL"))
        await scaled_pools.take_watches(
            connection,
            token=uuid7(),
            now=place.stage.clock.now(),
            until=place.stage.clock.now() + scaling_watch.HELD_FOR,
            limit=1,
        )
    await eventually("who lost it stops", lambda: not place.server.watched_by)
    place.stage.clock.advance(scaling_watch.HELD_FOR.total_seconds())
    await eventually("another one has begun", lambda: len(place.server.watched_by) == 3)
    waits.cancel()
    await asyncio.wait([waits])


@pytest.mark.usefixtures("bell")
async def test_a_cluster_without_objects_of_ours_is_looked_at_more_rarely_while_it_is_watched(
    place: Place,
) -> None:
    for _ in range(10):  # A kind whose first list comes late leads to a look of its own.
        place.stage.clock.advance(scale_clusters.AGAIN.total_seconds())
        (report,) = await place.stage.run("scale_clusters")
        if report.looked_at == 0:
            break
    assert report.looked_at == 0
    place.stage.clock.advance(scale_clusters.AGAIN_IDLE.total_seconds())
    (report,) = await place.stage.run("scale_clusters")
    assert report.looked_at == 1, "a watch may miss something"
