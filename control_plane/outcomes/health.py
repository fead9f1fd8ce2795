"""What new evidence about a machine's health means: its verdict, what its customer is told, and that it is repaired.

These functions run in the caller's open transaction, under the locks that each of them names.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import challenges, health, journal, repairs, samples
from control_plane.db import machines as machine_rows
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu_faults import Reading
from control_plane.domain.health import Verdict
from control_plane.domain.health_watch import (
    Assessment,
    NewNotice,
    Watched,
    asks_for_links,
    assess,
    notice_for,
)
from control_plane.domain.ids import MachineId
from control_plane.domain.journal import Note
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.notice import NoticeKind
from control_plane.domain.proof import CLAIMED_APART
from control_plane.outcomes import machines


async def judge(
    connection: Connection,
    machine_id: MachineId,
    readings: Sequence[Reading],
    *,
    samples_until: datetime | None = None,
    repair_id: UUID,
    actor: Actor,
    now: datetime,
) -> Assessment | None:
    """Judge a machine by its rows and new readings, and store what is new. None when it is not verified any more.

    Locks the machine, what is stored about its health, and its repair, in this order. `repair_id` is for the repair
    that may be opened.
    """
    await machine_rows.lock(connection, [machine_id])
    watched = await health.lock(connection, machine_id, now=now)
    if watched is None:
        return None
    known = await samples.links_shown(connection, machine_id) if asks_for_links(watched, readings) else ()
    assessment = assess(watched, readings, now, samples_until=samples_until, links=known)
    if not assessment.changes(watched) and assessment.samples_until == watched.samples_until:
        return assessment
    await health.store(connection, watched, assessment, now=now)
    await _follow_up(connection, watched, assessment, repair_id=repair_id, actor=actor, now=now)
    return assessment


async def _follow_up(
    connection: Connection,
    watched: Watched,
    assessment: Assessment,
    *,
    repair_id: UUID,
    actor: Actor,
    now: datetime,
) -> None:
    judgement, machine_id = assessment.judgement, watched.machine_id
    if assessment.challenge:
        await challenges.challenge_now(connection, machine_id, now=now, apart=CLAIMED_APART)
    if judgement.differs(watched.judged):
        line = f"{watched.verdict} -> {judgement.verdict}: {judgement.why}"
        await journal.note_machine(
            connection, machine_id, event=Note.HEALTH_CHANGED, why=line, actor=actor, now=now
        )
        notice = notice_for(watched, judgement)
        if notice is not None:
            await health.notify(connection, machine_id, notice, now=now)
    if judgement.fault is not None and judgement.verdict is not Verdict.HEALTHY:
        await repairs.open_for(
            connection,
            repair_id,
            machine_id,
            fault=judgement.fault.code,
            why="something is wrong with it",
            now=now,
        )
    if judgement.verdict is watched.verdict and judgement.differs(watched.judged):
        await repairs.begin_again(connection, machine_id, why=judgement.why, now=now)
    await repairs.hurry(connection, machine_id, now=now)


async def take_away(
    connection: Connection, machine_id: MachineId, *, pool: str | None, why: str, actor: Actor, now: datetime
) -> bool:
    """Give the customer of a machine another one, or end a machine that nobody uses. False when it has moved.

    Locks leases, claims and the machine. `pool` is the node pool of a machine that is a node: its lease ends, and the
    pool gets another one.
    """
    what = "The machine is taken away, and the lease gets another one"
    if pool is not None:
        what = f"The node leaves its cluster, and the node pool {pool} replaces it; its lease ends"
    await health.notify(connection, machine_id, NewNotice(NoticeKind.REPLACED, f"{what}: {why}."), now=now)
    failure = MachineFailure(MachineEvent.FAILED, FailReason.UNHEALTHY, why)
    return await machines.fail(connection, machine_id, failure, actor=actor, now=now)
