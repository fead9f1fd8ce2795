"""Queries on the users that a person can be who signs in."""

from dataclasses import dataclass

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.id_token import Person
from control_plane.domain.ids import OrganizationId, UserId
from control_plane.domain.subject import SubjectState

_CANDIDATES = text("SELECT * FROM sign_in_users(:issuer, :subject, :email)")
# The first sign-in binds a user to whom the issuer knows. Nobody else can sign in as that user then.
_BIND = text("""
UPDATE users SET issuer = :issuer, subject = :subject, name = CASE name WHEN '' THEN :name ELSE name END
WHERE organization_id = :organization_id AND id = :id AND state = :state
  AND (issuer IS NULL AND lower(email) = lower(:email) OR issuer = :issuer AND subject = :subject)
""")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A user that a person is, or becomes with the first sign-in."""

    organization_id: OrganizationId
    organization: str
    """The organization's name."""
    user_id: UserId
    state: SubjectState
    bound: bool
    """Whether the person signed in as this user before."""


async def candidates(connection: Connection, person: Person) -> list[Candidate]:
    """Of all organizations, by the organizations' names."""
    values = {"issuer": person.issuer, "subject": person.subject, "email": person.email}
    return await read(connection, _CANDIDATES, Candidate, **values)


async def bind(
    connection: Connection,
    organization_id: OrganizationId,
    user_id: UserId,
    person: Person,
    *,
    state: SubjectState,
) -> bool:
    """Bind a user to a person. False when the user is somebody else, or in another state meanwhile."""
    return bool(
        await write(
            connection,
            _BIND,
            organization_id=organization_id,
            id=user_id,
            issuer=person.issuer,
            subject=person.subject,
            email=person.email,
            name=person.name,
            state=state.value,
        )
    )
