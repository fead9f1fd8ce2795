"""A service account is a machine's identity in an organization: a pipeline, a script, a scheduler."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import ServiceAccountId
from control_plane.domain.subject import Subject, SubjectKind, SubjectState


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    id: ServiceAccountId
    name: str
    """Unique among the organization's service accounts that are not removed."""
    state: SubjectState
    created_at: datetime

    @property
    def subject(self) -> Subject:
        return Subject(SubjectKind.SERVICE_ACCOUNT, self.id)
