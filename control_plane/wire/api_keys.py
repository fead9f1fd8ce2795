"""API keys of an organization."""

from typing import Literal

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import ApiKeyIdText, RoleWord


class ApiKeyRequest(Request):
    """An API key to be made."""

    name: Name
    """The name of the key, for people."""
    role: Literal["customer", "operator"] = "customer"
    """What the key may do. The role `operator` needs the permission `api_keys.create_operator`."""


class ApiKeyView(View):
    """An API key, without its secret."""

    id: ApiKeyIdText
    """The id of the key."""
    name: str
    """The name of the key, for people."""
    role: RoleWord
    """`customer` or `operator`."""
    hint: str
    """The first and last characters of the secret, to recognize the key by."""
    created_at: Timestamp
    """When it was made."""
    revoked_at: Timestamp | None
    """When it was revoked; null while it is valid."""


class ApiKeyList(View):
    """All API keys of an organization."""

    items: tuple[ApiKeyView, ...]
    """The keys, oldest first."""
    next_cursor: NextCursor | None = None


class IssuedApiKey(View):
    """A new API key with its secret."""

    key: ApiKeyView
    """The key."""
    secret: str | None
    """Shown once. A replay of the request (same Idempotency-Key) answers null."""
