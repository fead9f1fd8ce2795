"""Quota requests: somebody asks for higher limits; somebody else approves, which changes the envelope, or declines."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import admission_decisions, envelopes, organizations, quota_requests
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.envelopes import EnvelopeScope
from control_plane.domain.access import EVERYWHERE, Reach
from control_plane.domain.actor import Actor
from control_plane.domain.decision import refusal
from control_plane.domain.envelope import UNLIMITED, Envelope, Level
from control_plane.domain.ids import AdmissionDecisionId, EnvelopeId, OrganizationId, QuotaRequestId
from control_plane.domain.quota_request import (
    EXPIRES_AFTER,
    PENDING_MAX,
    Approval,
    QuotaRequest,
    QuotaRequestEvent,
    QuotaRequestState,
    applied,
    approval,
    step,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Moved
from control_plane.services import admissions
from control_plane.services.envelopes import Place, scope_of
from control_plane.world import World

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "There is no such quota request.")
WITHIN_CEILING = frozenset({Level.ORGANIZATION, Level.PROJECT, Level.ENVIRONMENT})
"""The levels on which the organization itself decides."""
CEILING = frozenset({Level.CEILING})
"""The level on which an operator decides."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """Who decides on which request of an organization, with which reason."""

    organization_id: OrganizationId
    request_id: QuotaRequestId
    levels: frozenset[Level]
    """The levels on which the decider may decide; requests of other levels are not found."""
    reach: Reach
    """Where the decider may decide; requests elsewhere are not found."""
    by: str
    """The id of the decider on the wire."""
    reason: str
    actor: Actor
    back_to: OrganizationId
    """The decider's own organization, whose transaction it is."""


Decide = Callable[[Connection, World, Deciding], Awaitable[QuotaRequest | Refused]]


async def decide(
    connection: Connection, world: World, deciding: Deciding, how: Decide
) -> QuotaRequest | Refused:
    """Approve, decline or withdraw, in a transaction of the decider's organization."""
    async with acting_for(connection, deciding.organization_id, back_to=deciding.back_to):
        return await how(connection, world, deciding)


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    place: Place,
    limits: Envelope,
    *,
    reason: str,
    by: str,
    reach: Reach,
) -> QuotaRequest | Refused:
    """Ask for higher limits of a place within reach."""
    scope = await scope_of(connection, organization_id, place, reach=reach, writes=True)
    if isinstance(scope, Refused):
        return scope
    now = world.now()
    # One at a time, so that the bound holds.
    await organizations.standing(connection, organization_id, lock=True)
    if await quota_requests.count_pending(connection, organization_id, by, now=now) >= PENDING_MAX:
        why = f"{PENDING_MAX} quota requests of yours are not decided yet; withdraw one that you no longer need."
        return Refused(RefusalCode.QUOTA_REQUESTS_TOO_MANY, why)
    request = QuotaRequest(
        id=QuotaRequestId(world.new_id()),
        organization_id=organization_id,
        level=scope.level,
        project_id=scope.project_id,
        environment_id=scope.environment_id,
        limits=limits,
        reason=reason,
        state=QuotaRequestState.PENDING,
        asked_by=by,
        asked_at=now,
        expires_at=now + EXPIRES_AFTER,
    )
    await quota_requests.insert(connection, request)
    return request


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    states: Sequence[QuotaRequestState] | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
    reach: Reach,
) -> Sequence[QuotaRequest]:
    """Those within reach in these states, or all of them, newest first."""
    async with world.db.reading(organization_id) as connection:
        return await quota_requests.page(
            connection, organization_id, reach, states=states, now=world.now(), before=before, limit=limit
        )


