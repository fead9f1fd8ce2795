"""The world of loops that keep the audit log."""

from dataclasses import dataclass, field
from datetime import timedelta

from reconciler.archive import Archive
from reconciler.audit_keys import AuditKeys, NoAuditKeys
from reconciler.world import World

AUDIT_KEPT = timedelta(days=400)


@dataclass(frozen=True, kw_only=True)
class AuditWorld(World):
    archive: Archive | None = None
    """Where whole days of the log are exported to; None when no bucket is configured."""
    audit_keys: AuditKeys = field(default_factory=NoAuditKeys)
    """What signs checkpoints."""
    audit_kept: timedelta = AUDIT_KEPT
    """How long lines are kept. With an archive, they are kept until they are exported, too."""
