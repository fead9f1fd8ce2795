"""Changes the WireGuard keys of open nodes, every 30 days and when an operator asks (`domain/node_key.py`).

A node makes its next key. When sync_overlay has read it at every end that lists the node, the node switches, and the
other ends move its addresses to it. The change is over when none of them lists the old key. A few nodes of a cluster
change their keys at a time, and besides all those for which an operator asked. A node that leaves in the middle of it
has all its keys removed.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import journal, node_keys, nodes, overlays
from control_plane.db.connection import Connection
from control_plane.db.node_keys import ChangeOf
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import ClusterId
from control_plane.domain.journal import Note
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.node_key import CHANGES_MAX, KeyChange, KeyStep, next_step
from control_plane.domain.node_watch import LIARS_MAX
from control_plane.outcomes import machines as machine_outcomes
from data_plane.access.port import AccessError, StepFailed
from data_plane.mesh.members import OTHER_KEY
from reconciler.loop import Event, Loop, Report, each
from reconciler.nodes import HELD_FOR, Held, kept, loaded
from reconciler.peer_holders import who_lists, who_may_list
from reconciler.worlds.clusters import ClusterWorld

NAME = "rotate_node_keys"
NODES_PER_ACTIVATION_MAX = 16
LASTS = timedelta(minutes=2)
"""Of an activation. The tunnels of a node that has switched pause for as long as a dead worker holds it."""
AGAIN = timedelta(minutes=1)


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await node_keys.take(
            connection, token=token, now=now, until=now + HELD_FOR, limit=NODES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == NODES_PER_ACTIVATION_MAX)
    liars: list[Held] = []
    async with kept(world, [change.node_id for change in due], token):
        await each(due, lambda change: _go_on(world, change, token, report, liars), report)
        await each(_by_cluster(liars), lambda group: _give_up(world, group, report), report)
    return report


async def _go_on(
    world: ClusterWorld, found: ChangeOf, token: UUID, report: Report, liars: list[Held]
) -> None:
    async with world.db.reading() as connection:
        node = await nodes.get(connection, found.node_id)
    if node is None:
        raise LookupError(f"there is no node {found.node_id}")
    held = await loaded(world, node, token)
    step = next_step(found.change, world.now())
    try:
        if step is KeyStep.ANNOUNCE:
            report.count(await _announce(world, held, found.change, liars))
        elif step is KeyStep.SWITCH:
            report.count(await _switch(world, held))
        elif step is KeyStep.FINISH:
            report.count(await _finish(world, held, found.change))
            facts = {"node": node.name, "not_read": str(sorted(found.holders or ()))}
            report.events.append(Event("node_key_changed", facts))
        else:
            await _wait(world, held, world.now() + AGAIN)
    except AccessError as error:
        report.notes.append(f"{node.name}: {step.name.lower()}: {type(error).__name__}: {error}")
        await _wait(world, held, world.now() + AGAIN)


async def _announce(world: ClusterWorld, held: Held, change: KeyChange, liars: list[Held]) -> int:
    """Whoever has the key of another member is among `liars` then."""
    is_asked = change.asked_at is not None
    async with world.db.reading() as connection:
        has_room = is_asked or await _has_room(connection, held)
    if not has_room:
        await _wait(world, held, world.now() + AGAIN)
        return 0
    made_at = world.now()
    key = await world.members.make_next_key(held.machine, fresh=is_asked)
    async with world.db.transaction() as connection:
        await nodes.lock_numbers(connection)
        is_taken = key == held.node.public_key or await nodes.key_is_taken(connection, held.node, key)
        has_room = is_asked or await _has_room(connection, held)  # Others may have begun meanwhile.
        announced = not is_taken and await _put_on_map(
            world, connection, held, key, made_at=made_at, has_room=has_room
        )
    if is_taken:
        liars.append(held)
    return int(announced)


async def _has_room(connection: Connection, held: Held) -> bool:
    return await node_keys.changing_in(connection, held.cluster.id) < CHANGES_MAX


async def _put_on_map(
    world: ClusterWorld,
    connection: Connection,
    held: Held,
    key: str,
    *,
    made_at: datetime,
    has_room: bool,
) -> bool:
    """False when the change cannot begin yet."""
    now = world.now()
    holders = await who_lists(connection, held.node)
    if not holders or not has_room:
        await node_keys.wait(connection, held.node.id, token=held.token, due_at=now + AGAIN)
        return False
    announced = await node_keys.announce(
        connection, held.node.id, key, holders, token=held.token, now=now, made_at=made_at
    )
    await overlays.soon(connection, held.cluster.id, now=now)
    return announced


def _by_cluster(liars: Sequence[Held]) -> list[list[Held]]:
    groups: dict[ClusterId, list[Held]] = {}
    for held in liars:
        groups.setdefault(held.cluster.id, []).append(held)
    return list(groups.values())


async def _give_up(world: ClusterWorld, liars: Sequence[Held], report: Report) -> None:
    """When several nodes of a cluster lie at once, what we know is more likely wrong (`domain/node_watch.py`)."""
    if len(liars) <= LIARS_MAX:
        for held in liars:
            await _is_hostile(world, held)
        return
    first = liars[0]
    report.errors.append(
        f"{first.cluster.name}: {len(liars)} nodes have next keys of other members, so none is ended; "
        f"{first.node.name} is one"
    )
    for held in liars:
        await _wait(world, held, world.now() + AGAIN)


async def _is_hostile(world: ClusterWorld, held: Held) -> None:
    """Whoever has the key of another member wants its packets. Its lease ends, and leave_nodes takes it out."""
    now = world.now()
    why = "its next key is the key of a member of its cluster"
    failure = MachineFailure(MachineEvent.DISPROVEN, FailReason.NODE_HOSTILE, why, failed_since=now)
    async with world.db.transaction() as connection:
        await machine_outcomes.fail(
            connection, held.node.machine_id, failure, actor=world.actor(NAME), now=now
        )


async def _switch(world: ClusterWorld, held: Held) -> int:
    """The machine first: until the switch is stored, whoever takes the node over does it again."""
    key = held.node.next_key
    if key is None:
        raise ValueError(f"{held.node.name} has no next key")
    try:
        await world.members.switch_key(held.machine, key)
    except StepFailed as error:
        if error.exit_status != OTHER_KEY:
            raise
        await _give_up_change(world, held)
        raise
    async with world.db.transaction() as connection:
        now = world.now()
        holders = await who_may_list(connection, held.node)
        switched = await node_keys.switched(connection, held.node.id, holders, token=held.token, now=now)
        await overlays.soon(connection, held.cluster.id, now=now)
    return switched


async def _finish(world: ClusterWorld, held: Held, change: KeyChange) -> int:
    now = world.now()
    async with world.db.transaction() as connection:
        ended = await node_keys.finish(connection, held.node.id, token=held.token, now=now)
        await overlays.soon(connection, held.cluster.id, now=now)
        if ended and change.is_answer:
            why = f"{held.node.name} uses another WireGuard key, as an operator asked"
            await journal.note_lease(
                connection,
                held.node.lease_id,
                event=Note.NODE_KEY_CHANGED,
                why=why,
                actor=world.actor(NAME),
                now=now,
            )
    return ended


async def _give_up_change(world: ClusterWorld, held: Held) -> None:
    """The machine lost that key. It still has the one that it uses."""
    async with world.db.transaction() as connection:
        due_at = world.now() + AGAIN
        await node_keys.give_up(connection, held.node.id, token=held.token, due_at=due_at)
        await overlays.soon(connection, held.cluster.id, now=world.now())


async def _wait(world: ClusterWorld, held: Held, due_at: datetime) -> None:
    async with world.db.statement() as connection:
        await node_keys.wait(connection, held.node.id, token=held.token, due_at=due_at)


LOOP = Loop(NAME, timedelta(seconds=5), activate, lasts=LASTS, wakes=("sync_overlay", "leave_nodes"))
