"""The audit log: lists of its lines, the heads of its chains, and exports that anybody can check."""

from collections.abc import Sequence
from typing import Annotated

from litestar import Controller, get
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.errors import ApiError
from control_plane.api.identifiers import read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.audit import audit_chain_view, audit_event_view
from control_plane.domain.audit import EVENTS, PLATFORM_CHAIN, AuditOutcome
from control_plane.domain.audit_chain import SealedLine
from control_plane.domain.ids import OrganizationId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import choose
from control_plane.domain.scope import ScopeKind
from control_plane.services import audit
from control_plane.services.audit import Filter
from control_plane.wire.audit import (
    ACTOR_PATTERN,
    CHAIN_PATTERN,
    TARGET_PATTERN,
    AuditChainView,
    AuditEventPage,
)
from control_plane.wire.problems import FieldError

NDJSON = "application/x-ndjson"
Event = Annotated[
    str | None,
    QueryParameter(schema_extra={"enum": sorted(EVENTS)}, description="An event, such as `leases.create`."),
]
Outcome = Annotated[AuditOutcome | None, QueryParameter(description="What came of it.")]
Who = Annotated[
    str | None,
    QueryParameter(
        name="subject",
        pattern=ACTOR_PATTERN,
        max_length=100,
        description="The id of a subject or a credential, or the name of a loop.",
    ),
]
Target = Annotated[
    str | None,
    QueryParameter(
        pattern=TARGET_PATTERN, max_length=100, description="The id of what it was about, such as a lease's."
    ),
]
After = Annotated[
    int,
    QueryParameter(ge=0, le=10**15, description="Export what is behind this place in the chain."),
]
Chain = Annotated[
    str | None,
    QueryParameter(
        pattern=CHAIN_PATTERN, max_length=40, description="The id of an organization, or `platform`."
    ),
]


class AuditController(Controller):
    path = "/"
    tags = ("audit log",)

    @get(
        "/audit-events",
        operation_id="listAuditEvents",
        permission=Permission.AUDIT_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        event: Event = None,
        outcome: Outcome = None,
        subject: Who = None,
        target: Target = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> AuditEventPage:
        """Lines of your organization's audit log, newest first. A line is listed about a second after it happened."""
        found = await audit.page(
            request.world,
            request.principal.organization_id,
            _filter(since=since, until=until, event=event, outcome=outcome, subject=subject, target=target),
            before=paging.moment("audit", cursor),
            limit=limit + 1,
        )
        return _page(found, limit)

    @get(
        "/audit-chain",
        operation_id="getAuditChain",
        permission=Permission.AUDIT_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def chain(self, request: ApiRequest) -> AuditChainView:
        """The head of your organization's chain. Kept elsewhere, it proves that an export was not cut off."""
        tenant = request.principal.organization_id
        return audit_chain_view(tenant, await audit.head(request.world, tenant))

    @get(
        "/audit-events/export",
        operation_id="exportAuditEvents",
        permission=Permission.AUDIT_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
        media_type=NDJSON,
    )
    async def export(self, request: ApiRequest, after: After = 0) -> Stream:
        """Your organization's chain as JSON lines, which `splitplane audit verify` checks: see docs/audit.md."""
        lines = audit.export(request.world, request.principal.organization_id, after=after)
        return Stream(lines, media_type=NDJSON, headers=_attached(request.principal.organization_id))

    @get(
        "/operator/audit-events",
        operation_id="listEveryAuditEvent",
        permission=Permission.AUDIT_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def every(
        self,
        request: ApiRequest,
        *,
        chain: Chain = None,
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        event: Event = None,
        outcome: Outcome = None,
        subject: Who = None,
        target: Target = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> AuditEventPage:
        """Lines of every organization's audit log and of the platform's, or of one of them, newest first."""
        organization_id = None if chain is None else _chain(chain)
        found = await audit.page_of_all(
            request.world,
            organization_id,
            _filter(since=since, until=until, event=event, outcome=outcome, subject=subject, target=target),
            platform=chain == PLATFORM_CHAIN,
            before=paging.moment("everyaudit", cursor),
            limit=limit + 1,
        )
        return _page(found, limit, "everyaudit")

    @get(
        "/operator/audit-events/export",
        operation_id="exportAnyAuditEvents",
        permission=Permission.AUDIT_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
        media_type=NDJSON,
    )
    async def export_any(
        self, request: ApiRequest, chain: Chain = PLATFORM_CHAIN, after: After = 0
    ) -> Stream:
        """The chain of an organization, or the platform's, as JSON lines."""
        organization_id = _chain(chain or PLATFORM_CHAIN)
        lines = audit.export(request.world, organization_id, after=after)
        return Stream(lines, media_type=NDJSON, headers=_attached(organization_id))


def _filter(
    *,
    since: str | None,
    until: str | None,
    event: str | None,
    outcome: str | None,
    subject: str | None,
    target: str | None,
) -> Filter:
    if event is not None and event not in EVENTS:
        raise _invalid("event", f"is no event; {choose(event, EVENTS)}")
    return Filter(
        since=paging.instant("since", since),
        until=paging.instant("until", until),
        event=event,
        outcome=outcome,
        subject=subject,
        target=target,
    )


def _chain(word: str) -> OrganizationId | None:
    """The organization of a chain; None for the platform's."""
    if word == PLATFORM_CHAIN:
        return None
    return read_organization_id(word)


def _page(found: Sequence[SealedLine], limit: int, kind: str = "audit") -> AuditEventPage:
    page, following = paging.cut(
        found, limit, lambda sealed: paging.after_moment(kind, sealed.line.at, sealed.line.id)
    )
    return AuditEventPage(tuple(map(audit_event_view, page)), following)


def _attached(organization_id: OrganizationId | None) -> dict[str, str]:
    name = PLATFORM_CHAIN if organization_id is None else f"org_{organization_id.hex}"
    return {"Content-Disposition": f'attachment; filename="audit-{name}.jsonl"'}


def _invalid(name: str, why: str) -> ApiError:
    return ApiError("invalid_parameter", f"`{name}` {why}.", errors=[FieldError(name, why)])
