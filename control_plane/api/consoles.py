"""Consoles of leases' machines. The reconciler reads them, so a request is answered with 202."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath

from control_plane.api import idempotency
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.consoles import console_view
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import consoles
from control_plane.services.idempotency import Connection
from control_plane.wire.consoles import ConsoleView


class ConsoleController(Controller):
    path = "/leases/{lease_id:str}/consoles"
    tags = ("consoles",)

    @post(
        "/",
        operation_id="createConsole",
        permission=Permission.CONSOLES_READ,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(ConsoleView, 202),
    )
    async def create(self, request: ApiRequest, lease_id: FromPath[str]) -> Response[bytes]:
        """Request what the machine of a lease printed on its console, or the journal of its last boot.

        202: it is read within seconds, and `Location` is where to get it. It also works before the lease is ready.
        """
        wanted_lease = read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            requested = await consoles.request(
                connection,
                request.world,
                request.principal.organization_id,
                wanted_lease,
                reach=request.reach,
            )
            return requested if isinstance(requested, Refused) else Made(console_view(requested))

        collection = f"/v1/leases/{on_wire(Prefix.LEASE, wanted_lease)}/consoles"
        return await idempotency.once(request, effect, status=202, collection=collection)

    @get(
        "/{console_id:str}",
        operation_id="getConsole",
        permission=Permission.CONSOLES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def show(
        self, request: ApiRequest, lease_id: FromPath[str], console_id: FromPath[str]
    ) -> ConsoleView:
        """What was found, once `state` is `read`: the lines, where they are from, and our record of the steps."""
        found = await consoles.show(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            read_id(Prefix.CONSOLE, console_id),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return console_view(found.console, found.steps)
