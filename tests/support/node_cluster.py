"""A stage with a cluster on it, the loops that nodes need, and what is in the cluster."""

from collections.abc import Callable

from sqlalchemy import text

from control_plane.domain.ids import OrganizationId
from data_plane.cluster.objects.node import JOINING
from data_plane.cluster.resource import NODE, SECRET, Object
from data_plane.simulation.agents import FakeAgents
from data_plane.simulation.kubelets import FakeKubelets
from data_plane.simulation.kubernetes import FakeClusters, FakeKubernetes
from data_plane.simulation.members import FakeMembers
from reconciler import registry
from tests.support import clusters
from tests.support.rows import rows
from tests.support.ssh_rotation import store_authorities
from tests.support.stage import Stage

PLAYED = frozenset(
    {
        *("place_leases", "launch_machines", "observe_machines", "bootstrap_machines", "refresh_offers"),
        *("join_nodes", "watch_nodes", "leave_nodes", "sync_overlay", "scale_pools", "dismantle_clusters"),
        "scale_clusters",
        *("release_machines", "terminate_machines", "close_leases", "expire_machines"),
    }
)
OTHERS = frozenset(registry.discovered()) - PLAYED
"""Loops that do nothing about nodes, and cost time."""


class Cluster:
    """A stage with a cluster, and what is in the cluster."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def build(self) -> OrganizationId:
        await store_authorities(self.stage)
        organization_id = await self.stage.organization()
        await clusters.created(self.stage, "eu-1")
        await self.stage.run("build_clusters")
        return organization_id

    @property
    def server(self) -> FakeKubernetes:
        assert isinstance(self.stage.world.kubernetes, FakeClusters)
        return self.stage.world.kubernetes.at("https://eu-1.internal:6443")

    @property
    def agents(self) -> FakeAgents:
        assert isinstance(self.stage.world.agents, FakeAgents)
        return self.stage.world.agents

    @property
    def kubelets(self) -> FakeKubelets:
        assert isinstance(self.stage.world.kubernetes, FakeClusters)
        report = self.stage.world.kubernetes.report
        return report.__self__  # type: ignore[union-attr,no-any-return] # The method of a FakeKubelets.

    @property
    def members(self) -> FakeMembers:
        return self.agents.members

    @property
    def nodes(self) -> list[Object]:
        return [thing for place, thing in self.server.objects.items() if place[0] == NODE.plural]

    @property
    def open_nodes(self) -> list[Object]:
        return [
            node for node in self.nodes if JOINING not in {taint["key"] for taint in node["spec"]["taints"]}
        ]

    async def row_counts(self) -> dict[str, int]:
        async with self.stage.db.reading() as connection:
            found = await rows(connection, text("SELECT state, count(*) AS n FROM nodes GROUP BY state"))
        return {row.state: row.n for row in found}

    async def steps(self) -> list[str]:
        statement = text("SELECT step FROM node_steps ORDER BY at, xmin::text::bigint")
        async with self.stage.db.reading() as connection:
            return [row.step for row in await rows(connection, statement)]

    async def play(self, seconds: float, *, step: float = 5) -> None:
        await self.stage.play(seconds, step=step, without=OTHERS)

    async def first_address(self) -> str:
        """The address of the first machine that is bought, before it is anything."""
        await self.play_until(self.stage.cloud.alive)
        return str(self.stage.cloud.alive()[0].address)

    async def play_until(self, done: Callable[[], object], *, seconds_max: int = 1_800) -> None:
        for _ in range(seconds_max // 5):
            if done():
                return
            await self.play(5)
        statement = text("SELECT state, failing_why FROM nodes")
        async with self.stage.db.reading() as connection:
            why = [tuple(row) for row in await rows(connection, statement)]
        raise AssertionError(f"not within {seconds_max} s: {why} {await self.steps()}")

    async def nothing_is_left(self, *, cleaned: bool = True) -> None:
        """`cleaned`: also on the machines, unless they were terminated before that."""
        assert not self.nodes
        assert not [name for name in self.server.named(SECRET) if name.startswith("bootstrap-token-")]
        assert not self.stage.cloud.alive()
        assert not (cleaned and self.agents.running)
        assert not self.agents.members.members["eu-1.internal"].peers
        assert set(await self.row_counts()) <= {"gone"}
