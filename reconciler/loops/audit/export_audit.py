"""Exports whole days of the audit log to a bucket, an object for each chain and day, if an administrator chose one.

A day is exported once it is over for long enough that its lines have their places. The object's name contains the range
of its lines, and its bytes follow from them alone, so a crash between the upload and the record of it repeats the same
object. What S3 refuses is an error in the report, and the next activation tries again. A chain that cannot be read is
one too, and does not hold up the others.
"""

from datetime import datetime, timedelta

from control_plane.db import audit, audit_retention
from control_plane.db.audit import Chain
from control_plane.db.errors import is_database_trouble
from control_plane.domain.audit_chain import SealedLine, beginning, chain_name, end, with_checkpoints
from reconciler.archive import Archive, ArchiveError
from reconciler.loop import Loop, Report
from reconciler.worlds.audit import AuditWorld

NAME = "export_audit"
SETTLES_AFTER = timedelta(minutes=10)
"""So long after midnight no line of the day before waits for its place."""
LINES_PER_READ = 5_000
LINES_PER_OBJECT_MAX = 100_000
CHAINS_PER_ACTIVATION_MAX = 500


async def activate(world: AuditWorld) -> Report:
    report = Report()
    async with world.db.reading() as connection:
        bucket = await audit_retention.bucket(connection)
    if bucket is None:
        return report
    archive = world.open_bucket(bucket)
    midnight = (world.now() - SETTLES_AFTER).replace(hour=0, minute=0, second=0, microsecond=0)
    async with world.db.reading() as connection:
        chains = await audit_retention.to_export(connection, before=midnight, limit=CHAINS_PER_ACTIVATION_MAX)
    for chain in chains:
        report.looked_at += 1
        try:
            report.count(await _export(world, archive, chain, midnight))
        except ArchiveError as error:
            report.errors.append(str(error))
            return report
        except Exception as error:
            if is_database_trouble(error):
                raise
            report.errors.append(f"{chain_name(chain.organization_id)}: {type(error).__name__}: {error}")
    report.more = bool(report.acted_on)
    return report


async def _export(world: AuditWorld, archive: Archive, chain: Chain, midnight: datetime) -> bool:
    """Export the first day of a chain that is not exported yet. False when there is none."""
    lines = await _lines_of_a_day(world, chain, midnight)
    if not lines:
        return False
    async with world.db.reading() as connection:
        before = await audit.head_at(connection, chain.organization_id, chain.exported_sequence)
    if before is None:
        raise LookupError(f"line {chain.exported_sequence} of {chain_name(chain.organization_id)} is missing")
    last = lines[-1]
    key = (
        f"{chain_name(chain.organization_id)}/{lines[0].line.at:%Y-%m-%d}/"
        f"{lines[0].sequence:012d}-{last.sequence:012d}.jsonl"
    )
    async with world.db.reading() as connection:
        signed = await audit.signed(
            connection, chain.organization_id, first=lines[0].sequence, last=last.sequence
        )
    body = beginning(chain.organization_id, before) + with_checkpoints(chain.organization_id, lines, signed)
    await archive.put(key, body + end(chain.organization_id, last.head))
    async with world.db.transaction() as connection:
        await audit_retention.note_export(
            connection, chain.organization_id, seen=chain.exported_sequence, last=last.sequence
        )
    return True


async def _lines_of_a_day(world: AuditWorld, chain: Chain, midnight: datetime) -> list[SealedLine]:
    """The next lines of a chain, up to the first one of a later day. A day of very many lines has several objects."""
    lines: list[SealedLine] = []
    reached = chain.exported_sequence
    while len(lines) < LINES_PER_OBJECT_MAX:
        async with world.db.reading() as connection:
            found = await audit.after(connection, chain.organization_id, after=reached, limit=LINES_PER_READ)
        for sealed in found:
            day = (lines or found)[0].line.at.date()
            if sealed.line.at >= midnight or sealed.line.at.date() > day:
                return lines
            lines.append(sealed)
        if len(found) < LINES_PER_READ:
            break
        reached = found[-1].sequence
    return lines[:LINES_PER_OBJECT_MAX]


LOOP = Loop(NAME, timedelta(minutes=5), activate, lasts=timedelta(minutes=5))
