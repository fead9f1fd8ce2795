"""The columns in which rows name their subject, a user or a service account."""

from uuid import UUID

from control_plane.domain.subject import Subject, SubjectKind


def subject_values(subject: Subject) -> dict[str, UUID | None]:
    """A subject as the parameters `user_id` and `service_account_id`, one of which is null."""
    is_user = subject.kind is SubjectKind.USER
    return {"user_id": subject.id if is_user else None, "service_account_id": None if is_user else subject.id}
