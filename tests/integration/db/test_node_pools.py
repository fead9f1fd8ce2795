"""The query for pools about which something is to be done, against the rule that says what."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from uuid import UUID

from sqlalchemy import text

from control_plane.db import node_pools
from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from control_plane.domain.cluster import ClusterState
from control_plane.domain.ids import NodePoolId
from control_plane.domain.lease import LeaseState
from control_plane.domain.node_pool import NodePoolState, decide
from control_plane.domain.organization import OrganizationState
from tests.integration.db.sample import A, a_row, fill, insert
from tests.support.clock import START

L = LeaseState
MEMBERS = ((), (L.READY,), (L.PLACING, L.STARTING), (L.ENDING,), (L.ENDED, L.READY), (L.ENDED,))
NOW = START + timedelta(hours=1)
_ORGANIZATION = text("UPDATE organizations SET state = :state WHERE id = :id")
_CLUSTERS = text("""
UPDATE clusters SET state = :state, version = 'v1', endpoint = 'e', ca_pem = 'c',
  gone_at = CASE WHEN :gone THEN created_at END
""")


async def _pool(
    connection: Connection,
    number: int,
    state: NodePoolState,
    nodes: int,
    members: Sequence[LeaseState],
    timeout_s: int,
) -> NodePoolId:
    ready_at = START if state is NodePoolState.READY else None
    gone_at = START if state is NodePoolState.GONE else None
    row = a_row("node_pools", A, number, state=state, nodes=nodes, wait_timeout_seconds=timeout_s)
    row |= {"request": {"sku": "l4.1x"}, "ready_at": ready_at, "gone_at": gone_at, "due_at": START}
    await insert(connection, "node_pools", row)
    for place, member in enumerate(members):
        opened = START if member is L.READY else None
        lease = a_row("leases", A, number * 10 + place, state=member, network_id=None, node_pool_id=row["id"])
        await insert(connection, "leases", {**lease, "ready_at": opened})
    return NodePoolId(UUID(str(row["id"])))


async def test_a_pool_is_due_exactly_when_the_rule_decides_something_about_it(own: Database) -> None:
    cases = list(product(NodePoolState, (0, 1, 2), MEMBERS, (60, 7_200)))
    async with own.transaction() as connection:
        await fill(connection, A)
        ids = [await _pool(connection, number, *case) for number, case in enumerate(cases, start=10)]
        read = [await node_pools.get(connection, each) for each in ids]
        pools = [pool for pool in read if pool is not None]
        members = {each: await node_pools.members(connection, each) for each in ids}
    seen = set()
    for organization, cluster in product(OrganizationState, ClusterState):
        async with own.transaction() as connection:
            await connection.execute(_ORGANIZATION, {"id": A, "state": organization})
            await connection.execute(_CLUSTERS, {"state": cluster, "gone": cluster is ClusterState.GONE})
            due = set(await node_pools.due(connection, now=NOW, limit=10_000))
            why = await node_pools.ended_why(connection, pools[0])
        for pool, case in zip(pools, cases, strict=True):
            found = decide(pool, members[pool.id], ended_why=why, now=NOW)
            assert (found is not None) is (pool.id in due), (organization, cluster, case, found)
            seen.add(type(found).__name__)
    assert {"Delete", "Release", "Replace", "Close", "NoneType"} <= seen
