"""Node pools on a stage, and what the loops that join nodes would do with them."""

from contextlib import suppress

from control_plane.db import leases, node_pools
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import NodePoolId, OrganizationId
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, step
from control_plane.domain.node_pool import NodePool, NodePoolEvent
from control_plane.domain.node_pool import step as pool_step
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.transitions import Moved
from control_plane.outcomes.leases import end
from control_plane.services import node_pools as services
from control_plane.services.node_pools import Asker, PoolOverview, WantedPool
from tests.support.stage import CUSTOMER, Stage

REQUEST = CapacityRequest("h100x1")


async def try_pool(
    stage: Stage,
    organization_id: OrganizationId,
    *,
    nodes: int = 2,
    name: str = "train",
    cluster: str = "eu-1",
    wait_timeout_seconds: int = 1_800,
) -> PoolOverview | Refused:
    wanted = WantedPool(cluster, name, REQUEST, nodes, wait_timeout_seconds=wait_timeout_seconds)
    return await try_wanted(stage, organization_id, wanted)


async def try_wanted(
    stage: Stage, organization_id: OrganizationId, wanted: WantedPool
) -> PoolOverview | Refused:
    made: PoolOverview | Refused | None = None
    with suppress(_RolledBackError):
        async with stage.db.transaction(organization_id) as connection:
            made = await services.create(connection, stage.api, _asker(organization_id), wanted)
            _roll_back_refused(made)
    assert made is not None
    return made


def _asker(organization_id: OrganizationId) -> Asker:
    return Asker(organization_id, CUSTOMER, EVERYWHERE)


class _RolledBackError(Exception):
    """A refusal rolls its transaction back, as in the API."""


def _roll_back_refused(made: PoolOverview | Refused) -> None:
    if isinstance(made, Refused):
        raise _RolledBackError


async def pool(
    stage: Stage,
    organization_id: OrganizationId,
    *,
    nodes: int = 2,
    name: str = "train",
    cluster: str = "eu-1",
    wait_timeout_seconds: int = 1_800,
) -> NodePool:
    made = await try_pool(
        stage,
        organization_id,
        nodes=nodes,
        name=name,
        cluster=cluster,
        wait_timeout_seconds=wait_timeout_seconds,
    )
    assert isinstance(made, PoolOverview), made
    return made.pool


async def scale(stage: Stage, wanted: NodePool, nodes: int) -> PoolOverview | Refused:
    made: PoolOverview | Refused | None = None
    organization_id = wanted.organization_id
    with suppress(_RolledBackError):
        async with stage.db.transaction(organization_id) as connection:
            made = await services.scale(connection, stage.api, _asker(organization_id), wanted.id, nodes)
            _roll_back_refused(made)
    assert made is not None
    return made


async def delete(stage: Stage, wanted: NodePool) -> PoolOverview:
    async with stage.db.transaction(wanted.organization_id) as connection:
        asker = _asker(wanted.organization_id)
        deleted = await services.delete(connection, stage.api, asker, wanted.id)
    assert isinstance(deleted, PoolOverview), deleted
    return deleted


async def stored(stage: Stage, pool_id: NodePoolId) -> NodePool:
    async with stage.db.reading() as connection:
        found = await node_pools.get(connection, pool_id)
    assert found is not None
    return found


async def members(stage: Stage, wanted: NodePool) -> list[Lease]:
    """The leases that the pool has or had, the oldest first."""
    async with stage.db.transaction() as connection:
        found = await node_pools.members(connection, wanted.id)
        locked = await leases.lock(connection, [member.lease_id for member in found])
    return [locked[member.lease_id] for member in found]


async def opened(stage: Stage, wanted: NodePool) -> NodePool:
    """Open all nodes of a pool whose machines are verified: leases and pool are ready together."""
    now = stage.clock.now()
    async with stage.db.transaction() as connection:
        locked = await node_pools.lock(connection, wanted.id)
        assert locked is not None
        found = await node_pools.members(connection, wanted.id)
        moves = []
        for lease in (await leases.lock(connection, [each.lease_id for each in found])).values():
            moved = step(lease.state, LeaseEvent.VERIFIED)
            assert isinstance(moved, Moved), lease.state
            moves.append(LeaseMove(lease.id, lease.generation, moved))
        await leases.move(connection, moves, actor=CUSTOMER, now=now)
        ready = pool_step(locked.state, NodePoolEvent.OPENED)
        assert isinstance(ready, Moved)
        assert await node_pools.move(connection, locked, ready, now=now)
    return await stored(stage, wanted.id)


async def lose(stage: Stage, lease: Lease) -> None:
    """The machine of a ready lease is gone."""
    async with stage.db.transaction() as connection:
        (locked,) = (await leases.lock(connection, [lease.id])).values()
        assert await end(
            connection,
            locked,
            LeaseEvent.MACHINE_LOST,
            why="it is gone",
            actor=CUSTOMER,
            now=stage.clock.now(),
        )
