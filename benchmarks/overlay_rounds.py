"""What a round of sync_overlay costs in which nothing has to be done, with the digest of rows and without it.

`python -m benchmarks overlay_rounds`. Tables of a schema of their own have the columns that the queries read and
nothing else, so that a fleet is one statement. Clusters have up to 4,000 nodes, 50 of each organization.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial

from sqlalchemy import text

from benchmarks import ground
from benchmarks.peer_map import CLUSTER, GROUP
from benchmarks.results import Figure, median
from control_plane.db import overlays
from control_plane.db.engine import Database
from control_plane.domain.ids import ClusterId
from control_plane.domain.peer_map import configurations, versions
from reconciler.overlay import map_of, server_member

FLEETS = (1_000, 10_000)
ROUNDS = 5

_SCHEMA = text("CREATE SCHEMA bench")
_FIRST = text("""
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = bench, public', current_database()); END $$
""")
_TABLES = text("""
CREATE TABLE bench.clusters AS SELECT md5('cluster ' || n)::uuid AS id, 'ready' AS state,
  NULL::timestamptz AS server_key_asked_at, n AS overlay FROM generate_series(1, :clusters) n
""")
_OTHERS = (
    text("""
    CREATE TABLE bench.overlays AS SELECT id AS cluster_id, md5(id::text) || repeat('k', 11) || '=' AS public_key,
      NULL::text AS next_key, NULL::text AS old_key, md5('version') AS applied_version, 0 AS tries FROM bench.clusters
    """),
    text("""
    CREATE TABLE bench.server_hosts AS SELECT 'host ' || overlay AS name, '192.0.2.1' AS address, 22 AS ssh_port,
      repeat('h', 68) AS host_key, '192.0.2.1' AS outside, id AS cluster_id FROM bench.clusters
    """),
    text("""
    CREATE TABLE bench.relays (cluster_id uuid, number int, organization_id uuid, public_key text, endpoint text,
      applied_version text, unneeded_since timestamptz)
    """),
    text("""
    CREATE TABLE bench.machines AS SELECT md5('machine ' || n)::uuid AS id, md5('launch ' || n) AS launch_key,
      '203.0.113.' || n % 250 AS address, 22 AS ssh_port, repeat('h', 68) AS host_key FROM generate_series(1, :nodes) n
    """),
    text("""
    CREATE TABLE bench.nodes AS SELECT md5('node ' || n)::uuid AS id,
      md5('organization ' || n / :of_one)::uuid AS organization_id,
      2 + n % :of_cluster AS number, md5('cluster ' || 1 + (n - 1) / :of_cluster)::uuid AS cluster_id,
      md5('machine ' || n)::uuid AS machine_id, 'ready' AS state,
      md5('key ' || n) || repeat('k', 11) || '=' AS public_key, NULL::text AS next_key, NULL::text AS old_key,
      CASE WHEN n % 2 = 0 THEN '203.0.113.1:51820' END AS endpoint, n % :of_cluster AS pod_block,
      md5('version') AS applied_version, 0 AS peers_tries, NULL::timestamptz AS removed_at, NULL::jsonb AS holders,
      NULL::jsonb AS key_holders, now() AS peers_read_at, NULL::timestamptz AS peers_tried_at
    FROM generate_series(1, :nodes) n
    """),
    text("CREATE INDEX ON bench.nodes (cluster_id)"),
    text("CREATE INDEX ON bench.machines (id)"),
    text("ANALYZE"),
)
_CLUSTERS = text("SELECT id FROM bench.clusters ORDER BY overlay")


async def _filled(nodes: int) -> tuple[Database, list[ClusterId]]:
    url = await ground.empty_database(f"overlay_rounds_{nodes}")
    values = {"nodes": nodes, "clusters": -(-nodes // CLUSTER), "of_one": GROUP, "of_cluster": CLUSTER}
    filling = Database(url, role=None, pool_size=1)
    async with filling.transaction() as connection:
        for statement in (_SCHEMA, _FIRST, _TABLES, *_OTHERS):
            names = statement.compile().params
            await connection.execute(statement, {name: values[name] for name in names})
        found = (await connection.execute(_CLUSTERS)).all()
    await filling.close()
    return Database(url, role=None, pool_size=2), [ClusterId(each.id) for each in found]


async def _whole(database: Database, cluster_id: ClusterId) -> None:
    """Without it: every member, every version, and every configuration."""
    async with database.reading() as connection:
        found = await overlays.members(connection, cluster_id)
    overlay = map_of(0, server_member("k" * 43 + "=", "192.0.2.1"), found)
    versions(overlay)
    for _ in configurations(overlay):
        pass


async def _digest(database: Database, cluster_id: ClusterId) -> None:
    async with database.reading() as connection:
        await overlays.digest(connection, cluster_id)


async def _round(clusters: list[ClusterId], one: Callable[[ClusterId], Awaitable[None]]) -> float:
    took: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for cluster_id in clusters:
            await one(cluster_id)
        took.append(time.perf_counter() - begun)
    return median(took)


async def measure() -> list[Figure]:
    figures: list[Figure] = []
    for nodes in FLEETS:
        database, clusters = await _filled(nodes)
        whole = await _round(clusters, partial(_whole, database))
        digest = await _round(clusters, partial(_digest, database))
        figures += [
            Figure(f"{nodes:,} nodes: reading and computing all", whole, "s"),
            Figure(f"{nodes:,} nodes: the digest alone", digest, "s"),
        ]
        await database.close()
    return figures
