"""What an administrator does with the exports of the audit log: choose their bucket, or end them."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from control_plane.db import audit, audit_retention
from control_plane.db.engine import Database
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.audit import AuditLine, AuditOutcome, Happening, SubjectKind


async def shown(db: Database) -> str:
    """Where the log is exported to, in a sentence or as the bucket's name."""
    async with db.reading() as connection:
        return await audit_retention.bucket(connection) or "The audit log is not exported."


async def choose(
    db: Database, bucket: str | None, *, now: Callable[[], datetime], new_id: Callable[[], UUID]
) -> str:
    """Export to a bucket from now on, or with None to none. Returns what that means, in a sentence."""
    line = AuditLine(
        id=new_id(),
        organization_id=None,
        at=now(),
        event=Happening.AUDIT_EXPORTS_SET,
        outcome=AuditOutcome.ALLOWED,
        subject=ADMINISTRATOR.name,
        subject_kind=SubjectKind.ADMINISTRATOR,
        rule="host:ended" if bucket is None else "host",
    )
    async with db.transaction() as connection:
        await audit_retention.set_bucket(connection, bucket)
        await audit.insert(connection, [line])
    if bucket is None:
        return (
            "The audit log is exported no more. Lines are deleted when they are old enough, exported or not."
        )
    return f"The audit log is exported to {bucket}, beginning with the first day that was not exported yet."
