"""Single leases of any organization that operators end."""

from litestar import Controller, Response, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency
from control_plane.api.documents import made
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_lease_id, read_organization_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.lease_ends import lease_end_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import lease_ends
from control_plane.services.idempotency import Connection
from control_plane.services.lease_ends import EndOrder
from control_plane.wire.lease_ends import LeaseEndRequest, LeaseEndView


class LeaseEndController(Controller):
    path = "/operator/organizations/{organization_id:str}/leases/{lease_id:str}"
    tags = ("leases",)

    @post(
        "/end",
        operation_id="endLease",
        permission=Permission.LEASES_END,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(LeaseEndView, 202),
    )
    async def end(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        lease_id: FromPath[str],
        data: JSONBody[LeaseEndRequest],
    ) -> Response[bytes]:
        """End a lease of any organization, for a reason that its customer reads. Its bill stops now.

        Repeating it changes nothing.
        """
        order = EndOrder(
            read_organization_id(organization_id),
            read_lease_id(lease_id),
            request.principal.organization_id,
            data.reason,
            request.actor,
        )

        async def effect(connection: Connection) -> Made | Refused:
            ended = await lease_ends.end(connection, request.world, order)
            return ended if isinstance(ended, Refused) else Made(lease_end_view(ended))

        return await idempotency.once(request, effect, status=202)
