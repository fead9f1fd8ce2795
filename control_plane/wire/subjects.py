"""Users and service accounts of an organization."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Name, NextCursor, PersonName, Request, Timestamp, View
from control_plane.wire.vocabulary import ServiceAccountIdText, SubjectStateWord, UserIdText

EMAIL_PATTERN = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}$(?!\n)"
Email = Annotated[
    str,
    Meta(
        pattern=EMAIL_PATTERN,
        max_length=254,
        description="An email address.",
        examples=["ada@example.com"],
        extra={"must": "an email address such as `ada@example.com`"},
    ),
]


class UserRequest(Request):
    """A person to be invited."""

    email: Email
    """Unique among the organization's users, whatever its capitals. The person signs in with it."""
    name: PersonName
    """The name of the person, for people."""


class UserView(View):
    """A user: a person in one organization."""

    id: UserIdText
    """The id of the user."""
    email: str
    """Its email address."""
    name: str
    """Its name, for people."""
    state: SubjectStateWord
    """Whether it may act."""
    created_at: Timestamp
    """When it was invited."""


class UserPage(View):
    """A page of users."""

    items: tuple[UserView, ...]
    """The users that are not removed, oldest first."""
    next_cursor: NextCursor | None


class ServiceAccountRequest(Request):
    """A service account to be made."""

    name: Name
    """Unique among the organization's service accounts."""


class ServiceAccountView(View):
    """A service account: a machine's identity in an organization."""

    id: ServiceAccountIdText
    """The id of the service account."""
    name: str
    """Its name."""
    state: SubjectStateWord
    """Whether it may act."""
    created_at: Timestamp
    """When it was created."""


class ServiceAccountPage(View):
    """A page of service accounts."""

    items: tuple[ServiceAccountView, ...]
    """The service accounts that are not removed, oldest first."""
    next_cursor: NextCursor | None
