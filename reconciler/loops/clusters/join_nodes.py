"""Makes verified machines nodes of their clusters, after which their leases are READY and billed.

A machine that was bought as a node becomes one when it is verified. It takes the steps of `domain/node.py`, each with
stored evidence; whoever takes it over after a crash goes on at the first step without evidence. It registers with a
taint that keeps pods away. Its lease begins, and then the taint goes, when what it claims is what was bought, and,
until its pool was ready once, when all nodes of the pool are healthy (`node_opening.py`).

A machine that does not become a node in time leaves, and its lease tries another one.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import nodes
from control_plane.domain.deadline import TRIED_FIRST
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import NodeId
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.node import (
    JOIN_MAX,
    STEP_TRIES_MAX,
    JoinStep,
    LeaveReason,
    Node,
    NodeEvent,
    NodeState,
    name_of,
    next_join_step,
    step,
)
from control_plane.domain.node_deadline import Deadline, deadline
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines as machine_outcomes
from data_plane.access.port import AccessError, Unreachable
from reconciler.cluster_metrics import FAILED, HOSTILE, count_join, expect_joins
from reconciler.loop import Loop, Report, each
from reconciler.node_joining import STEPS, HeldUp, Hostile, NotYet
from reconciler.node_opening import open_nodes, open_rest
from reconciler.nodes import HELD_FOR, LASTS, OURS, Held, fail, hold, kept, loaded, take_step, wait
from reconciler.worlds.clusters import ClusterWorld

NAME = "join_nodes"
NODES_PER_ACTIVATION_MAX = 32
SOON = timedelta(seconds=2)
AGAIN = timedelta(seconds=10)


async def activate(world: ClusterWorld) -> Report:
    report = Report()
    await _begin(world, report)
    await open_rest(world, report)
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await nodes.take(
            connection,
            NodeState.JOINING,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=NODES_PER_ACTIVATION_MAX,
        )
    report.looked_at, report.more = len(due), len(due) == NODES_PER_ACTIVATION_MAX
    async with kept(world, [node.id for node in due], token):
        await each(due, lambda node: _join(world, node, token, report), report)
    return report


async def _begin(world: ClusterWorld, report: Report) -> None:
    """Let verified machines that were bought as nodes be nodes."""
    async with world.db.transaction() as connection:
        now = world.now()
        await nodes.free_abandoned(connection, now=now, deadline_at=now + TRIED_FIRST)
        found = await nodes.candidates(connection, limit=NODES_PER_ACTIVATION_MAX)
        if found:
            await nodes.lock_numbers(connection)
            full = await nodes.full_clusters(connection)
            report.errors.extend(f"{cluster.name}: no number of its overlay is free" for cluster in full)
            found = await nodes.candidates(
                connection, limit=NODES_PER_ACTIVATION_MAX, without=[cluster.id for cluster in full]
            )
        for candidate in found:
            node_id = NodeId(world.new_id())
            if not await nodes.insert(
                connection, node_id, candidate, name=name_of(node_id), now=now, deadline_at=now + JOIN_MAX
            ):
                report.errors.append(
                    f"{candidate.machine_id}: no number is free in the overlay of its cluster"
                )


async def _join(world: ClusterWorld, node: Node, token: UUID, report: Report) -> None:
    held = await loaded(world, node, token)
    expect_joins(held.cluster.name)
    try:
        while not held.place.claim_ended and await _next(world, held, report):
            held = await loaded(world, await _current(world, held), token)
        if held.place.claim_ended:
            await wait(world, held, AGAIN)  # leave_nodes takes it out as soon as nobody holds it.
    except HeldUp as error:
        await wait(world, held, SOON, str(error), longer=TRIED_FIRST)
    except NotYet as error:
        await _wait_or_leave(world, held, str(error))
    except Hostile as error:
        report.notes.append(f"{node.name}: {error}")
        await _leave(world, held, LeaveReason.HOSTILE, str(error))
    except OURS as error:
        report.errors.append(f"{node.name}: {type(error).__name__}: {error}")
        await wait(world, held, AGAIN, f"{type(error).__name__}: {error}", longer=TRIED_FIRST)
    except AccessError as error:
        report.notes.append(f"{node.name}: {type(error).__name__}: {error}")
        await _try_again_or_leave(world, held, error)
    except Exception as error:  # noqa: BLE001 - a machine can cause errors that nobody thought of, and has few tries
        report.errors.append(f"{node.name}: {type(error).__name__}: {error}")
        await _try_again_or_leave(world, held, error)


async def _current(world: ClusterWorld, held: Held) -> Node:
    async with world.db.reading() as connection:
        found = await nodes.get(connection, held.node.id)
    return found or held.node


async def _next(world: ClusterWorld, held: Held, report: Report) -> bool:
    """Take the next step. False when the node is open, or another worker holds it."""
    async with world.db.reading() as connection:
        taken = await nodes.steps(connection, held.node.id)
    due = next_join_step([each for each in JoinStep if each in taken])
    if due in {None, JoinStep.OPENED}:
        report.count(await open_nodes(world, held))
        return False
    if not await hold(world, held):
        return False
    return await take_step(world, held, due, await STEPS[due](world, held))


async def _wait_or_leave(world: ClusterWorld, held: Held, why: str) -> None:
    """Look again soon, unless the time of the node is over."""
    found = deadline(held.node, world.now())
    if found is Deadline.PASSED:
        await _leave(world, held, LeaveReason.FAILED, f"it was not done in time: {why}")
    else:
        longer = TRIED_FIRST if found is Deadline.MISSED_BY_US else None
        await wait(world, held, SOON, why, longer=longer)


async def _try_again_or_leave(world: ClusterWorld, held: Held, error: Exception) -> None:
    """A machine that cannot be reached has until its deadline; a step that fails on it has a few tries."""
    why = f"{type(error).__name__}: {error}"
    is_away = isinstance(error, Unreachable)
    failed = not is_away and held.node.tries + 1 >= STEP_TRIES_MAX
    found = deadline(held.node, world.now())
    if failed or found is Deadline.PASSED:
        await _leave(world, held, LeaveReason.FAILED, why, is_plain=False)
    elif found is Deadline.MISSED_BY_US:
        await wait(world, held, AGAIN, why, longer=TRIED_FIRST)
    elif is_away:
        await wait(world, held, AGAIN, why)
    else:
        await fail(world, held, error)


async def _leave(
    world: ClusterWorld, held: Held, reason: LeaveReason, why: str, *, is_plain: bool = True
) -> None:
    """Let a node begin to leave. Its lease tries another machine at once; this one is kept until the node has left.

    Unless `why` is a plain sentence of ours, only operators read it: it may be what the machine said.
    """
    now, is_hostile = world.now(), reason is LeaveReason.HOSTILE
    failure = MachineFailure(
        MachineEvent.FAILED,
        FailReason.NODE_HOSTILE if is_hostile else FailReason.NODE_FAILED,
        "it did not become a node of the cluster" + (f": {why}" if is_plain else ""),
        provider_words=None if is_plain else why,
    )
    async with world.db.transaction() as connection:
        await machine_outcomes.fail(
            connection, held.node.machine_id, failure, actor=world.actor(NAME), now=now
        )
        node = await nodes.lock(connection, held.node.id)
        if node is None or not await nodes.is_held(connection, node.id, token=held.token):
            raise LookupError(f"another worker holds {held.node.name}")
        moved = step(node.state, NodeEvent.HOSTILE if is_hostile else NodeEvent.FAILED)
        if isinstance(moved, Moved):
            await nodes.move(connection, node, moved, now=now, reason=reason, why=why)
    count_join(held.cluster.name, HOSTILE if is_hostile else FAILED)


LOOP = Loop(
    NAME,
    timedelta(seconds=2),
    activate,
    lasts=LASTS,
    wakes=("sync_overlay", "leave_nodes", "place_leases"),
)
