"""Deletes lines of the audit log that are older than their retention, behind a checkpoint from which the rest verifies.

While the log is exported to a bucket, only lines that were exported are deleted. The database itself refuses to delete
a line that is younger than 30 days, or that no checkpoint continues. A crash between any two statements changes
nothing: they are one transaction for each chain.
"""

from datetime import timedelta

from control_plane.db import audit_retention
from control_plane.outcomes.audit import prune
from reconciler.loop import Loop, Report
from reconciler.worlds.audit import AuditWorld

NAME = "prune_audit"
LINES_PER_ACTIVATION_MAX = 10_000
CHAINS_PER_ACTIVATION_MAX = 200


async def activate(world: AuditWorld) -> Report:
    now = world.now()
    before, report = now - world.audit_kept, Report()
    async with world.db.reading() as connection:
        chains = await audit_retention.to_prune(connection, before=before, limit=CHAINS_PER_ACTIVATION_MAX)
    signer = await world.audit_keys.signer() if chains else None
    for chain in chains:
        async with world.db.transaction() as connection:
            pruned = await prune(
                connection,
                chain.organization_id,
                before=before,
                limit=LINES_PER_ACTIVATION_MAX,
                signer=signer,
                line_id=world.new_id(),
                now=now,
            )
        report.looked_at += 1
        report.acted_on += pruned
        report.more = report.more or pruned == LINES_PER_ACTIVATION_MAX
    return report


LOOP = Loop(NAME, timedelta(hours=1), activate, lasts=timedelta(minutes=10))
