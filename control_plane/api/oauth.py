"""OAuth 2.0 (RFC 6749): tokens for service accounts and for terminals, the device flow (RFC 8628), and revocation.

Errors have the form that RFC 6749, section 5.2, demands, because clients of OAuth expect it.
"""

import base64
import binascii
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import unquote_plus

from litestar import Controller, Response, post

from control_plane.api import observe
from control_plane.api.auditing import note_refused_holder, note_refused_key
from control_plane.api.cleaning import cleaned
from control_plane.api.errors import refusal
from control_plane.api.forms import form, wait_at_sign_in
from control_plane.api.requests import ApiRequest
from control_plane.domain.access import Principal
from control_plane.domain.audit import Happening, Origin, without_secrets
from control_plane.domain.device_flow import LASTS, Answer, shown
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.subject import SubjectKind
from control_plane.services import access_tokens, devices, principals, sessions
from control_plane.services.access_tokens import AccessToken
from control_plane.services.health import is_key_manager_trouble
from control_plane.services.sessions import CLIENT_ID, Tokens
from control_plane.services.signing_in import NOT_CONFIGURED, SigningIn

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT_LENGTH_MAX = 80
_ISSUE = Happening.TOKENS_ISSUE.value
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_INVALID_CLIENT = "The client id or its secret is wrong, or the API key is revoked or has expired."
_INVALID_GRANT = "This code or refresh token is unknown, used or expired, or its session has ended."
_WAITS = {
    Answer.PENDING: "Nobody has confirmed the code yet.",
    Answer.SLOW_DOWN: "You ask too often; wait five seconds longer from now on.",
    Answer.DENIED: "The sign-in was refused.",
    Answer.EXPIRED: "The code has expired.",
}


