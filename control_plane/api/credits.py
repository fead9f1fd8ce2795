"""Credits: money posted to an organization."""

from litestar import Controller, Response, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency
from control_plane.api.documents import made
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_organization_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.organizations import credit_view
from control_plane.domain.money import parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import credits as service
from control_plane.services.idempotency import Connection
from control_plane.wire.organizations import CreditRequest, CreditView


class CreditController(Controller):
    path = "/operator/organizations/{organization_id:str}/credits"
    tags = ("organizations",)

    @post(
        "/",
        operation_id="createCredit",
        permission=Permission.CREDITS_CREATE,
        scope=ScopeKind.PLATFORM,
        responses=made(CreditView, 201),
    )
    async def create(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[CreditRequest]
    ) -> Response[bytes]:
        """Post a credit. Without an Idempotency-Key, every request posts another one."""
        target = read_organization_id(organization_id)
        amount = parse_usd(data.amount_usd)
        posting = f"{request.principal.subject.on_wire}:{request.world.new_id().hex}"

        async def effect(connection: Connection) -> Made | Refused:
            credited = await service.create(
                connection,
                request.world,
                target,
                amount,
                by=request.principal.organization_id,
                key=posting,
            )
            return credited if isinstance(credited, Refused) else Made(credit_view(credited, amount))

        return await idempotency.once(request, effect, status=201)
