"""A journal restored into another cluster, whose transactions count from its own beginning."""

import pytest
from sqlalchemy import text

from control_plane.db import journal
from control_plane.db.engine import Database
from control_plane.db.migrate import migrate
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.position import Position
from tests.support.clock import Clock
from tests.support.rows import rows
from tests.support.stage import set_stage

pytestmark = pytest.mark.database
US = Actor(ActorKind.LOOP, "test")
FAR = 1 << 50
_RESTORE = text(f"UPDATE journal SET transaction = transaction + {FAR}")
_LINES = text("SELECT number, transaction FROM journal ORDER BY number")


async def _read(db: Database, lease: Lease, position: Position, limit: int = 2) -> list[tuple[str, Position]]:
    """The next lines of a reader: their events, and its position behind each."""
    async with db.reading() as connection:
        page = await journal.page(connection, lease.id, position=position, limit=limit)
    return [(line.event, after) for line, after in page.unseen(position)]


async def _note(db: Database, lease: Lease, clock: Clock, event: Note) -> None:
    async with db.transaction() as connection:
        await journal.note_lease(connection, lease.id, event=event, why="test", actor=US, now=clock.now())


async def test_a_restored_journal_is_read_as_before_and_its_readers_miss_no_new_line(
    db: Database, database_url: str, clock: Clock
) -> None:
    stage = await set_stage(db, clock)
    lease = await stage.lease(await stage.organization())
    for event in (Note.LABELLED, Note.CHANGED):
        await _note(db, lease, clock, event)
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await connection.execute(text("ALTER TABLE journal DISABLE TRIGGER append_only"))
        await connection.execute(_RESTORE)
        await connection.execute(text("ALTER TABLE journal ENABLE TRIGGER append_only"))
        before = await rows(connection, _LINES)
    elsewhere = Position(FAR + before[-1].transaction + 1)
    """A reader that had everything, in the cluster that the dump is from."""

    await _note(db, lease, clock, Note.FUNDING_WARNED)  # Somebody started a process before the migration.
    everything = ["admitted", "labelled", "changed", "funding_warned"]
    assert [event for event, _ in await _read(db, lease, Position(), 9)] == everything
    assert [event for event, _ in await _read(db, lease, elsewhere, 9)] == everything

    await migrate(database_url)
    await migrate(database_url)  # Again: it changes nothing.
    read, position = list[str](), Position()
    while lines := await _read(db, lease, position, 1):
        read += [event for event, _ in lines]
        position = lines[-1][1]
        assert len(position.seen) <= 1, "a restored line is remembered by its number"
    assert read == everything
    await _note(db, lease, clock, Note.ENVELOPE_WARNED)
    assert [event for event, _ in await _read(db, lease, position)] == ["envelope_warned"]
    with pytest.raises(Exception, match="append-only"):
        async with owner.transaction() as connection:
            await connection.execute(_RESTORE)
    await owner.close()
