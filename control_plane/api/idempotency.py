"""`Idempotency-Key` on every POST: the first request takes effect, and repetitions get its answer again.

Requests that move money are refused without one.

Keys belong to a user or a service account. Two requests are the same when method, path, body and what the caller may
do are.
A refused request has no effect, so its key stays free: the client may correct the cause and use the same key again.

A body may hold credentials, so the digest by which a repetition is recognized is keyed with the Idempotency-Key, of
which the database has no more than another digest. Whoever reads the database can try out bodies only if they guess the
key as well, and that of our command line has 122 random bits.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from litestar import Response

from control_plane.api.auditing import note_made
from control_plane.api.auth import unauthenticated
from control_plane.api.errors import ApiError, refusal
from control_plane.api.requests import ApiRequest, moves_money, permission_of, require, scope_kind_of
from control_plane.domain.refusal import Refused
from control_plane.services import admissions, idempotency, principals
from control_plane.services.admissions import NotAllowed
from control_plane.services.idempotency import Answer, Connection, OtherBody, Produced, RequestKey, Shut
from control_plane.wire.common import View
from control_plane.wire.problems import FieldError
from tracing.attributes import Attribute

KEY_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class Made:
    """What an effect returns: the answer that is sent now, and the one that a replay repeats, without secrets."""

    view: View
    stored: View | None = None


class _Named(msgspec.Struct):
    id: str


async def once(
    request: ApiRequest,
    effect: Callable[[Connection], Awaitable[Made | Refused]],
    *,
    status: int,
    collection: str | None = None,
    gives_access: bool = False,
) -> Response[bytes]:
    """Run `effect` in one transaction of the caller's organization, at most once per key.

    `collection` is the path below which the new resource is found by its `id`, for the `Location` header. With
    `gives_access` the effect takes place only if the caller's API key is not revoked before it is committed, and
    `request.principal` is then what the caller may do at that moment.
    """

    async def produce(connection: Connection) -> Produced:
        if gives_access:
            await hold(connection, request)
        made = await effect(connection)
        if isinstance(made, Refused):
            raise refusal(made)  # Rolls back, so that nothing is stored.
        note_made(request.scope, made.view)
        body = msgspec.json.encode(made.view)
        return Produced(status, body, body if made.stored is None else msgspec.json.encode(made.stored))

    try:
        answer = await _answer(request, await _given(request), produce)
    except ApiError as error:
        if isinstance(error.refused, NotAllowed):
            await admissions.store(request.context.world, error.refused, request.actor)
        raise
    if isinstance(answer, Shut):
        raise unauthenticated()
    if isinstance(answer, OtherBody):
        raise ApiError("idempotency_key_reused", "This Idempotency-Key was used for another request.")
    headers = {}
    if collection is not None:
        headers["Location"] = f"{collection}/{msgspec.json.decode(answer.body, type=_Named).id}"
    if answer.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(answer.body, status_code=answer.status, media_type="application/json", headers=headers)


async def hold(connection: Connection, request: ApiRequest) -> None:
    """Go on with what the principal may do now, as nothing may be passed on that was taken away. Raises ApiError."""
    principal = await principals.hold(connection, request.world, request.principal)
    if principal is None:
        raise unauthenticated()
    require(principal, permission_of(request.route_handler), scope_kind_of(request.route_handler))
    request.scope["auth"] = principal


async def _answer(
    request: ApiRequest,
    key: RequestKey | None,
    produce: Callable[[Connection], Awaitable[Produced]],
) -> Answer | OtherBody | Shut:
    with request.world.tracer.span("transaction") as span:
        answer = await idempotency.once(
            request.world,
            request.principal.organization_id,
            key=key,
            effect=produce,
        )
        if isinstance(answer, Answer):
            span.set(Attribute.REPLAYED, answer.replayed)
    return answer


def _key(request: ApiRequest) -> str | None:
    given = request.headers.getall("idempotency-key", [])
    if not given:
        return None
    key = given[0]
    if len(given) > 1 or not 1 <= len(key) <= KEY_LENGTH_MAX or not key.isascii() or not key.isprintable():
        why = f"must be 1 to {KEY_LENGTH_MAX} printable ASCII characters, sent once"
        raise ApiError(
            "invalid_idempotency_key", f"Idempotency-Key {why}.", errors=[FieldError("Idempotency-Key", why)]
        )
    return key


async def _given(request: ApiRequest) -> RequestKey | None:
    """What identifies the request, as it is stored; None without an Idempotency-Key. Raises ApiError."""
    key = _key(request)
    if key is None and moves_money(request.route_handler):
        why = "is required, because this request moves money"
        raise ApiError(
            "idempotency_key_missing",
            f"An Idempotency-Key {why}.",
            errors=[FieldError("Idempotency-Key", why)],
        )
    if key is None:
        return None
    body = await request.body()
    # With what the caller may do, because it decides what an answer discloses, such as our costs in a quote.
    head = f"{request.method} {request.scope['path']} {request.principal.fingerprint}\n".encode()
    owned = f"{request.principal.subject.on_wire} {key}"  # Two subjects may choose the same key.
    return RequestKey(
        hashlib.sha256(owned.encode()).hexdigest(), hmac.digest(key.encode(), head + body, "sha256")
    )


async def no_body(request: ApiRequest) -> None:
    """Refuse a body where none is read, instead of passing over what the client expects to take effect."""
    if (await request.body()).strip() not in (b"", b"{}"):
        why = "takes no body"
        raise ApiError("invalid_request", f"This endpoint {why}.", errors=[FieldError("body", why)])
