"""Organizations: the caller's own, and new ones."""

from litestar import Controller, Response, get, post
from litestar.params import JSONBody

from control_plane.api import idempotency
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.requests import ApiRequest
from control_plane.api.views.api_keys import api_key_view
from control_plane.api.views.organizations import organization_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.services import organizations
from control_plane.services.idempotency import Connection
from control_plane.wire.organizations import CreatedOrganization, OrganizationRequest, OrganizationView


class OrganizationController(Controller):
    path = "/"
    tags = ["organizations"]  # noqa: RUF012 - the framework's way

    @get("/organization", permission=Permission.ORGANIZATIONS_READ, responses=PROBLEMS)
    async def show(self, request: ApiRequest) -> OrganizationView:
        """Your organization: its balance, holds and quota."""
        found = await organizations.show(request.world, request.principal.organization_id)
        return organization_view(found)

    @post(
        "/operator/organizations",
        permission=Permission.ORGANIZATIONS_CREATE,
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

        return await idempotency.once(request, effect, status=201)
