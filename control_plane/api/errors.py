"""Every "no" on the wire: RFC 9457 problem details with a stable code, from one table.

A code never changes its meaning, and docs/errors.md lists each of them; a test holds the page
against this table. What went wrong inside goes to the log under the request's id, never out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from control_plane.api import observe
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import health
from control_plane.wire.problems import FieldError, Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
"""What a 503 asks for: a database fails over in seconds, and a stream ends when a client goes."""


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    title: str
    remedy: str
    """What the caller can do about it; for docs/errors.md."""


KINDS: dict[str, Kind] = {
    # The request itself.
    "malformed_json": Kind(400, "The body is not JSON", "Send one JSON object in UTF-8."),
    "invalid_parameter": Kind(400, "A parameter cannot be used", "Mend the parameter that `errors` names."),
    "unknown_parameter": Kind(
        400, "There is no such query parameter", "Leave out the parameter that `errors` names."
    ),
    "invalid_cursor": Kind(
        400, "The cursor is not one of ours", "Pass `next_cursor` of the page before, unchanged."
    ),
    "invalid_idempotency_key": Kind(
        400, "The Idempotency-Key cannot be used", "Send 1 to 255 printable ASCII characters."
    ),
    "bad_request": Kind(400, "The request cannot be understood", "Read `detail`."),
    "unauthenticated": Kind(401, "A valid API key is needed", "Send `Authorization: Bearer spk_...`."),
    "permission_denied": Kind(
        403, "Forbidden", "Use a key whose role has the permission that `permission` names."
    ),
    "route_not_found": Kind(404, "There is no such address", "See /schema/openapi.json."),
    "method_not_allowed": Kind(405, "The address has no such method", "See the `Allow` header."),
    "body_too_large": Kind(413, "The body is too large", "Send at most 64 KiB."),
    "unsupported_media_type": Kind(
        415, "The body's type is not JSON", "Send `Content-Type: application/json`."
    ),
    "invalid_request": Kind(422, "The body does not fit", "Mend the fields that `errors` names."),
    "idempotency_key_reused": Kind(
        422,
        "The Idempotency-Key belongs to another request",
        "Use a new key, or repeat the first request exactly.",
    ),
    "rate_limited": Kind(
        429, "Too many requests with this key", "Wait as `Retry-After` says; see `RateLimit`."
    ),
    # Ours.
    "internal": Kind(
        500, "We failed", "Repeat with the same Idempotency-Key; quote the request id to support."
    ),
    "database_unavailable": Kind(503, "The database does not answer", "Repeat after `Retry-After` seconds."),
    "not_ready": Kind(503, "The process cannot serve yet", "Migrate the database, or wait."),
    "streams_exhausted": Kind(
        503, "Too many event streams are open", "Repeat after `Retry-After` seconds, or poll."
    ),
    # Refusals: the request is understood, and the answer is no. The sentence says what to change.
    RefusalCode.BALANCE_TOO_LOW: Kind(402, "The balance is too low", "Top up."),
    RefusalCode.ORGANIZATION_SUSPENDED: Kind(403, "The organization is suspended", "Settle its account."),
    RefusalCode.LEASE_NOT_FOUND: Kind(404, "There is no such lease", "GET /v1/leases lists yours."),
    RefusalCode.NOT_FOUND: Kind(404, "There is no such thing", "List the collection that the address names."),
    RefusalCode.NAME_TAKEN: Kind(409, "The name is taken", "Choose another name."),
    RefusalCode.KEY_IN_USE: Kind(409, "The key is in use by this request", "Revoke it with another key."),
    RefusalCode.QUOTA_EXCEEDED: Kind(
        409, "The GPU quota is reached", "Release a lease or ask for a higher quota."
    ),
    RefusalCode.PRICE_ABOVE_CEILING: Kind(
        409, "The price is above the ceiling", "Raise the ceiling or take another SKU."
    ),
    RefusalCode.SKU_UNKNOWN: Kind(422, "There is no such SKU", "GET /v1/skus lists them."),
    RefusalCode.SSH_KEY_UNKNOWN: Kind(422, "There is no such SSH key", "GET /v1/ssh-keys lists yours."),
    RefusalCode.SSH_KEY_INVALID: Kind(422, "Not an OpenSSH public key", "Paste one line of a .pub file."),
    RefusalCode.REGION_NOT_SERVED: Kind(
        422, "Nothing is offered in this region", "GET /v1/offers shows regions."
    ),
    RefusalCode.ACCOUNT_UNKNOWN: Kind(
        422, "There is no such provider account", "GET /v1/operator/accounts lists them."
    ),
    RefusalCode.PROJECT_UNKNOWN: Kind(
        422, "There is no such project", "Name one of your projects, or leave it out."
    ),
    RefusalCode.PROVIDER_UNKNOWN: Kind(422, "There is no such provider", "GET /v1/offers shows providers."),
}


class ApiError(Exception):
    """A "no" with a code of the table."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        permission: Permission | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.permission = permission