async def page_of_all(
    world: World,
    *,
    states: Sequence[QuotaRequestState] | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[QuotaRequest]:
    """The requests of all organizations, or those in these states, newest first. Each is read as its own tenant."""
    async with world.db.reading() as connection:
        places = await quota_requests.ids_of_all(
            connection, states=states, now=world.now(), before=before, limit=limit
        )
    found = [await show(world, place.organization_id, place.id, reach=EVERYWHERE) for place in places]
    return [request for request in found if not isinstance(request, Refused)]


async def show(
    world: World, organization_id: OrganizationId, request_id: QuotaRequestId, *, reach: Reach
) -> QuotaRequest | Refused:
    async with world.db.reading(organization_id) as connection:
        request = await quota_requests.get(connection, organization_id, request_id)
    return _UNKNOWN if request is None or not reach.contains(request.scope) else request


async def approve(connection: Connection, world: World, deciding: Deciding) -> QuotaRequest | Refused:
    """Approve a request and change its envelope, in a transaction of the organization."""
    request = await _pending(connection, world, deciding, QuotaRequestEvent.APPROVED)
    if isinstance(request, Refused):
        return request
    now, organization_id = world.now(), deciding.organization_id
    standing = await organizations.standing(connection, organization_id, lock=True)
    if standing is None:
        return _UNKNOWN
    scope = EnvelopeScope(organization_id, request.level, request.project_id, request.environment_id)
    stored = await envelopes.get(connection, scope)
    envelope = UNLIMITED if stored is None else stored.limits
    parents = await envelopes.above(connection, scope)
    decision = approval(Approval(request, deciding.by, standing.state, envelope, parents))
    about = About(organization_id, request.project_id, request.environment_id, quota_request_id=request.id)
    refused = refusal(decision)
    if refused is not None:
        return admissions.refused(refused, about)
    await envelopes.put(
        connection,
        scope,
        EnvelopeId(world.new_id()),
        applied(envelope, request.limits),
        by=deciding.by,
        now=now,
    )
    decision_id = AdmissionDecisionId(world.new_id())
    await admission_decisions.insert(
        connection, [(decision_id, about, decision)], actor=deciding.actor, now=now
    )
    return await _decided(connection, request, QuotaRequestState.APPROVED, deciding, now)


async def decline(connection: Connection, world: World, deciding: Deciding) -> QuotaRequest | Refused:
    request = await _pending(connection, world, deciding, QuotaRequestEvent.DECLINED)
    if isinstance(request, Refused):
        return request
    if request.asked_by == deciding.by:
        why = "Nobody decides on what they asked for themselves; withdraw the request instead."
        return Refused(RefusalCode.OWN_REQUEST, why)
    return await _decided(connection, request, QuotaRequestState.DECLINED, deciding, world.now())


async def withdraw(connection: Connection, world: World, deciding: Deciding) -> QuotaRequest | Refused:
    """Take back what one asked for oneself; to others there is no such request."""
    request = await _pending(connection, world, deciding, QuotaRequestEvent.WITHDRAWN)
    if isinstance(request, Refused):
        return request
    if request.asked_by != deciding.by:
        why = "Only who asked can withdraw a request; an owner, admin or operator can decline it."
        return Refused(RefusalCode.OWN_REQUEST, why)
    return await _decided(connection, request, QuotaRequestState.WITHDRAWN, deciding, world.now())


async def _pending(
    connection: Connection, world: World, deciding: Deciding, event: QuotaRequestEvent
) -> QuotaRequest | Refused:
    """A request that is still open, locked."""
    request = await quota_requests.get(connection, deciding.organization_id, deciding.request_id, lock=True)
    if request is None or request.level not in deciding.levels or not deciding.reach.contains(request.scope):
        return _UNKNOWN
    state = request.state_at(world.now())
    if not isinstance(step(state, event), Moved):
        return Refused(RefusalCode.REQUEST_DECIDED, f"The request is {state} already.")
    return request


async def _decided(
    connection: Connection,
    request: QuotaRequest,
    state: QuotaRequestState,
    deciding: Deciding,
    now: datetime,
) -> QuotaRequest | Refused:
    if not await quota_requests.decide(
        connection, request, state, by=deciding.by, answer=deciding.reason, now=now
    ):
        return Refused(RefusalCode.REQUEST_DECIDED, "The request was decided a moment ago.")
    return await quota_requests.get(connection, deciding.organization_id, request.id) or _UNKNOWN
