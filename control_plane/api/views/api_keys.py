"""API keys on the wire."""

from control_plane.domain.api_key import ApiKey
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.api_keys import IssuedKey
from control_plane.wire.api_keys import ApiKeyView, IssuedApiKey


def api_key_view(key: ApiKey) -> ApiKeyView:
    projects = key.project_ids
    return ApiKeyView(
        id=on_wire(Prefix.API_KEY, key.id),
        name=key.name,
        subject=key.subject.on_wire,
        hint=key.hint,
        scopes=key.scopes,
        project_ids=None if projects is None else tuple(on_wire(Prefix.PROJECT, each) for each in projects),
        rotates=None if key.rotates is None else on_wire(Prefix.API_KEY, key.rotates),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


def issued_key_view(issued: IssuedKey) -> IssuedApiKey:
    return IssuedApiKey(api_key_view(issued.key), issued.secret)
