"""What operators see of clusters in graphs: states, joins, nodes that are not ready, tunnels and kubeconfigs."""

import pytest
from prometheus_client import REGISTRY

from control_plane.db import clusters as db_clusters
from reconciler.figures import FIGURES
from tests.support import clusters, node_pools
from tests.support.node_cluster import Cluster
from tests.support.stage import Stage

pytestmark = pytest.mark.database
NAME = "eu-1"


def _value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"splitplane_{name}", labels)


async def test_a_cluster_is_seen_in_figures_from_its_nodes_to_its_kubeconfigs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FIGURES, "figures", None)
    cluster = Cluster(stage)
    organization_id = await cluster.build()
    opened, failed = (
        _value("node_joins_total", cluster=NAME, outcome=outcome) or 0 for outcome in ("opened", "failed")
    )
    seconds = _value("node_join_seconds_sum", cluster=NAME) or 0
    pool = await node_pools.pool(stage, organization_id, nodes=2)
    bad = await cluster.first_address()
    cluster.kubelets.pressure[bad] = "DiskPressure"
    await cluster.play(25 * 60, step=30)
    assert _value("node_joins_total", cluster=NAME, outcome="failed") == failed + 1
    del cluster.kubelets.pressure[bad]
    await cluster.play_until(lambda: len(cluster.open_nodes) == 2)
    await cluster.play(40)
    assert _value("node_joins_total", cluster=NAME, outcome="opened") == opened + 2
    assert (_value("node_join_seconds_sum", cluster=NAME) or 0) > seconds

    answered = "cluster_answered_timestamp_seconds"
    assert stage.clock.now().timestamp() - (_value(answered, cluster=NAME) or 0) < 60
    cluster.server.away = True
    await cluster.play(6 * 60, step=30)
    assert stage.clock.now().timestamp() - (_value(answered, cluster=NAME) or 0) > 300
    cluster.server.away = False
    await cluster.play(40)
    assert stage.clock.now().timestamp() - (_value(answered, cluster=NAME) or 0) < 60

    async with stage.db.reading() as connection:
        found = await db_clusters.named(connection, NAME)
    assert found is not None
    await clusters.asked(stage, found, organization_id, "ci")
    asked_at = stage.clock.now().timestamp()
    await stage.run("read_figures")
    assert _value("clusters", state="ready") == 1
    assert _value("node_pools", state="ready") == 1
    assert _value("nodes", cluster=NAME, state="ready") == 2
    assert _value("nodes_unready", cluster=NAME) == 0
    assert _value("cluster_failing", cluster=NAME) == 0
    assert _value("kubeconfigs", cluster=NAME) == 0
    assert _value("kubeconfigs_wanted_oldest_timestamp_seconds", cluster=NAME) == asked_at
    read_at = _value("tunnels_read_oldest_timestamp_seconds", cluster=NAME)
    assert read_at is not None
    assert asked_at - read_at < 600
    handshake_at = _value("server_handshake_oldest_timestamp_seconds", cluster=NAME)
    assert handshake_at is not None
    assert 0 < asked_at - handshake_at < 600

    for _ in range(3):
        await stage.run("keep_tenants")
        stage.clock.advance(1)
    await stage.run("keep_kubeconfigs")
    cluster.agents.members.faults.gone.add(str(stage.cloud.alive()[0].address))
    await cluster.play(40)
    await stage.run("read_figures")
    assert _value("kubeconfigs", cluster=NAME) == 1
    assert _value("kubeconfigs_wanted_oldest_timestamp_seconds", cluster=NAME) is None
    assert _value("nodes_unready", cluster=NAME) == 1
    await node_pools.delete(stage, pool)
