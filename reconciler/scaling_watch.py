"""Watches clusters, so that what somebody writes there, or a pod that finds no node, is looked at within seconds.

An event says only that a look is due: `scale_clusters` lists what there is and decides by that. So nothing depends on
an event, and whatever a customer writes costs one look every few seconds at the most. A watch that ends, for whatever
reason, begins anew with a list; while there is none, clusters are looked at by the clock.

One process watches a cluster, however many there are. When it dies, another one takes over within a minute.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from datetime import timedelta

import structlog

from control_plane.db import clusters, scaled_pools
from control_plane.domain.backoff import delay
from control_plane.domain.ids import ClusterId
from data_plane.cluster.port import Change, ChangeKind, Snapshot
from data_plane.cluster.resource import NODE_POOL, POD, SCALING_POLICY, Object, Resource
from reconciler.scaling_objects import pending_since
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

HELD_FOR = timedelta(minutes=1)
"""How long nobody else watches a cluster when the process that did is gone."""
HELD_AGAIN_SECONDS = 10.0
"""How often a process says that it goes on, and looks for clusters that nobody watches."""
WATCHED_MAX = 200
"""Clusters of one process: each has three connections."""
LOOKS_APART_SECONDS = 2.0
"""How far apart the looks are that changes lead to."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=2), timedelta(minutes=1)
WELL_AFTER_SECONDS = 60.0
"""A watch that has lasted for so long was no failed try."""
WITHOUT_NODE = {"spec.nodeName": "", "status.phase": "Pending"}

log = structlog.get_logger()


async def keep(world: ClusterWorld, wake: Callable[[], None]) -> None:
    """Watch clusters until cancelled. `wake` is called when one is to be looked at."""
    watches = _Watches(world, wake)
    try:
        while True:
            try:
                await watches.follow()
            except Exception as error:  # noqa: BLE001 - the database is away: what is watched is watched on
                log.warning("watched_clusters_not_read", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(HELD_AGAIN_SECONDS)
    finally:
        await watches.end()


class _Watches:
    def __init__(self, world: ClusterWorld, wake: Callable[[], None]) -> None:
        self._world = world
        self._wake = wake
        self._token = world.new_id()
        self._tasks: dict[ClusterId, asyncio.Task[None]] = {}

    async def follow(self) -> None:
        """Watch each cluster that nobody else does, and those no longer that are not ready or another's by now."""
        now = self._world.now()
        async with self._world.db.transaction() as connection:
            mine = await scaled_pools.take_watches(
                connection, token=self._token, now=now, until=now + HELD_FOR, limit=WATCHED_MAX
            )
        for cluster_id in [each for each in self._tasks if each not in mine or self._tasks[each].done()]:
            self._tasks.pop(cluster_id).cancel()
        for cluster_id in mine:
            if cluster_id not in self._tasks:
                name = f"watch {cluster_id}"
                self._tasks[cluster_id] = asyncio.create_task(self._watch(cluster_id), name=name)

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        with suppress(Exception):  # Another process takes over a little later.
            async with self._world.db.transaction() as connection:
                await scaled_pools.end_watches(connection, token=self._token)

    async def _watch(self, cluster_id: ClusterId) -> None:
        """Watch a cluster until cancelled, with a pause after each failure that grows."""
        failed = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._once(cluster_id)
            except Exception as error:  # noqa: BLE001 - looks by the clock go on, and report what is wrong there
                why = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                log.info(
                    "cluster_not_watched", cluster=str(cluster_id), error=f"{type(why).__name__}: {why}"[:300]
                )
            failed = 1 if asyncio.get_running_loop().time() - began > WELL_AFTER_SECONDS else failed + 1
            pause = delay(failed, first=RETRY_FIRST, ceiling=RETRY_CEILING)
            await asyncio.sleep(pause.total_seconds())

    async def _once(self, cluster_id: ClusterId) -> None:
        """Watch a cluster until a watch fails."""
        async with self._world.db.reading() as connection:
            cluster = await clusters.get(connection, cluster_id)
        if cluster is None:
            return
        changed = asyncio.Event()
        async with connected(self._world, cluster) as port, asyncio.TaskGroup() as group:
            group.create_task(self._tell(cluster_id, changed))
            for resource in (NODE_POOL, SCALING_POLICY):
                group.create_task(look_out(port.watch(resource), resource, changed))
            group.create_task(look_out(port.watch(POD, fields=WITHOUT_NODE), POD, changed))

    async def _tell(self, cluster_id: ClusterId, changed: asyncio.Event) -> None:
        """Have the cluster looked at whenever something changed, but not all the time."""
        while True:
            await changed.wait()
            changed.clear()
            async with self._world.db.transaction() as connection:
                await scaled_pools.changed(connection, cluster_id, now=self._world.now())
            self._wake()
            await asyncio.sleep(LOOKS_APART_SECONDS)


async def look_out(
    events: AsyncGenerator[Snapshot | Change, None], resource: Resource, changed: asyncio.Event
) -> None:
    """Set `changed` for each event that may be a reason to act: our own writing of a status is none."""
    known: dict[str, str] | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Snapshot):
                found = {_name(thing): mark for thing in event.objects if (mark := _mark(resource, thing))}
                if known is None or found != known:
                    changed.set()
                known = found
            elif known is not None:
                _apply(known, resource, event, changed)


def _apply(known: dict[str, str], resource: Resource, event: Change, changed: asyncio.Event) -> None:
    name = _name(event.changed)
    mark = None if event.kind is ChangeKind.DELETED else _mark(resource, event.changed)
    if mark is None:
        was_there = known.pop(name, None) is not None
        if was_there and resource != POD:  # A pod that has a node, or is gone, needs none.
            changed.set()
    elif known.get(name) != mark:
        known[name] = mark
        changed.set()


def _name(thing: Object) -> str:
    return str(thing["metadata"].get("uid"))


def _mark(resource: Resource, thing: Object) -> str | None:
    """What a look depends on, short; None when it depends on nothing of this object."""
    if resource == POD:
        since = pending_since(thing)
        return None if since is None else since.isoformat()
    deleted = "deletionTimestamp" in thing["metadata"]
    return f"{deleted} {hash(json.dumps(thing.get('spec'), sort_keys=True))}"
