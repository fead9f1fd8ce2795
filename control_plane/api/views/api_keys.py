"""API keys on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.api_keys import ApiKey
from control_plane.wire.api_keys import ApiKeyView


def api_key_view(key: ApiKey) -> ApiKeyView:
    return ApiKeyView(
        id=on_wire(Prefix.API_KEY, key.id),
        name=key.name,
        role=key.role.value,
        hint=key.hint,
        created_at=key.created_at,
        revoked_at=key.revoked_at,
    )
