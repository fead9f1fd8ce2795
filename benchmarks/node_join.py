"""From a verified machine to a node, alone and several at once, and from a lost node to the one that replaces it.

Through the product: API, loops, two emulated providers, local machines, and the stand-in for K3s or a real one
(`tests/support/kubernetes/node_cloud.py`). Times are those that the product stored as evidence of each step.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog

from benchmarks import ground
from benchmarks.results import Figure, median
from control_plane.db import nodes
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import NodeId, Prefix, off_wire
from control_plane.domain.node import JoinStep, LeaveStep
from tests.support.kubernetes.node_cloud import LAMBDA, LOCAL, NodeCloud, node_cloud
from tests.support.kubernetes.requirements import reasons

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
AT_ONCE = int(os.environ.get("BENCH_NODES_AT_ONCE", "10"))
"""Fewer where the machine has no room for them."""
INSTANCES_OF_A_NODE, INSTANCES_OF_A_SERVER = 20, 28
"""Of inotify (docs/kubernetes-tests.md)."""
HOUR = 3_600
STEPS = {
    JoinStep.PREPARED: "K3s' files sent and in place",
    JoinStep.TUNNELLED: "key made, both ends told, first packets",
    JoinStep.STARTED: "agent started until its Node is registered",
    JoinStep.OPENED: "looked at, measured, opened",
}
Node = Mapping[str, Any]


async def measure() -> list[Figure]:
    absent = reasons(nodes=True)
    if absent:
        print("node_join is left out: " + "; ".join(absent))
        return []
    room = (_instances_free() - INSTANCES_OF_A_SERVER) // INSTANCES_OF_A_NODE
    at_once = min(AT_ONCE, room)
    if at_once < 1:
        raise SystemExit("no room for a node: fs.inotify.max_user_instances is reached by what runs already")
    logging.disable(logging.INFO)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    url = await ground.empty_database("node_join")
    db = Database(ground.login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=16, readers=16)
    api_db = Database(ground.login_url(url, Role.API), role=Role.API, pool_size=3, readers=2)
    with TemporaryDirectory() as folder:
        async with node_cloud(Path(folder), db, api_db) as cloud:
            await cloud.until("the cluster is built", cloud.is_built)
            alone = [await _alone(cloud, number) for number in range(RUNS)]
            together = await _together(cloud, at_once)
            await _keep_a_witness(cloud)
            lost = [await _lost(cloud, number) for number in range(RUNS)]
    await api_db.close()
    await db.close()
    return [*_of_alone(alone), *_of_together(together, at_once), *_of_lost(lost)]


def _instances_free() -> int:
    """How many instances of inotify root may still make."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    used = 0
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            used += str(link.readlink()) == "anon_inode:inotify"
        except OSError:  # The process has ended.
            continue
    return limit - used


async def _alone(cloud: NodeCloud, number: int) -> Node:
    """A pool of one, from its creation to nothing. Returns its node."""
    pool = await _pool(cloud, f"alone-{number}", 1)
    return (await _gone(cloud, pool))[0]


