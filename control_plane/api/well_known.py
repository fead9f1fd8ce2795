"""What others need to know of our tokens: the public keys, and where the endpoints are (RFC 8414)."""

from typing import Any

from litestar import Controller, Response, get

from control_plane.api.oauth import DEVICE_GRANT, configured
from control_plane.api.requests import ApiRequest
from control_plane.domain.permission import Permission
from control_plane.identity.tokens import jwks

KEYS_SECONDS = 300
"""So long others may remember our keys. A new key is published much earlier than it signs."""
_CACHED = {"Cache-Control": f"public, max-age={KEYS_SECONDS}"}


class WellKnownController(Controller):
    path = "/.well-known"
    include_in_schema = False

    @get("/jwks.json")
    async def keys(self, request: ApiRequest) -> Response[dict[str, Any]]:
        """The keys that verify access tokens."""
        signing_in = configured(request)
        found = jwks(await signing_in.keys.keys(), request.context.world.now())
        return Response(found, headers=_CACHED)

    @get("/oauth-authorization-server", sync_to_thread=False)
    def metadata(self, request: ApiRequest) -> Response[dict[str, Any]]:
        url = configured(request).url
        return Response(
            {
                "issuer": url,
                "token_endpoint": f"{url}/oauth/token",
                "device_authorization_endpoint": f"{url}/oauth/device_authorization",
                "revocation_endpoint": f"{url}/oauth/revoke",
                "jwks_uri": f"{url}/.well-known/jwks.json",
                "grant_types_supported": ["client_credentials", "refresh_token", DEVICE_GRANT],
                "response_types_supported": [],
                "scopes_supported": [str(permission) for permission in Permission],
                "token_endpoint_auth_methods_supported": [
                    "client_secret_basic",
                    "client_secret_post",
                    "none",
                ],
                "service_documentation": f"{url}/docs",
            },
            headers=_CACHED,
        )
