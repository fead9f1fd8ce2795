"""The world of loops that keep the audit log."""

from dataclasses import dataclass, field
from datetime import timedelta

from reconciler.archive import OpenBucket
from reconciler.audit_keys import AuditKeys, NoAuditKeys
from reconciler.s3_archive import S3Archive
from reconciler.world import World

AUDIT_KEPT = timedelta(days=400)


@dataclass(frozen=True, kw_only=True)
class AuditWorld(World):
    open_bucket: OpenBucket = S3Archive
    """The archive that whole days of the log are exported to, by the name of its bucket."""
    audit_keys: AuditKeys = field(default_factory=NoAuditKeys)
    """What signs checkpoints."""
    audit_kept: timedelta = AUDIT_KEPT
    """How long lines are kept. While the log is exported, they are kept until that is done, too."""
