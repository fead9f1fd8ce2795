"""Gives the lines of the audit log their places in their chains, and stores the heads of the chains every few minutes.

A line is written in the transaction of what it is about and waits for its place for about a second. Changes of an
organization would otherwise wait for each other at the head of its chain. One process seals at a time; a crash before
the commit leaves the lines waiting. A line that waits for longer than `LATE_AFTER` is an error in the report.

Should a line be such that it cannot be sealed, for instance because a newer version wrote it, its chain stands still at
that line, which is an error in the report as well, and all other chains go on.
"""

from datetime import datetime, timedelta

from control_plane.db import audit
from control_plane.db.errors import is_database_trouble
from control_plane.domain.audit_chain import chain_name
from control_plane.domain.ids import OrganizationId
from control_plane.outcomes.audit import note_heads, seal, seal_chain
from reconciler.loop import Event, Loop, Report
from reconciler.worlds.audit import AuditWorld

NAME = "seal_audit"
LINES_PER_ACTIVATION_MAX = 2_000
CHAINS_PER_ACTIVATION_MAX = 500
"""While a chain stands still, each one is sealed in a transaction of its own."""
CHECKPOINT_EVERY = timedelta(minutes=5)
LATE_AFTER = timedelta(minutes=1)


async def activate(world: AuditWorld) -> Report:
    now, report = world.now(), Report()
    try:
        async with world.db.transaction() as connection:
            sealed = await seal(connection, limit=LINES_PER_ACTIVATION_MAX, now=now)
        report.more = sealed == LINES_PER_ACTIVATION_MAX
    except Exception as error:
        if is_database_trouble(error):
            raise
        sealed = await _seal_each(world, report, now)
    report.looked_at = report.acted_on = sealed
    async with world.db.reading() as connection:
        oldest = await audit.oldest_pending(connection)
    if not report.more and oldest is not None and now - oldest > LATE_AFTER:
        report.errors.append(
            f"A line of {oldest:%Y-%m-%d %H:%M:%S} UTC waits for its place in the audit log."
        )
    signer = await world.audit_keys.signer()
    async with world.db.transaction() as connection:
        heads = await note_heads(connection, signer, before=now - CHECKPOINT_EVERY, now=now)
    report.events += [
        Event(
            "audit_head",
            {
                "chain": chain_name(head.organization_id),
                "sequence": str(head.sequence),
                "hash": head.hash,
                "key": "" if signer is None else signer.key_id,
            },
        )
        for head in heads
    ]
    return report


async def _seal_each(world: AuditWorld, report: Report, now: datetime) -> int:
    """Seal one chain after the other. One that cannot be sealed is an error in the report. Returns how many lines."""
    async with world.db.reading() as connection:
        waiting = await audit.waiting(connection, limit=CHAINS_PER_ACTIVATION_MAX)
    sealed = 0
    for organization_id in waiting:
        try:
            sealed += await _seal_chain(world, organization_id, now, limit=LINES_PER_ACTIVATION_MAX)
        except Exception as error:
            if is_database_trouble(error):
                raise
            sealed += await _seal_up_to_the_fault(world, report, organization_id, now)
    return sealed


async def _seal_chain(
    world: AuditWorld, organization_id: OrganizationId | None, now: datetime, *, limit: int
) -> int:
    async with world.db.transaction() as connection:
        return await seal_chain(connection, organization_id, limit=limit, now=now)


async def _seal_up_to_the_fault(
    world: AuditWorld, report: Report, organization_id: OrganizationId | None, now: datetime
) -> int:
    """Seal line by line, until one cannot be sealed, and name that one. Returns how many came before it."""
    for sealed in range(LINES_PER_ACTIVATION_MAX):
        try:
            if not await _seal_chain(world, organization_id, now, limit=1):
                return sealed
        except Exception as error:
            if is_database_trouble(error):
                raise
            async with world.db.reading() as connection:
                line = await audit.first_waiting(connection, organization_id)
            which = (
                ""
                if line is None
                else f" at line {line.number} of audit_pending, of {line.at:%Y-%m-%d %H:%M:%S} UTC,"
            )
            report.errors.append(
                f"The chain {chain_name(organization_id)} of the audit log stands still{which} which cannot be sealed:"
                f" {type(error).__name__}: {error}"
            )
            return sealed
    return LINES_PER_ACTIVATION_MAX


LOOP = Loop(NAME, timedelta(seconds=1), activate)
