"""A role binding: a subject has a role at a scope."""

from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import RoleBindingId
from control_plane.domain.role import Role
from control_plane.domain.scope import Scope
from control_plane.domain.subject import Subject


@dataclass(frozen=True, slots=True)
class RoleBinding:
    id: RoleBindingId
    subject: Subject
    role: Role
    scope: Scope
    created_at: datetime
    granted_by: str
    """The id of the subject that granted it, or `administrator`."""
