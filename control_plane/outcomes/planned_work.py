"""What a list of the work that a provider plans means for machines and their customers.

`apply` runs in the caller's open transaction, and locks machines in the order of their ids.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import health, journal, maintenances, repairs
from control_plane.db import machines as machine_rows
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.health_watch import NewNotice
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.journal import Note
from control_plane.domain.notice import NoticeKind
from control_plane.domain.planned_work import (
    RESUMED_WITHIN,
    Changes,
    PlannedWork,
    announcement,
    changes,
    withdrawal,
)


async def apply(
    connection: Connection,
    account: AccountName,
    listed: Sequence[PlannedWork],
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> Changes:
    """Store what a complete list of an account's planned work changes, and tell customers."""
    machines = await maintenances.machines(connection, account, {each.provider_ref for each in listed})
    known = await maintenances.announced(connection, account)
    found = changes(known, listed, machines, now)
    touched = {
        *(each.machine_id for each in found.new),
        *(each.announced.machine_id for each in found.ended),
        *(each.machine_id for each in found.put_off),
    }
    await machine_rows.lock(connection, touched | {each.machine_id for each in known})
    await _store(connection, found, new_id, actor=actor, now=now)
    untold = await maintenances.untold(connection, account, now=now)
    for each in untold:
        await maintenances.tell(connection, each, announcement(each.why, each.planned_at), now=now)
    told = {each.machine_id for each in untold}
    # Whose customer is not told of a change now is told of it later, and when it is replaced as well.
    not_yet = {*(each.machine_id for each in found.new), *(each.machine_id for each in found.put_off)} - told
    for machine_id in (touched | told) - not_yet:
        await repairs.tell_again(connection, machine_id, now=now)
    return found


async def _store(
    connection: Connection, found: Changes, new_id: Callable[[], UUID], *, actor: Actor, now: datetime
) -> None:
    await maintenances.set_unlisted(connection, found.listed_again, None)
    await maintenances.set_unlisted(connection, found.unlisted, now)
    for ended in found.ended:
        if await maintenances.end_announced(connection, ended) and ended.called_off:
            planned_at, machine_id = ended.announced.planned_at, ended.announced.machine_id
            notice = NewNotice(NoticeKind.MAINTENANCE_WITHDRAWN, withdrawal(planned_at), planned_at)
            if await maintenances.expected(connection, machine_id):
                await health.notify(connection, machine_id, notice, now=now)
            await _note(connection, machine_id, notice.message, actor=actor, now=now)
    for new in found.new:
        if new.is_under_way(now) and await maintenances.resume(connection, new, since=now - RESUMED_WITHIN):
            continue
        await maintenances.announce(connection, new, new_id(), now=now)
        told = announcement(new.work.why, new.work.begins_at)
        await _note(connection, new.machine_id, told, actor=actor, now=now)
    for moved in found.put_off:
        await maintenances.put_off(connection, moved)
        told = announcement(moved.why, moved.planned_at)
        await _note(connection, moved.machine_id, told, actor=actor, now=now)


async def _note(
    connection: Connection, machine_id: MachineId, why: str, *, actor: Actor, now: datetime
) -> None:
    await journal.note_machine(connection, machine_id, event=Note.PLANNED_WORK, why=why, actor=actor, now=now)
