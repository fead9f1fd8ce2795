"""Keeps the hub's peers correct: removes the peers of ended claims, and restores peers that the hub has lost.

A machine that joins is sent to the hub at once (reconciler/network.py). This loop is the level-triggered part: it
deletes the peers of ended claims, sends the hub the whole list of every network from time to time, and takes networks
off the hub that have been empty for a while, because the hub has a limited number of places.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from control_plane.db import mesh
from control_plane.db.mesh import HubNetwork
from control_plane.domain.ids import NetworkId
from control_plane.domain.network import range_of
from data_plane.access.port import AccessError, Unreachable
from data_plane.mesh.port import Network
from reconciler import network
from reconciler.loop import Loop, Report, each
from reconciler.worlds.mesh import MeshWorld

NAME = "sync_hub"
NETWORKS_PER_ACTIVATION_MAX = 100
REPEAT_AFTER = timedelta(minutes=5)
EMPTY_FOR = timedelta(hours=1)
"""So long an empty network keeps its place on the hub: customers often lease the next machine soon."""
CALLS_MAX = 3
"""How many networks are synced side by side. Machines that join need a connection to the hub, too."""
BEGUN_FOR = timedelta(seconds=15)
"""How long an activation begins further calls to a hub that is slow."""
_Call = Callable[[MeshWorld, NetworkId, Network], Awaitable[object]]


async def activate(world: MeshWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        changed = await mesh.drop_ended(connection, now=now)
        unsynced = await mesh.unsynced(
            connection, before=now - REPEAT_AFTER, limit=NETWORKS_PER_ACTIVATION_MAX
        )
        empty = await mesh.empty(connection, before=now - EMPTY_FOR, limit=NETWORKS_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(unsynced) + len(empty), acted_on=changed)
    gone = {row.network_id for row in empty}
    calls: list[tuple[HubNetwork, _Call]] = [(row, network.drop) for row in empty]
    calls += [(row, network.sync) for row in unsynced if row.network_id not in gone]
    await _side_by_side(world, calls, report)
    return report


async def _side_by_side(world: MeshWorld, calls: Sequence[tuple[HubNetwork, _Call]], report: Report) -> None:
    """Begin call after call while there is time and the hub answers. What is left is due at the next activation."""
    until, places = world.now() + BEGUN_FOR, asyncio.Semaphore(CALLS_MAX)
    is_away = False

    async def one(item: tuple[HubNetwork, _Call]) -> None:
        nonlocal is_away
        row, call = item
        async with places:
            if is_away:
                return
            if world.now() >= until:
                report.more = True
                return
            away = await _called(world, row, call, report)
            if away is not None and not is_away:
                is_away = True
                report.errors.append(f"{away}; networks wait for it")

    await each(calls, one, report)


def _on_hub(row: HubNetwork) -> Network:
    return Network(row.number, range_of(row.block))


async def _called(world: MeshWorld, row: HubNetwork, call: _Call, report: Report) -> Unreachable | None:
    """Why the hub cannot be reached; None when it can, as far as this call tells."""
    try:
        await call(world, row.network_id, _on_hub(row))
    except network.NetworkBusy:
        pass  # The replica that holds the network updates it.
    except AccessError as error:
        cause = error.__cause__ if isinstance(error, network.HubAway) else error
        if isinstance(cause, Unreachable):
            return cause
        report.errors.append(f"network {row.number}: {type(error).__name__}: {error}")
    return None


LOOP = Loop(NAME, timedelta(seconds=5), activate)