def refusal(refused: Refused) -> ApiError:
    return ApiError(refused.code, refused.why)


def permission_denied(permission: Permission) -> ApiError:
    return ApiError(
        "permission_denied",
        f"This needs the permission `{permission}`, which the role of your API key does not have.",
        permission=permission,
    )


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Turn whatever a request raised into problem details. The app's only exception handler."""
    known = error if isinstance(error, ApiError) else _known(error)
    if known is None:
        observe.failed(request.scope, error)
        known = ApiError("internal", "Something broke on our side; it is logged under the request id.")
    return response(known, observe.request_id(request.scope))


def response(error: ApiError, request_id: str) -> Response[bytes]:
    kind = KINDS[error.code]
    problem = Problem(
        type=f"urn:splitplane:error:{error.code}",
        title=kind.title,
        status=kind.status,
        detail=error.detail,
        code=error.code,
        request_id=request_id,
        errors=error.errors,
        permission=error.permission,
    )
    headers = error.headers | ({"Retry-After": str(RETRY_AFTER_SECONDS)} if kind.status == 503 else {})
    return Response(
        msgspec.json.encode(problem), status_code=kind.status, media_type=MEDIA_TYPE, headers=headers
    )


def _known(error: Exception) -> ApiError | None:
    """What the framework or the database raised, in our words; None when it is a fault of ours."""
    match error:
        case ValidationException():
            return _validation(error)
        case NotFoundException():
            return ApiError("route_not_found", "There is nothing at this address.")
        case MethodNotAllowedException():
            return ApiError(
                "method_not_allowed", "The address does not have this method.", headers=error.headers
            )
        case RequestEntityTooLarge():
            return ApiError("body_too_large", "The body is larger than 64 KiB.")
        case HTTPException() if 400 <= error.status_code < 500:
            return ApiError("bad_request", "The request cannot be understood.")
        case _ if health.is_database_trouble(error):
            return ApiError(
                "database_unavailable", "The database did not answer; nothing was done or all of it."
            )
        case _ if health.is_bad_value(error):
            return ApiError("invalid_request", "A value cannot be stored.")
    return None


def _validation(error: ValidationException) -> ApiError:
    """A parameter that the framework could not convert; bodies have their own way, see requests.py."""
    found = [entry for entry in error.extra or () if isinstance(entry, dict)]
    if any(entry.get("key") == "data" for entry in found):
        return ApiError("malformed_json", "A JSON body is needed.")
    errors = [
        FieldError(str(entry.get("key", "request")), str(entry.get("message", "cannot be used"))[:300])
        for entry in found
    ]
    return ApiError("invalid_parameter", "A query parameter cannot be used.", errors=errors)


def page() -> str:
    """docs/errors.md, from the table."""
    lines = [
        "# Errors",
        "",
        "Every error is `application/problem+json` (RFC 9457). `code` is stable and safe to branch on; `detail` is a",
        "sentence for people; `errors` names fields where it can; `request_id` finds the request in our logs.",
        "Refusals of a quote carry the same codes inside a 200: a verdict is an answer.",
        "",
        "| Status | Code | Meaning | What to do |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {kind.status} | `{code}` | {kind.title} | {kind.remedy} |"
        for code, kind in sorted(KINDS.items(), key=lambda item: (item[1].status, item[0]))
    ]
    return "\n".join(lines) + "\n"
