"""Subjects: the users and the service accounts of an organization. Everything that acts is one.

A credential (an API key, a session) belongs to a subject and can only narrow what the subject may do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from control_plane.domain.ids import Prefix, ServiceAccountId, UserId, on_wire
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class SubjectKind(StrEnum):
    USER = "user"
    SERVICE_ACCOUNT = "service_account"


class SubjectState(StrEnum):
    INVITED = "invited"
    """A user who has not signed in yet. Its API keys, if somebody made some, work."""
    ACTIVE = "active"
    SUSPENDED = "suspended"
    """Its credentials are refused until it is resumed."""
    REMOVED = "removed"
    """Its credentials are refused for good. The row stays, because the journal names it."""


class SubjectEvent(StrEnum):
    SIGNED_IN = "signed_in"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    REMOVED = "removed"


_S = SubjectState
_E = SubjectEvent

NEXT: Mapping[tuple[SubjectState, SubjectEvent], SubjectState] = {
    (_S.INVITED, _E.SIGNED_IN): _S.ACTIVE,
    (_S.INVITED, _E.SUSPENDED): _S.SUSPENDED,
    (_S.INVITED, _E.REMOVED): _S.REMOVED,
    (_S.ACTIVE, _E.SUSPENDED): _S.SUSPENDED,
    (_S.ACTIVE, _E.REMOVED): _S.REMOVED,
    (_S.SUSPENDED, _E.RESUMED): _S.ACTIVE,
    (_S.SUSPENDED, _E.REMOVED): _S.REMOVED,
}

MAY_ACT = frozenset({_S.INVITED, _S.ACTIVE})
"""States in which a subject's credentials are accepted."""


def step(
    state: SubjectState, event: SubjectEvent
) -> Moved[SubjectState, SubjectEvent] | Ignored[SubjectState, SubjectEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class Subject:
    """Which user or which service account."""

    kind: SubjectKind
    id: UserId | ServiceAccountId

    @property
    def on_wire(self) -> str:
        prefix = Prefix.USER if self.kind is SubjectKind.USER else Prefix.SERVICE_ACCOUNT
        return on_wire(prefix, self.id)
