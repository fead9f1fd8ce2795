"""API keys of an organization."""

from datetime import datetime

from control_plane.wire.common import Name, Request, View


class ApiKeyRequest(Request):
    name: Name
    operator: bool = False
    """Only an operator's key may make another operator's key."""


class ApiKeyView(View):
    id: str
    name: str
    operator: bool
    hint: str
    """The first and last characters of the secret, to recognize the key by."""
    created_at: datetime
    revoked_at: datetime | None


class ApiKeyList(View):
    items: tuple[ApiKeyView, ...]


class IssuedApiKey(View):
    key: ApiKeyView
    secret: str | None
    """Shown once. A replay of the request (same Idempotency-Key) answers null."""
