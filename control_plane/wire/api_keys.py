"""API keys: credentials of users and service accounts."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View, require_a_year_of_ours
from control_plane.wire.roles import SubjectText
from control_plane.wire.vocabulary import ApiKeyIdText, ProjectIdText, SubjectIdText

OVERLAP_HOURS_DEFAULT = 24
OVERLAP_HOURS_MAX = 720
PermissionName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z_]+\.[a-z_]+$(?!\n)",
        max_length=64,
        examples=["leases.read"],
        extra={"must": "a permission such as `leases.read`"},
    ),
]


class ApiKeyRequest(Request):
    """An API key to be made."""

    name: Name
    """The name of the key, for people."""
    subject: SubjectText | None = None
    """Whose key it is: the id of a user or a service account; the caller's own when it is left out."""
    scopes: Annotated[tuple[PermissionName, ...], Meta(min_length=1, max_length=100)] | None = None
    """The permissions that it is limited to; all that its owner has when it is left out."""
    projects: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] | None = None
    """The projects that it is limited to, each by its name or its id; all that its owner reaches when it is left
    out."""
    expires_at: Timestamp | None = None
    """When it ends; it does not end by itself when it is left out."""

    def __post_init__(self) -> None:
        require_a_year_of_ours("expires_at", self.expires_at)


class RotationRequest(Request):
    """How a key is to be replaced."""

    overlap_hours: Annotated[int, Meta(ge=0, le=OVERLAP_HOURS_MAX)] = OVERLAP_HOURS_DEFAULT
    """For how many hours the old key is still valid: up to 30 days. With 0 it ends at once."""


class ApiKeyView(View):
    """An API key, without its secret."""

    id: ApiKeyIdText
    """The id of the key."""
    name: str
    """The name of the key, for people."""
    subject: SubjectIdText
    """The user or the service account that it belongs to."""
    hint: str
    """The first and last characters of the secret, to recognize the key by."""
    scopes: tuple[str, ...] | None
    """The permissions that it is limited to; null: all that its owner has."""
    project_ids: tuple[ProjectIdText, ...] | None
    """The projects that it is limited to; null: all that its owner reaches."""
    rotates: ApiKeyIdText | None
    """The key that it replaces; null when it replaces none."""
    created_at: Timestamp
    """When it was made."""
    expires_at: Timestamp | None
    """When it ends, or ended; null when it does not end by itself."""
    revoked_at: Timestamp | None
    """When it was revoked; null while it is not."""
    last_used_at: Timestamp | None
    """When it was used last, to within a minute or two; null when it never was."""


class ApiKeyList(View):
    """A page of API keys."""

    items: tuple[ApiKeyView, ...]
    """The keys, oldest first."""
    next_cursor: NextCursor | None = None


class IssuedApiKey(View):
    """A new API key with its secret."""

    key: ApiKeyView
    """The key."""
    secret: str | None
    """Shown once. A replay of the request (same Idempotency-Key) answers null."""
