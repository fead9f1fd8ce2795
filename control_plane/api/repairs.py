"""Repairs: what customers are told about their machines and ask for, and what operators see and do."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.leases import lease_view
from control_plane.api.views.repairs import maintenance_view, notice_view, repair_detail_view, repair_view
from control_plane.domain.ids import MachineId, Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import lease_overviews, repairs
from control_plane.services.idempotency import Connection
from control_plane.wire.common import MACHINE_ID_PATTERN
from control_plane.wire.leases import LeaseView
from control_plane.wire.notices import NoticePage
from control_plane.wire.repairs import (
    MaintenanceRequest,
    MaintenanceView,
    RepairDetailView,
    RepairPage,
    ReplacementRequest,
)

Closed = Annotated[bool, QueryParameter(description="Also those that are closed.")]
OfMachine = Annotated[
    str | None,
    QueryParameter(pattern=MACHINE_ID_PATTERN, max_length=35, description="Only those of this machine."),
]


class LeaseRepairController(Controller):
    path = "/leases/{lease_id:str}"
    tags = ("machine health",)

    @post(
        "/replace",
        operation_id="replaceLeaseMachine",
        permission=Permission.LEASES_POWER,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def replace(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[ReplacementRequest]
    ) -> Response[bytes]:
        """Hand the machine of a lease back, and get another one. What is on its disk is gone.

        The lease stays, with its price; nothing is billed until the next machine is ready.
        """
        wanted = read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            handed = await repairs.hand_back(
                connection,
                request.world,
                request.principal.organization_id,
                wanted,
                why=data.why,
                reach=request.reach,
            )
            if isinstance(handed, Refused):
                return handed
            return Made(lease_view(lease_overviews.shown(handed, request.world.now())))

        return await idempotency.once(request, effect, status=202, collection="/v1/leases")

    @get(
        "/notices",
        operation_id="listNotices",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def notices(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        *,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NoticePage:
        """What you were told about the machines of a lease: faults, planned work and replacements, the latest first."""
        found = await repairs.notices(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            before=paging.number("notices", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda row: paging.after_number("notices", row.number))
        return NoticePage(tuple(map(notice_view, page)), following)


class RepairController(Controller):
    path = "/operator"
    tags = ("machine health",)

    @get(
        "/repairs",
        operation_id="listRepairs",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        closed: Closed = False,
        machine: OfMachine = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> RepairPage:
        """Machines that are not healthy and what is done about each, the latest first."""
        found = await repairs.page(
            request.world,
            request.principal.organization_id,
            only_open=not closed,
            machine_id=None if machine is None else MachineId(read_id(Prefix.MACHINE, machine)),
            before=paging.moment("repairs", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("repairs", row.opened_at, row.id)
        )
        return RepairPage(tuple(map(repair_view, page)), following)

    @get(
        "/repairs/{repair_id:str}",
        operation_id="getRepair",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, repair_id: FromPath[str]) -> RepairDetailView:
        """A repair with its evidence, and with a text for the provider of the machine that can be sent as it is."""
        found = await repairs.show(
            request.world, request.principal.organization_id, read_id(Prefix.REPAIR, repair_id)
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return repair_detail_view(found)

    @post(
        "/machines/{machine_id:str}/maintenance",
        operation_id="takeMachineOut",
        permission=Permission.MACHINES_MAINTAIN,
        scope=ScopeKind.PLATFORM,
        responses=made(MaintenanceView, 201),
    )
    async def take_out(
        self, request: ApiRequest, machine_id: FromPath[str], data: JSONBody[MaintenanceRequest]
    ) -> Response[bytes]:
        """Take a machine out for maintenance. Its customer is told, and has it replaced as their tier promises."""
        wanted = MachineId(read_id(Prefix.MACHINE, machine_id))

        async def effect(connection: Connection) -> Made | Refused:
            taken = await repairs.take_out(
                connection,
                request.world,
                wanted,
                why=data.why,
                planned_at=data.planned_at,
                actor=request.actor,
            )
            return taken if isinstance(taken, Refused) else Made(maintenance_view(taken))

        return await idempotency.once(request, effect, status=201)

    @post(
        "/machines/{machine_id:str}/return",
        operation_id="returnMachine",
        permission=Permission.MACHINES_MAINTAIN,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(MaintenanceView, 200),
    )
    async def give_back(self, request: ApiRequest, machine_id: FromPath[str]) -> Response[bytes]:
        """End the maintenance of a machine: it serves customers again."""
        wanted = MachineId(read_id(Prefix.MACHINE, machine_id))

        async def effect(connection: Connection) -> Made | Refused:
            ended = await repairs.give_back(connection, request.world, wanted, actor=request.actor)
            return ended if isinstance(ended, Refused) else Made(maintenance_view(ended))

        return await idempotency.once(request, effect, status=200)
