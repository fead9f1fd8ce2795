"""The fleet, for operators: every machine that may exist, with whoever holds it, and counts of them."""

from typing import Annotated, Literal

from litestar import Controller, get
from litestar.params import QueryParameter

from control_plane.api import paging
from control_plane.api.accounts import OfAccount
from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.filters import InRegion, OfProvider
from control_plane.api.identifiers import read_id, read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.fleet import fleet_machine_view, fleet_totals
from control_plane.domain.gpu import GpuModel
from control_plane.domain.health import Verdict
from control_plane.domain.ids import AccountName, MachineId, OrganizationId, Prefix, ProjectId
from control_plane.domain.machine import MachineState
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import fleet
from control_plane.services.fleet import FleetFilter
from control_plane.wire.common import (
    ORGANIZATION_ID_PATTERN,
    PROJECT_ID_PATTERN,
)
from control_plane.wire.fleet import FleetMachinePage, FleetTotals

OfModel = Annotated[GpuModel | None, QueryParameter(description="Only with GPUs of this model.")]
VerdictChoice = Literal["healthy", "degraded", "maintenance_required", "quarantined", "lost"]
OfVerdict = Annotated[
    VerdictChoice | None, QueryParameter(description="Only with this verdict about their health.")
]
IsSilent = Annotated[bool, QueryParameter(description="Only those whose agents do not report.")]
InState = Annotated[MachineState | None, QueryParameter(name="state", description="Only in this state.")]
OfOrganization = Annotated[
    str | None,
    QueryParameter(
        pattern=ORGANIZATION_ID_PATTERN,
        max_length=36,
        description="Only those that a lease of this organization holds.",
    ),
]
OfProjectId = Annotated[
    str | None,
    QueryParameter(
        name="project",
        pattern=PROJECT_ID_PATTERN,
        max_length=36,
        description="Only those that a lease of this project holds.",
    ),
]


class FleetController(Controller):
    path = "/operator/fleet"
    tags = ("fleet",)

    @get(
        "/machines",
        operation_id="listFleetMachines",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def machines(
        self,
        request: ApiRequest,
        *,
        provider: OfProvider = None,
        account: OfAccount = None,
        region: InRegion = None,
        gpu_model: OfModel = None,
        verdict: OfVerdict = None,
        silent: IsSilent = False,
        in_state: InState = None,
        organization: OfOrganization = None,
        of_project: OfProjectId = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> FleetMachinePage:
        """Every machine that may exist at a provider, newest first, with whoever holds it."""
        only = FleetFilter(
            *(provider, _account(account), region, gpu_model, _verdict(verdict), silent, in_state),
            *(_organization(organization), _project(of_project)),
        )
        after = paging.moment("fleet", cursor)
        found = await fleet.page(
            request.world,
            request.principal.organization_id,
            only,
            after=None if after is None else MachineId(after[1]),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("fleet", row.created_at, row.id)
        )
        now = request.world.now()
        return FleetMachinePage(tuple(fleet_machine_view(machine, now) for machine in page), following)

    @get(
        operation_id="getFleetTotals",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def totals(
        self,
        request: ApiRequest,
        *,
        provider: OfProvider = None,
        account: OfAccount = None,
        region: InRegion = None,
        gpu_model: OfModel = None,
        verdict: OfVerdict = None,
        silent: IsSilent = False,
        in_state: InState = None,
        organization: OfOrganization = None,
        of_project: OfProjectId = None,
    ) -> FleetTotals:
        """The machines that may exist, and their GPUs: delivered, healthy, reserved, active, and what they cost."""
        only = FleetFilter(
            *(provider, _account(account), region, gpu_model, _verdict(verdict), silent, in_state),
            *(_organization(organization), _project(of_project)),
        )
        return fleet_totals(await fleet.totals(request.world, request.principal.organization_id, only))


def _account(name: str | None) -> AccountName | None:
    return None if name is None else AccountName(name)


def _verdict(word: VerdictChoice | None) -> Verdict | None:
    return None if word is None else Verdict(word)


def _organization(text: str | None) -> OrganizationId | None:
    return None if text is None else read_organization_id(text)


def _project(text: str | None) -> ProjectId | None:
    return None if text is None else ProjectId(read_id(Prefix.PROJECT, text))
