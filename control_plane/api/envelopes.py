"""Envelopes of the organization, its projects and environments, and the ceilings that operators set."""

from litestar import Controller, get, put
from litestar.params import FromPath, JSONBody

from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_organization_id, read_word
from control_plane.api.requests import ApiRequest
from control_plane.api.views.envelopes import envelope_view, limits_of
from control_plane.domain.envelope import Level
from control_plane.domain.ids import OrganizationId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import envelopes
from control_plane.services.envelopes import Place
from control_plane.wire.envelopes import EnvelopeRequest, EnvelopeView

_WRITES = refusable(408, 409, 413, 415, 422)


def _place(project: str | None = None, environment: str | None = None) -> Place:
    if project is None:
        return Place(Level.ORGANIZATION)
    word = read_word("project", project)
    if environment is None:
        return Place(Level.PROJECT, word)
    return Place(Level.ENVIRONMENT, word, read_word("environment", environment))


async def _show(request: ApiRequest, organization_id: OrganizationId, place: Place) -> EnvelopeView:
    shown = await envelopes.show(request.world, organization_id, place, reach=request.reach)
    if isinstance(shown, Refused):
        raise refusal(shown)
    return envelope_view(shown)


async def _put(
    request: ApiRequest, organization_id: OrganizationId, place: Place, data: EnvelopeRequest
) -> EnvelopeView:
    principal = request.principal
    shown = await envelopes.put(
        request.world,
        organization_id,
        place,
        limits_of(data),
        by=principal.subject.on_wire,
        by_organization=principal.organization_id,
        reach=request.reach,
    )
    if isinstance(shown, Refused):
        raise refusal(shown)
    return envelope_view(shown)


class EnvelopeController(Controller):
    path = "/"
    tags = ("envelopes",)

    @get(
        "/organization/envelope",
        operation_id="getOrganizationEnvelope",
        permission=Permission.ENVELOPES_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest) -> EnvelopeView:
        """The envelope of your organization, with what is used of it, and the ceiling above it."""
        return await _show(request, request.principal.organization_id, _place())

    @put(
        "/organization/envelope",
        operation_id="putOrganizationEnvelope",
        permission=Permission.ENVELOPES_SET,
        scope=ScopeKind.ENVIRONMENT,
        responses=_WRITES,
    )
    async def set(self, request: ApiRequest, data: JSONBody[EnvelopeRequest]) -> EnvelopeView:
        """Set the envelope of your organization, within its ceiling. It replaces the one before as a whole."""
        return await _put(request, request.principal.organization_id, _place(), data)

    @get(
        "/projects/{project:str}/envelope",
        operation_id="getProjectEnvelope",
        permission=Permission.ENVELOPES_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show_project(self, request: ApiRequest, project: FromPath[str]) -> EnvelopeView:
        """The envelope of a project, with what is used of it, and the envelopes above it."""
        return await _show(request, request.principal.organization_id, _place(project))

    @put(
        "/projects/{project:str}/envelope",
        operation_id="putProjectEnvelope",
        permission=Permission.ENVELOPES_SET,
        scope=ScopeKind.ENVIRONMENT,
        responses=_WRITES,
    )
    async def set_project(
        self, request: ApiRequest, project: FromPath[str], data: JSONBody[EnvelopeRequest]
    ) -> EnvelopeView:
        """Set the envelope of a project, within those above it. It replaces the one before as a whole."""
        return await _put(request, request.principal.organization_id, _place(project), data)

    @get(
        "/projects/{project:str}/environments/{environment:str}/envelope",
        operation_id="getEnvironmentEnvelope",
        permission=Permission.ENVELOPES_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show_environment(
        self, request: ApiRequest, project: FromPath[str], environment: FromPath[str]
    ) -> EnvelopeView:
        """The envelope of an environment, with what is used of it, and the envelopes above it."""
        return await _show(request, request.principal.organization_id, _place(project, environment))

    @put(
        "/projects/{project:str}/environments/{environment:str}/envelope",
        operation_id="putEnvironmentEnvelope",
        permission=Permission.ENVELOPES_SET,
        scope=ScopeKind.ENVIRONMENT,
        responses=_WRITES,
    )
    async def set_environment(
        self,
        request: ApiRequest,
        project: FromPath[str],
        environment: FromPath[str],
        data: JSONBody[EnvelopeRequest],
    ) -> EnvelopeView:
        """Set the envelope of an environment, within those above it. It replaces the one before as a whole."""
        return await _put(request, request.principal.organization_id, _place(project, environment), data)

    @get(
        "/operator/organizations/{organization_id:str}/envelope",
        operation_id="getOrganizationCeiling",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show_ceiling(self, request: ApiRequest, organization_id: FromPath[str]) -> EnvelopeView:
        """The ceiling of an organization, with what is used of it."""
        return await _show(request, read_organization_id(organization_id), Place(Level.CEILING))

    @put(
        "/operator/organizations/{organization_id:str}/envelope",
        operation_id="putOrganizationCeiling",
        permission=Permission.ENVELOPES_SET_CEILING,
        scope=ScopeKind.PLATFORM,
        responses=_WRITES,
    )
    async def set_ceiling(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[EnvelopeRequest]
    ) -> EnvelopeView:
        """Set the ceiling of an organization. It replaces the one before as a whole."""
        return await _put(request, read_organization_id(organization_id), Place(Level.CEILING), data)
