"""The life of an organization, as operators decide it: suspensions, resumptions, closures, deletions; its record."""

from collections.abc import Awaitable, Callable
from functools import partial

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, observe, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.organizations import change_view, event_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import organization_states
from control_plane.services.idempotency import Connection
from control_plane.services.organization_states import Changed, Order
from control_plane.wire.organizations import (
    OrganizationChange,
    OrganizationEventPage,
    ReasonRequest,
    SuspensionRequest,
)
from control_plane.world import World

Change = Callable[[Connection, World, Order], Awaitable[Changed | Refused]]


async def _once(request: ApiRequest, organization_id: str, reason: str, change: Change) -> Response[bytes]:
    target = read_organization_id(organization_id)
    order = Order(target, request.principal.organization_id, reason, request.actor)
    done: list[Changed] = []

    async def effect(connection: Connection) -> Made | Refused:
        changed = await change(connection, request.world, order)
        if isinstance(changed, Refused):
            return changed
        done.append(changed)
        return Made(change_view(changed))

    answer = await idempotency.once(request, effect, status=201)
    for changed in done:
        request.context.organization_changed(target, changed.organization.state)
        observe.log.info(
            "organization_changed", organization=organization_id, state=changed.organization.state
        )
    return answer


class OrganizationStateController(Controller):
    path = "/operator/organizations/{organization_id:str}"
    tags = ("organizations",)

    @post(
        "/suspensions",
        operation_id="suspendOrganization",
        permission=Permission.ORGANIZATIONS_SUSPEND,
        scope=ScopeKind.PLATFORM,
        responses=made(OrganizationChange, 201),
    )
    async def suspend(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[SuspensionRequest]
    ) -> Response[bytes]:
        """Suspend an organization: its keys read and release, and its leases run on what is held for them."""
        suspend = partial(organization_states.suspend, end_leases=data.end_leases)
        return await _once(request, organization_id, data.reason, suspend)

    @post(
        "/resumptions",
        operation_id="resumeOrganization",
        permission=Permission.ORGANIZATIONS_RESUME,
        scope=ScopeKind.PLATFORM,
        responses=made(OrganizationChange, 201),
    )
    async def resume(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[ReasonRequest]
    ) -> Response[bytes]:
        """End the suspension of an organization."""
        return await _once(request, organization_id, data.reason, organization_states.resume)

    @post(
        "/closures",
        operation_id="closeOrganization",
        permission=Permission.ORGANIZATIONS_CLOSE,
        scope=ScopeKind.PLATFORM,
        responses=made(OrganizationChange, 201),
    )
    async def close(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[ReasonRequest]
    ) -> Response[bytes]:
        """Close an organization for good, at once: its keys are refused and its leases end.

        It is `closing` until its machines are confirmed gone and all usage is posted. A second closure changes nothing
        and answers with the record of the first.
        """
        return await _once(request, organization_id, data.reason, organization_states.close)

    @post(
        "/deletions",
        operation_id="deleteOrganization",
        permission=Permission.ORGANIZATIONS_DELETE,
        scope=ScopeKind.PLATFORM,
        responses=made(OrganizationChange, 201),
    )
    async def delete(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[ReasonRequest]
    ) -> Response[bytes]:
        """Have the personal data of a closed organization erased. Its ledger, charges and journals stay.

        `erased_at` of the organization says when it was done, seconds later.
        """
        return await _once(request, organization_id, data.reason, organization_states.delete)

    @get(
        "/history",
        operation_id="listOrganizationHistory",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def history(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> OrganizationEventPage:
        """The record of an organization: who changed its state, why, and what that ended; oldest first."""
        found = await organization_states.page(
            request.world,
            read_organization_id(organization_id),
            after=paging.number("organizationhistory", cursor),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda recorded: paging.after_number("organizationhistory", recorded.number)
        )
        return OrganizationEventPage(tuple(event_view(recorded) for recorded in page), following)