class _OAuthError(Exception):
    """An answer of RFC 6749, section 5.2."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


class OAuthController(Controller):
    path = "/oauth"
    include_in_schema = False

    @post("/token", status_code=200)
    async def token(self, request: ApiRequest) -> Response[dict[str, Any]]:
        """Tokens for an API key of a service account, a device code or a refresh token."""
        signing_in = configured(request)
        fields = await form(request)
        grant = _GRANTS.get(fields.get("grant_type", ""))
        if grant is None:
            await wait_at_sign_in(request)
            known = ", ".join(_GRANTS)
            return _refusal(_OAuthError("unsupported_grant_type", f"`grant_type` must be one of {known}."))
        try:
            return _answer(await grant(request, signing_in, fields))
        except _OAuthError as error:
            return _refusal(error)
        except Exception as error:
            if not is_key_manager_trouble(error):
                raise
            away = _OAuthError("temporarily_unavailable", "The key manager does not answer.", 503)
            return _refusal(away)

    @post("/device_authorization", status_code=200)
    async def authorize_device(self, request: ApiRequest) -> Response[dict[str, Any]]:
        """A code for a terminal, which a person confirms in a browser."""
        signing_in = configured(request)
        if signing_in.issuer is None:
            raise refusal(NOT_CONFIGURED)
        await wait_at_sign_in(request)
        fields = await form(request)
        if fields.get("client_id") != CLIENT_ID:
            return _refusal(_OAuthError("invalid_client", f"`client_id` must be {CLIENT_ID}.", 401))
        name = fields.get("client_name") or request.headers.get("user-agent") or ""
        client = without_secrets(cleaned(name, CLIENT_LENGTH_MAX))
        started = await devices.start(request.context.world, client=client, address=_address(request))
        if isinstance(started, Refused):
            raise refusal(started)
        page, code = f"{signing_in.url}/device", shown(started.user_code)
        return _answer(
            {
                "device_code": started.device_code,
                "user_code": code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code={code}",
                "expires_in": int(LASTS.total_seconds()),
                "interval": started.device.interval_seconds,
            }
        )

    @post("/revoke", status_code=200)
    async def revoke(self, request: ApiRequest) -> Response[dict[str, Any]]:
        """End the session of a refresh token (RFC 7009). A token that opens nothing is answered alike."""
        configured(request)
        await wait_at_sign_in(request)
        fields = await form(request)
        if "token" not in fields:
            return _refusal(_OAuthError("invalid_request", "`token` is missing."))
        await sessions.sign_out(request.context.world, fields["token"], origin=_origin(request))
        return _answer({})


def configured(request: ApiRequest) -> SigningIn:
    """What signing in needs. Raises ApiError when it is not configured."""
    signing_in = request.context.signing_in
    if signing_in is None:
        raise refusal(NOT_CONFIGURED)
    return signing_in


async def _client_credentials(
    request: ApiRequest, signing_in: SigningIn, fields: Mapping[str, str]
) -> dict[str, Any]:
    principal = await _service_account(request, fields)
    scope = None
    if "scope" in fields:
        scope = access_tokens.read_scope(fields["scope"])
        if scope is None or not scope <= {
            permission for permission in Permission if principal.may(permission)
        }:
            note_refused_holder(request, principal.holder, _ISSUE, "invalid_scope")
            why = "`scope` must be permissions that the key has, separated by spaces."
            raise _OAuthError("invalid_scope", why)
    token = await access_tokens.issue(
        request.context.world,
        signing_in,
        organization_id=principal.organization_id,
        subject=principal.subject,
        credential=principal.credential_name,
        client_id=principal.subject.on_wire,
        scope=scope,
    )
    return _token(token)


async def _service_account(request: ApiRequest, fields: Mapping[str, str]) -> Principal:
    """The service account whose API key the client sent as its secret. Raises _OAuthError."""
    client_id, secret = _credentials(request, fields)
    async with _trying(request, secret):
        found = await principals.of_secret(request.context.world, secret)
        if found is None:
            note_refused_key(request, secret, _ISSUE)
        elif found.subject.kind is SubjectKind.SERVICE_ACCOUNT and found.subject.on_wire == client_id:
            _right(request, secret)
            return found
        else:
            note_refused_holder(request, found.holder, _ISSUE, "invalid_client")
        raise _wrong(request, secret, _OAuthError("invalid_client", _INVALID_CLIENT, 401))


def _credentials(request: ApiRequest, fields: Mapping[str, str]) -> tuple[str, str]:
    """Client id and secret, from the header or the form, never from both (RFC 6749, section 2.3)."""
    authorization = request.headers.get("authorization")
    if authorization is None:
        return fields.get("client_id", ""), fields.get("client_secret", "")
    if "client_secret" in fields:
        raise _OAuthError("invalid_request", "Send the client's secret once.")
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    client_id, separator, secret = text.partition(":")
    if scheme.lower() != "basic" or not separator:
        raise _OAuthError("invalid_client", "Send the client id and its secret as HTTP Basic.", 401)
    return unquote_plus(client_id), unquote_plus(secret)


async def _refresh(request: ApiRequest, signing_in: SigningIn, fields: Mapping[str, str]) -> dict[str, Any]:
    secret = fields.get("refresh_token", "")
    async with _trying(request, secret):
        found = await sessions.refresh(request.context.world, signing_in, secret, origin=_origin(request))
        if isinstance(found, Tokens):
            return _tokens(request, found)
        if found is not None:
            note_refused_holder(request, found, _ISSUE, "invalid_grant")
        raise _wrong(request, secret, _OAuthError("invalid_grant", _INVALID_GRANT))


async def _device(request: ApiRequest, signing_in: SigningIn, fields: Mapping[str, str]) -> dict[str, Any]:
    secret = fields.get("device_code", "")
    async with _trying(request, secret):
        found = await devices.ask(request.context.world, signing_in, secret, origin=_origin(request))
        if found is None:
            raise _wrong(request, secret, _OAuthError("invalid_grant", _INVALID_GRANT))
    _right(request, secret)  # The terminal asks again.
    if isinstance(found, Answer):
        raise _OAuthError(found, _WAITS[found])
    return _tokens(request, found)


_GRANTS = {"client_credentials": _client_credentials, "refresh_token": _refresh, DEVICE_GRANT: _device}


def _tokens(request: ApiRequest, found: Tokens) -> dict[str, Any]:
    _right(request, found.refresh)
    return _token(found.access) | {
        "refresh_token": found.refresh,
        "session": on_wire(Prefix.SESSION, found.session_id),
        "organization": on_wire(Prefix.ORGANIZATION, found.organization_id),
    }


def _token(token: AccessToken) -> dict[str, Any]:
    scope = {} if token.scope is None else {"scope": token.scope}
    return {"access_token": token.token, "token_type": "Bearer", "expires_in": token.seconds, **scope}


def _answer(content: dict[str, Any]) -> Response[dict[str, Any]]:
    return Response(content, status_code=200, headers=_NO_STORE)


def _refusal(error: _OAuthError) -> Response[dict[str, Any]]:
    challenge = {"WWW-Authenticate": 'Basic realm="splitplane"'} if error.status == 401 else {}
    content = {"error": str(error.error), "error_description": error.description}
    return Response(content, status_code=error.status, headers=_NO_STORE | challenge)


def _origin(request: ApiRequest) -> Origin:
    return Origin(request.context.settings.region or None, observe.request_id(request.scope))


def _address(request: ApiRequest) -> str:
    return request.context.door.address(request.scope)


def _trying(request: ApiRequest, secret: str) -> AbstractAsyncContextManager[None]:
    """For the time in which a secret is looked up. Raises ApiError when too many wrong secrets were presented."""
    now = request.context.world.now().timestamp()
    return request.context.door.trying_key(_address(request), f"Bearer {secret}", now, _unsigned)


async def _unsigned() -> bool:
    """No secret of a form is an access token."""
    return False


def _right(request: ApiRequest, secret: str) -> None:
    """The next use of this secret here is not slowed, whatever comes from its address."""
    request.context.door.right_key(f"Bearer {secret}")


def _wrong(request: ApiRequest, secret: str, error: _OAuthError) -> _OAuthError:
    now = request.context.world.now().timestamp()
    request.context.door.wrong_key(_address(request), f"Bearer {secret}", now)
    return error