async def _together(cloud: NodeCloud, count: int) -> Node:
    """A pool that is ready. Returns the pool, with its nodes."""
    pool = await _pool(cloud, "together", count)
    shown = await cloud.get(f"/node-pools/{pool}")
    return {**shown, "nodes": await _gone(cloud, pool)}


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds from when a node was given up."""

    cut_off: float
    """Until nobody listed its key."""
    replaced: float
    """Until the node was open that replaces it."""


async def _lost(cloud: NodeCloud, number: int) -> Loss:
    """A node is cut off, given up and replaced."""
    cloud.sells(LOCAL, 0)
    pool = await _pool(cloud, f"lost-{number}", 1)
    (node,) = await _open_nodes(cloud, pool)
    cloud.apart.close_internet(LAMBDA)
    cloud.sells(LOCAL, 100)

    async def is_found_unready() -> bool:
        return (await cloud.get(f"/nodes/{node['id']}"))["unready_since"] is not None

    async def is_replaced() -> bool:
        return [each["id"] for each in await _open_nodes(cloud, pool)] not in ([], [node["id"]])

    await cloud.until("it is found unready", is_found_unready)
    cloud.clock.advance(HOUR)
    await cloud.until("it is replaced", is_replaced)
    cloud.apart.open_internet(LAMBDA)
    async with cloud.world.db.reading() as connection:
        row = await nodes.get(connection, NodeId(off_wire(Prefix.NODE, node["id"])))
    assert row is not None
    assert row.leaving_at is not None
    given_up = row.leaving_at.isoformat()
    replacement, old = await _gone(cloud, pool)
    cut_off = _taken(old)[LeaveStep.CUT_OFF]
    return Loss(_seconds(given_up, cut_off), _seconds(given_up, replacement["ready_at"]))


async def _keep_a_witness(cloud: NodeCloud) -> None:
    """A node at the other provider, which stays ready: no node is given up while all of its cluster are unready."""
    cloud.sells(LAMBDA, 0)
    await _pool(cloud, "witness", 1)
    cloud.sells(LAMBDA, 100)


async def _open_nodes(cloud: NodeCloud, pool: str) -> list[Node]:
    return [node for node in await cloud.nodes("ready") if node["node_pool_id"] == pool]


async def _pool(cloud: NodeCloud, name: str, count: int) -> str:
    pool = await cloud.create_pool(name, count)
    await cloud.until(f"the pool {name} is ready", partial(cloud.pool_is, pool, "ready", count))
    return pool


async def _gone(cloud: NodeCloud, pool: str) -> list[Node]:
    """Delete a pool and wait until nothing is left of it. Returns the nodes that it had, the newest first."""
    await cloud.post(f"/node-pools/{pool}/deletion")

    async def is_gone() -> bool:
        cloud.clock.advance(
            1
        )  # A machine at the second provider takes 20 s to end, which measures nothing of ours.
        return await cloud.pool_is(pool, "gone")

    await cloud.until("the pool is gone", is_gone)
    return [node for node in await cloud.nodes("gone") if node["node_pool_id"] == pool]


def _seconds(sooner: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(sooner)).total_seconds()


def _taken(node: Node) -> dict[str, str]:
    """When each step was taken."""
    return {step["step"]: step["at"] for step in node["steps"]}


def _of_alone(found: Sequence[Node]) -> list[Figure]:
    whole = [_seconds(node["created_at"], node["ready_at"]) for node in found]
    clean = [_seconds(node["steps"][-2]["at"], _taken(node)[LeaveStep.CLEANED]) for node in found]
    leave = [_seconds(_taken(node)[LeaveStep.CORDONED], node["gone_at"]) for node in found]
    return [
        Figure(f"a verified machine becomes an open node, p50 of {RUNS}", median(whole), "s"),
        *(
            Figure(f"{step}: {STEPS[step]}", median([_until(node, step) for node in found]), "s")
            for step in STEPS
        ),
        Figure("cleaned: everything taken off, and looked for", median(clean), "s"),
        Figure("from cordoned to gone, without pods", median(leave), "s"),
    ]


def _until(node: Node, step: JoinStep) -> float:
    """Seconds from the step before in `STEPS`, or from when the node was made, until this one was taken."""
    steps, taken = list(STEPS), _taken(node)
    place = steps.index(step)
    return _seconds(taken[steps[place - 1]] if place else node["created_at"], taken[step])


def _of_together(pool: Node, count: int) -> list[Figure]:
    joined = sorted(_seconds(node["created_at"], _taken(node)[JoinStep.HEALTHY]) for node in pool["nodes"])
    note = "" if count == AT_ONCE else f"inotify's limit has no room for {AT_ONCE}"
    return [
        Figure(f"{count} at once: a machine becomes healthy, p50", median(joined), "s", note=note),
        Figure(f"{count} at once: the slowest", joined[-1], "s"),
        Figure(
            f"{count} at once: from the pool's request to ready",
            _seconds(pool["created_at"], pool["ready_at"]),
            "s",
        ),
    ]


def _of_lost(losses: Sequence[Loss]) -> list[Figure]:
    cut_off = median([loss.cut_off for loss in losses])
    replaced = median([loss.replaced for loss in losses])
    return [
        Figure(f"a node that is given up: until nobody lists its key, p50 of {RUNS}", cut_off, "s"),
        Figure(f"a node that is given up: until its replacement is open, p50 of {RUNS}", replaced, "s"),
    ]
