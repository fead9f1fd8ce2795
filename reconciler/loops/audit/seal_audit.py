"""Gives the lines of the audit log their places in their chains, and stores the heads of the chains every few minutes.

A line is written in the transaction of what it is about and waits for its place for about a second. Changes of an
organization would otherwise wait for each other at the head of its chain. One process seals at a time; a crash before
the commit leaves the lines waiting. A line that waits for longer than `LATE_AFTER` is an error in the report.
"""

from datetime import timedelta

from control_plane.db import audit
from control_plane.domain.audit_chain import chain_name
from control_plane.outcomes.audit import note_heads, seal
from reconciler.loop import Event, Loop, Report
from reconciler.worlds.audit import AuditWorld

NAME = "seal_audit"
LINES_PER_ACTIVATION_MAX = 2_000
CHECKPOINT_EVERY = timedelta(minutes=5)
LATE_AFTER = timedelta(minutes=1)


async def activate(world: AuditWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        sealed = await seal(connection, limit=LINES_PER_ACTIVATION_MAX, now=now)
    report = Report(looked_at=sealed, acted_on=sealed, more=sealed == LINES_PER_ACTIVATION_MAX)
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


LOOP = Loop(NAME, timedelta(seconds=1), activate)
