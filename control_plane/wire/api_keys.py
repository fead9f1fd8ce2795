"""API keys of an organization."""

from datetime import datetime
from typing import Literal

from control_plane.wire.common import Name, Request, View


class ApiKeyRequest(Request):
    name: Name
    role: Literal["customer", "operator"] = "customer"
    """What the key may do. The role `operator` needs the permission `api_keys.create_operator`."""


class ApiKeyView(View):
    id: str
    name: str
    role: str
    """`customer` or `operator`."""
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
