"""The request that every handler gets, and the door before the handlers: key, rate, permission, query.

The framework would read `"5"` as a number and pass over a mistyped query parameter. A typo in
`price_usd_per_hour_max` must not buy at any price, so bodies are decoded strictly, once, from the raw
bytes, and a query may contain only what the handler declares.

Every route behind the door names one permission, `@get("/leases", permission=Permission.LEASES_READ)`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, get_origin
from urllib.parse import parse_qsl

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg

from control_plane.api import observe
from control_plane.api.auth import Authenticator, Principal
from control_plane.api.errors import ApiError, permission_denied
from control_plane.api.limits import Limiter
from control_plane.api.observe import Metrics
from control_plane.api.streams import Streams
from control_plane.api.views.disclosure import Disclosure
from control_plane.domain.actor import Actor
from control_plane.domain.permission import Permission
from control_plane.settings import Settings
from control_plane.wire.problems import FieldError
from control_plane.world import World

_MEDIA_TYPES = frozenset({"application/json"})


class Context:
    """What all requests of a process share; the app keeps it as `app.state.context`."""

    def __init__(self, world: World, settings: Settings, streams: Streams, metrics: Metrics) -> None:
        self.world = world
        self.settings = settings
        self.streams = streams
        self.metrics = metrics
        self.authenticator = Authenticator(world)
        self.limiter = Limiter(rate=settings.requests_per_second, burst=settings.requests_burst)


AnyRequest = Request[Any, Any, Any]


def context_of(request: AnyRequest) -> Context:
    context: Context = request.scope["litestar_app"].state.context
    return context


class ApiRequest(Request[Any, Principal, Any]):
    @property
    def context(self) -> Context:
        return context_of(self)

    @property
    def world(self) -> World:
        return self.context.world

    @property
    def principal(self) -> Principal:
        principal: Principal = self.scope["auth"]
        return principal

    @property
    def actor(self) -> Actor:
        """Who does what this request does, for the journal."""
        return self.principal.actor(observe.request_id(self.scope))

    @property
    def disclosure(self) -> Disclosure:
        return Disclosure.of(self.principal.permissions)

    async def body(self) -> bytes:
        try:
            return await super().body()
        except InternalServerException as error:
            # The framework raises this for a client that left, or sent malformed chunks, before the end.
            raise ApiError("bad_request", "The body ended before it was complete.") from error

    async def json(self) -> Any:
        """The body, decoded as the handler's `data` struct. The framework calls this before the handler."""
        require_json(self.headers.get("content-type", ""))
        field = self.route_handler.parsed_data_field
        if field is None:  # pragma: no cover - only handlers with a body are asked
            raise TypeError(f"{self.route_handler} has no body")
        return decode(await self.body(), field.annotation)


def require_json(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() not in _MEDIA_TYPES:
        raise ApiError("unsupported_media_type", "Send the body as `Content-Type: application/json`.")


_FIELD_NAMED = re.compile(r"(?:unknown|required) field `(.*)`")


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes, kind: type) -> Any:
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        # The text reads: Expected `str`, got `int` - at `$.regions[0]`
        what, _, where = str(error).partition(" - at `$")
        named = _FIELD_NAMED.search(what)
        path = where.rstrip("`") + (f".{named[1]}" if named else "")
        field = path.removeprefix(".") or "body"
        raise ApiError(
            "invalid_request",
            f"The body is invalid: {field}: {what}.",
            errors=[FieldError(field[:200], what[:500])],
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("malformed_json", "The body is not JSON, or it is nested too deeply.") from error


@cache
def query_names(handler: HTTPRouteHandler) -> Mapping[str, bool]:
    """The query parameters that a handler declares, and whether each may be repeated."""
    return {
        field.kwarg_definition.name or field.name: field.is_non_string_sequence
        or any(get_origin(part) is list for part in field.args)
        for field in handler.parsed_fn_signature.parameters.values()
        if isinstance(field.kwarg_definition, ParameterKwarg) and field.kwarg_definition.param_type == "query"
    }


def _check_query(request: AnyRequest) -> None:
    raw: bytes = request.scope["query_string"]
    if not raw:
        return
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError as error:
        why = "is not percent-encoded UTF-8, or has too many parameters"
        raise ApiError("invalid_parameter", f"The query {why}.", errors=[FieldError("query", why)]) from error
    known = query_names(request.route_handler)
    unknown = sorted({name for name, _ in pairs} - known.keys())
    if unknown:
        accepted = ", ".join(sorted(known)) or "none"
        raise ApiError(
            "unknown_parameter",
            f"This endpoint has these query parameters: {accepted}.",
            errors=[
                FieldError(name[:100], "is not a query parameter of this endpoint") for name in unknown[:8]
            ],
        )
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1 and not known[name]:
            why = "is given more than once"
            raise ApiError("invalid_parameter", f"`{name}` {why}.", errors=[FieldError(name, why)])


def permission_of(handler: HTTPRouteHandler) -> Permission:
    """The permission that a route names. A route that names none raises KeyError, so that it fails closed."""
    permission: Permission = handler.opt["permission"]
    return permission


async def public(request: AnyRequest) -> None:
    """The door of the routes that need no key: health and the API's document."""
    _check_query(request)


async def authorized(request: AnyRequest) -> None:
    """The door of everything else: a valid key, within its rate, with the route's permission, and a known query."""
    context = context_of(request)
    principal = await context.authenticator.principal(request.headers.get("authorization"))
    request.scope["auth"] = principal
    _limit_rate(request, context, principal)
    if request.method != "OPTIONS":  # The framework answers those itself, with the methods of the endpoint.
        require(principal, permission_of(request.route_handler))
    _check_query(request)


def require(principal: Principal, permission: Permission) -> None:
    """Raise a 403 that names the permission, unless the principal has it."""
    if not principal.may(permission):
        raise permission_denied(permission)


def _limit_rate(request: AnyRequest, context: Context, principal: Principal) -> None:
    grant = context.limiter.take(principal.api_key_id, context.world.now().timestamp())
    observe.add_headers(
        request.scope,
        (b"ratelimit-policy", context.limiter.policy),
        (b"ratelimit", b'"key";r=%d;t=%d' % (grant.remaining, grant.reset_seconds)),
    )
    if not grant.allowed:
        raise ApiError(
            "rate_limited",
            f"This API key sends more than {context.settings.requests_per_second:g} requests per second.",
            headers={"Retry-After": str(grant.reset_seconds)},
        )
