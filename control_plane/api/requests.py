"""The request that every handler gets, and the door before the handlers: key, rate, permission, query.

The framework would read `"5"` as a number and pass over a mistyped query parameter. A typo in
`price_usd_per_hour_max` must not buy at any price, so bodies are decoded strictly, once, from the raw
bytes, and a query may contain only what the handler declares.

Every route behind the door names one permission, and the kind of scope at which it needs it:
`@get("/leases", permission=Permission.LEASES_READ, scope=ScopeKind.LEASE)`. Its service then finds what is in reach.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, cast, get_origin
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg

from control_plane.api import costs, observe
from control_plane.api.auditing import note_refusal, recorded
from control_plane.api.auth import Authenticator, actor
from control_plane.api.budgets import Budgets
from control_plane.api.catch_up import CatchUp
from control_plane.api.door import Door
from control_plane.api.duplicates import refuse_duplicates
from control_plane.api.errors import ApiError, permission_denied, refusal
from control_plane.api.faults import faults, sentence
from control_plane.api.observe import Metrics
from control_plane.api.parameters import null_fault
from control_plane.api.refusals import Refusals
from control_plane.api.streams import Streams
from control_plane.api.views.disclosure import Disclosure
from control_plane.domain.access import Denied, Principal, Reach, decide
from control_plane.domain.actor import Actor
from control_plane.domain.admission import not_spending
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.domain.organization import OPEN, OrganizationState, allows
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import payments
from control_plane.services.changes import Changes
from control_plane.services.signing_in import SigningIn
from control_plane.settings import Settings
from control_plane.wire.problems import FieldError
from control_plane.world import World

BODY_SECONDS = 10.0
"""How long a client may take to send a body of at most 64 KiB."""
_MEDIA_TYPES = frozenset({"application/json"})


class Context:
    """What all requests of a process share; the app keeps it as `app.state.context`."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        streams: Streams,
        metrics: Metrics,
        changes: Changes,
        *,
        signing_in: SigningIn | None,
    ) -> None:
        self.world = world
        self.settings = settings
        self.streams = streams
        self.catch_up = CatchUp(world)
        self.metrics = metrics
        self.signing_in = signing_in
        self.payment_secrets = payments.secrets(settings.payment_secrets)
        """What events of the payment port are signed with; none where there is no port."""
        self.authenticator = Authenticator(world, signing_in)
        self.door = Door(settings)
        self.refusals = Refusals(world)
        self.budgets = Budgets(world, self.door.shared)
        metrics.sharing.set_function(lambda: float(self.budgets.failures == 0))
        changes.subscribe(
            lease=streams.lease_changed,
            api_key=self.key_changed,
            subject=self.subject_changed,
            organization=self.organization_changed,
            anything=self.anything_changed,
        )

    def key_changed(self, key: ApiKeyId) -> None:
        """A key was revoked or ends sooner, here or in another process: its streams are checked."""
        self.authenticator.forget(key)
        self.streams.key_changed(key)

    def subject_changed(self, subject: UUID) -> None:
        """The state or the roles of a user or a service account have changed: streams that lost their reach end."""
        self.authenticator.forget_subject(subject)
        self.streams.subject_changed(subject)

    def organization_changed(self, organization_id: OrganizationId, state: OrganizationState) -> None:
        """The state of an organization changed, here or in another process. Once it is closing, its streams end."""
        self.authenticator.forget_organization(organization_id)
        if state not in OPEN:
            self.streams.organization_closed(organization_id)

    def anything_changed(self) -> None:
        """Changes may have been missed."""
        self.authenticator.forget_all()
        if self.signing_in is not None:
            self.signing_in.keys.forget()
        self.streams.anything_changed()


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
        """What the handler works with. A change that it commits has its line in the audit log."""
        return recorded(self, self.context.world)

    @property
    def principal(self) -> Principal:
        principal: Principal = self.scope["auth"]
        return principal

    @property
    def actor(self) -> Actor:
        """Who does what this request does, for the journal."""
        return actor(self.principal, observe.request_id(self.scope))

    @property
    def reach(self) -> Reach:
        """Where the principal has the permission that this endpoint needs."""
        return self.principal.reach(permission_of(self.route_handler))

    @property
    def disclosure(self) -> Disclosure:
        return Disclosure.of(self.principal.where.keys())

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await super().body()
        except TimeoutError as error:
            raise ApiError(
                "request_timeout", f"The body did not arrive within {BODY_SECONDS:g} seconds."
            ) from error
        except InternalServerException as error:
            # The framework raises this for a client that left, or sent malformed chunks, before the end.
            raise ApiError("bad_request", "The body ended before it was complete.") from error

    async def json(self) -> Any:
        """The body, decoded as the handler's `data` struct. The framework calls this before the handler."""
        require_json(self.headers.get("content-type", ""))
        field = self.route_handler.parsed_data_field
        if field is None:  # pragma: no cover - only handlers with a body are asked
            raise TypeError(f"{self.route_handler} has no body")
        body = await self.body()
        refuse_duplicates(body)
        return decode(body, field.annotation)


