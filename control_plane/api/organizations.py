"""Organizations: the caller's own, and for operators all of them, and new ones."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.api_keys import api_key_view
from control_plane.api.views.billing import reconciliation_view
from control_plane.api.views.organizations import organization_view
from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import billing, organizations
from control_plane.services.idempotency import Connection
from control_plane.services.organizations import Organization
from control_plane.wire.billing import ReconciliationView
from control_plane.wire.common import NAME_LENGTH_MAX, NAME_PATTERN
from control_plane.wire.organizations import (
    CreatedOrganization,
    OrganizationPage,
    OrganizationRequest,
    OrganizationView,
)

OrganizationStates = Annotated[
    list[OrganizationState] | None,
    QueryParameter(
        name="state", max_items=8, description="Only organizations in these states; may be repeated."
    ),
]
NamePart = Annotated[
    str | None,
    QueryParameter(
        pattern=NAME_PATTERN,
        max_length=NAME_LENGTH_MAX,
        description="Only organizations whose names contain this text, in upper or lower case.",
    ),
]


async def _found(request: ApiRequest, organization_id: str) -> Organization:
    """The organization of a path, for an operator."""
    found = await organizations.find(request.world, read_organization_id(organization_id))
    if isinstance(found, Refused):
        raise refusal(found)
    return found


class OrganizationController(Controller):
    path = "/"
    tags = ("organizations",)

    @get(
        "/organization",
        operation_id="getOwnOrganization",
        permission=Permission.ORGANIZATIONS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest) -> OrganizationView:
        """Your organization: its balance, holds and quota."""
        return organization_view(await organizations.show(request.world, request.principal.organization_id))

    @get(
        "/operator/organizations",
        operation_id="listOrganizations",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        states: OrganizationStates = None,
        name: NamePart = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> OrganizationPage:
        """Organizations, oldest first: all, or those in some states or with some names."""
        found = await organizations.page(
            request.world,
            after=paging.moment("organizations", cursor),
            limit=limit + 1,
            states=states,
            part=name,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("organizations", row.created_at, row.id)
        )
        return OrganizationPage(tuple(organization_view(row) for row in page), following)

    @get(
        "/operator/organizations/{organization_id:str}",
        operation_id="getOrganization",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show_any(self, request: ApiRequest, organization_id: FromPath[str]) -> OrganizationView:
        """One organization: its balance, holds and quota."""
        return organization_view(await _found(request, organization_id))

    @get(
        "/operator/organizations/{organization_id:str}/reconciliation",
        operation_id="getOrganizationReconciliation",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def reconciliation(self, request: ApiRequest, organization_id: FromPath[str]) -> ReconciliationView:
        """What was rated and what was posted for an organization, each added up on its own."""
        organization = await _found(request, organization_id)
        return reconciliation_view(await billing.reconcile(request.world, organization.id))

    @post(
        "/operator/organizations",
        operation_id="createOrganization",
        permission=Permission.ORGANIZATIONS_CREATE,
        scope=ScopeKind.PLATFORM,
        responses=made(CreatedOrganization, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[OrganizationRequest]) -> Response[bytes]:
        """Create an organization and its first API key."""

        async def effect(connection: Connection) -> Made | Refused:
            created = await organizations.create_with_key(
                connection,
                request.world,
                by=request.principal.organization_id,
                name=data.name,
                gpu_quota=data.gpu_quota,
                key_name=data.key_name,
            )
            if isinstance(created, Refused):
                return created
            organization, key = organization_view(created.organization), api_key_view(created.issued.key)
            return Made(
                CreatedOrganization(organization, key, created.issued.secret),
                stored=CreatedOrganization(organization, key, None),
            )

        return await idempotency.once(request, effect, status=201, gives_access=True)
