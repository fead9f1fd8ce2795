"""A user is a person in one organization. A person in two organizations is two users."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import UserId
from control_plane.domain.subject import Subject, SubjectKind, SubjectState


@dataclass(frozen=True, slots=True)
class User:
    id: UserId
    email: str
    """Unique among the organization's users that are not removed."""
    name: str
    state: SubjectState
    created_at: datetime

    @property
    def subject(self) -> Subject:
        return Subject(SubjectKind.USER, self.id)