def require_json(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() not in _MEDIA_TYPES:
        raise ApiError("unsupported_media_type", "Send the body as `Content-Type: application/json`.")


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes, kind: type) -> Any:
    """Decode a body as a struct of the wire. Raises ApiError, for a body that does not fit with all of its faults."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        plain = _plain_json(body)
        with suppress(msgspec.ValidationError):
            return msgspec.convert(plain, kind)
        found = faults(kind, plain)
        raise ApiError(
            "invalid_request",
            sentence(found) if found else "The body is invalid.",
            errors=[FieldError(path, what) for path, what in found],
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed() from error


def _plain_json(body: bytes) -> object:
    try:
        # Walking through a body takes more stack than decoding it did.
        return with_whole_numbers(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed() from error


def with_whole_numbers(value: object) -> object:
    """The value with `60.0` as 60: JSON has one kind of number, and to JSON Schema both are integers."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: with_whole_numbers(part) for key, part in value.items()}
        case list():
            return [with_whole_numbers(part) for part in value]
    return value


def malformed() -> ApiError:
    return ApiError("malformed_json", "The body is not JSON, or it is nested too deeply.")


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
    for name, value in pairs:
        if value.lower() == "null" and (fault := null_fault(request, name)) is not None:
            raise ApiError("invalid_parameter", f"`{name}` {fault.detail}.", errors=[fault])


def permission_of(handler: HTTPRouteHandler) -> Permission:
    """The permission that a route names. A route that names none raises KeyError, so that it fails closed."""
    permission: Permission = handler.opt["permission"]
    return permission


def moves_money(handler: HTTPRouteHandler) -> bool:
    """Whether a route moves money, so that it demands an Idempotency-Key."""
    return bool(handler.opt.get("moves_money"))


def scope_kind_of(handler: HTTPRouteHandler) -> ScopeKind:
    """The kind of scope at which a route needs its permission. A route that names none raises KeyError."""
    kind: ScopeKind = handler.opt["scope"]
    return kind


async def public(request: AnyRequest) -> None:
    """The door of the routes that need no key: health and the API's document."""
    door = arrive(request)
    # Health is answered before the database's clock is known.
    door.arrive_without_key(door.address(request.scope), time.monotonic())
    _check_query(request)


async def authorized(request: AnyRequest) -> None:
    """The door of everything else: a valid key, within its bounds, with the route's permission, and a known query."""
    # The framework answers OPTIONS with the methods of the endpoint, which are public.
    if request.method == "OPTIONS":
        await public(request)
        return
    door = arrive(request)
    refuse_wrong_clock(request)
    observe.at_end(request.scope, partial(note_refusal, cast("ApiRequest", request)))
    principal = await _principal(request)
    request.scope["auth"] = principal
    _enter(request, door, principal)
    require(principal, permission_of(request.route_handler), scope_kind_of(request.route_handler))
    _check_query(request)
    if request.method in {"PATCH", "POST", "PUT"}:
        await request.body()  # A client that sends slowly must not take its organization's turns.
    await door.wait_for_turn(request.scope, principal, lambda: context_of(request).world.now().timestamp())


def _enter(request: AnyRequest, door: Door, principal: Principal) -> None:
    """Let the request in as far as the rates of its key and its organization allow."""
    operation, now = request.route_handler.operation_id, context_of(request).world.now().timestamp()
    if operation in costs.APART:
        door.enter_apart(request.scope, principal, now)
    else:
        cost = costs.cost(str(operation), request.scope["query_string"])
        door.enter(request.scope, principal, now, cost)


def arrive(request: AnyRequest) -> Door:
    """Let the request in as far as its address may come."""
    context = context_of(request)
    door = context.door
    door.arrive(request.scope, door.address(request.scope))
    return door


def refuse_wrong_clock(request: AnyRequest) -> None:
    """Do no work while this host's clock and the database's differ; another replica may. Raises ApiError.

    How far they differ is in the log, and not in answers, which strangers get too.
    """
    world = context_of(request).world
    world.now()  # A clock that was never read is trouble with the database, and this raises it.
    if world.clock_refusal() is not None:
        raise ApiError("clock_differs", "The clocks of this server and of its database differ.")


async def _principal(request: AnyRequest) -> Principal:
    """Whose key this is. Where too many wrong keys were tried, one that was never right here has to wait."""
    context = context_of(request)
    authorization = request.headers.get("authorization")
    address, now = context.door.address(request.scope), context.world.now().timestamp()
    is_signed = partial(context.authenticator.is_signed, authorization)
    async with context.door.trying_key(address, authorization, now, is_signed):
        try:
            principal = await context.authenticator.principal(authorization)
        except ApiError:
            context.door.wrong_key(address, authorization, now)
            raise
    context.door.right_key(authorization)
    return principal


def require(principal: Principal, permission: Permission, kind: ScopeKind) -> None:
    """Raise a 403 that says what is missing, unless the principal has the permission at a scope of this kind.

    And unless its organization may use it now.
    """
    decided = decide(principal, permission, kind)
    if isinstance(decided, Denied):
        raise permission_denied(decided)
    if not allows(principal.organization_state, permission):
        raise refusal(not_spending(principal.organization_state))
