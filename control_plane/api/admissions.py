"""Decisions of admission: what was asked for, what was decided, and every rule that spoke."""

from typing import Annotated

from litestar import Controller, get
from litestar.params import FromPath, QueryParameter

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_lease_id, read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.admissions import decision_view
from control_plane.domain.decision import Verdict
from control_plane.domain.ids import OrganizationId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import admissions, organizations
from control_plane.wire.admissions import DecisionPage
from control_plane.wire.common import LEASE_ID_PATTERN

OfLease = Annotated[
    str | None,
    QueryParameter(
        name="lease",
        pattern=LEASE_ID_PATTERN,
        max_length=35,
        description="Only decisions about the lease with this id.",
    ),
]
WithOutcome = Annotated[
    Verdict | None, QueryParameter(name="outcome", description="Only decisions with this outcome.")
]


class AdmissionController(Controller):
    path = "/"
    tags = ("envelopes",)

    @get(
        "/admission-decisions",
        operation_id="listAdmissionDecisions",
        permission=Permission.ADMISSION_DECISIONS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        lease: OfLease = None,
        outcome: WithOutcome = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> DecisionPage:
        """What was decided about your organization's requests, with every rule that spoke, newest first."""
        return await _page(
            request, request.principal.organization_id, lease, outcome, limit=limit, cursor=cursor
        )

    @get(
        "/operator/organizations/{organization_id:str}/admission-decisions",
        operation_id="listAdmissionDecisionsOfOrganization",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index_any(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        *,
        lease: OfLease = None,
        outcome: WithOutcome = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> DecisionPage:
        """What was decided about an organization's requests, with every rule that spoke, newest first."""
        wanted = read_organization_id(organization_id)
        found = await organizations.find(request.world, wanted)
        if isinstance(found, Refused):
            raise refusal(found)
        return await _page(request, found.id, lease, outcome, limit=limit, cursor=cursor)


async def _page(
    request: ApiRequest,
    organization_id: OrganizationId,
    lease: str | None,
    outcome: Verdict | None,
    *,
    limit: int,
    cursor: str | None,
) -> DecisionPage:
    found = await admissions.page(
        request.world,
        organization_id,
        lease_id=None if lease is None else read_lease_id(lease),
        outcome=outcome,
        before=paging.moment("admission_decisions", cursor),
        limit=limit + 1,
    )
    page, following = paging.cut(
        found, limit, lambda row: paging.after_moment("admission_decisions", row.decided_at, row.id)
    )
    return DecisionPage(tuple(decision_view(row) for row in page), following)
