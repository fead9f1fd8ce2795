"""An API key: a credential of a user or a service account, which may narrow what its owner may do."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.access import Narrowing
from control_plane.domain.ids import ApiKeyId, ProjectId
from control_plane.domain.permission import Permission
from control_plane.domain.subject import Subject

OVERLAP_HOURS_MAX = 24 * 30
"""So long two keys may be valid side by side during a rotation."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: ApiKeyId
    subject: Subject
    """Its owner."""
    name: str
    hint: str
    """The first and last characters of the secret."""
    scopes: tuple[str, ...] | None
    """The permissions that it is limited to; None: all that its owner has."""
    project_ids: tuple[ProjectId, ...] | None
    """The projects that it is limited to; None: all that its owner reaches."""
    rotates: ApiKeyId | None
    """The key that it replaces."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def narrowing(self) -> Narrowing:
        return narrowing(self.scopes, self.project_ids)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def end_of_overlap(self, now: datetime, overlap: timedelta) -> datetime:
        """When it ends after its rotation: after the overlap, and no later than it would have ended anyway."""
        end = now + overlap
        return end if self.expires_at is None else min(end, self.expires_at)


def narrowing(scopes: tuple[str, ...] | None, project_ids: tuple[ProjectId, ...] | None) -> Narrowing:
    """The limits of a key. A scope that is no permission any more allows nothing."""
    known = set(Permission)
    permissions = None if scopes is None else frozenset(Permission(name) for name in scopes if name in known)
    return Narrowing(permissions, None if project_ids is None else frozenset(project_ids))
