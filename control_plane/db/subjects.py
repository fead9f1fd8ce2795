"""The columns in which rows name their subject, a user or a service account."""

from uuid import UUID

from control_plane.domain.ids import ServiceAccountId, UserId
from control_plane.domain.subject import Subject, SubjectKind


def subject_values(subject: Subject) -> dict[str, UUID | None]:
    """A subject as the parameters `user_id` and `service_account_id`, one of which is null."""
    is_user = subject.kind is SubjectKind.USER
    return {"user_id": subject.id if is_user else None, "service_account_id": None if is_user else subject.id}


def subject_of(user_id: UserId | None, service_account_id: ServiceAccountId | None) -> Subject:
    """The subject that two columns name. Raises ValueError when neither does."""
    if user_id is not None:
        return Subject(SubjectKind.USER, user_id)
    if service_account_id is not None:
        return Subject(SubjectKind.SERVICE_ACCOUNT, service_account_id)
    raise ValueError("the row has no subject")
