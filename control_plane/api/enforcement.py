"""Enforcement: what customers read and wish about their leases, and what operators see, arm and undo."""

from functools import partial
from typing import Annotated

from litestar import Controller, Response, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import ApiError, refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.enforcement import detector_view, enforcement_view, idle_stop_view
from control_plane.domain.enforcement import Detector
from control_plane.domain.ids import EnforcementActionId, Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import enforcement
from control_plane.services.enforcement import ShownAction
from control_plane.services.idempotency import Connection
from control_plane.wire.common import LEASE_ID_PATTERN
from control_plane.wire.enforcement import (
    DetectorList,
    DetectorRequest,
    DetectorView,
    EnforcementPage,
    EnforcementView,
    IdleStopRequest,
    IdleStopView,
    LeaseEnforcementPage,
    UndoRequest,
)

Ended = Annotated[bool, QueryParameter(description="Also those that have ended.")]
OfLease = Annotated[
    str | None,
    QueryParameter(pattern=LEASE_ID_PATTERN, max_length=35, description="The id of a lease."),
]


def _after(kind: str, row: ShownAction) -> str:
    return paging.after_moment(kind, row.at, row.id)


class LeaseEnforcementController(Controller):
    path = "/leases/{lease_id:str}"
    tags = ("enforcement",)

    @get(
        "/enforcement",
        operation_id="listLeaseEnforcement",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        *,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LeaseEnforcementPage:
        """What was found about the lease while it runs, and done about it, the latest first."""
        found = await enforcement.of_lease(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            before=paging.moment("lease_enforcement", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found.actions, limit, partial(_after, "lease_enforcement"))
        return LeaseEnforcementPage(found.idle_stop_seconds, tuple(map(enforcement_view, page)), following)

    @put(
        "/idle-stop",
        operation_id="putLeaseIdleStop",
        permission=Permission.LEASES_POWER,
        scope=ScopeKind.LEASE,
        responses=refusable(408, 409, 413, 415, 422),
    )
    async def set_idle_stop(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[IdleStopRequest]
    ) -> IdleStopView:
        """Have the machine of a lease stopped when it was idle for a time, or never. You are told before."""
        wanted = read_lease_id(lease_id)
        refused = await enforcement.set_idle_stop(
            request.world,
            request.principal.organization_id,
            wanted,
            data.after_seconds,
            actor=request.actor,
            reach=request.reach,
        )
        if refused is not None:
            raise refusal(refused)
        return idle_stop_view(wanted, data.after_seconds)


class EnforcementController(Controller):
    path = "/operator"
    tags = ("enforcement",)

    @get(
        "/enforcement",
        operation_id="listEnforcement",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        ended: Ended = False,
        lease: OfLease = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> EnforcementPage:
        """Actions about all leases, taken or only decided, the latest first."""
        found = await enforcement.page(
            request.world,
            request.principal.organization_id,
            only_running=not ended,
            lease_id=None if lease is None else read_lease_id(lease),
            before=paging.moment("enforcement", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(found, limit, partial(_after, "enforcement"))
        return EnforcementPage(tuple(map(enforcement_view, page)), following)

    @get(
        "/enforcement/{action_id:str}",
        operation_id="getEnforcement",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, action_id: FromPath[str]) -> EnforcementView:
        """An action, with the evidence that it was decided by."""
        found = await enforcement.show(
            request.world, request.principal.organization_id, _read_action(action_id)
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return enforcement_view(found)

    @post(
        "/enforcement/{action_id:str}/undo",
        operation_id="undoEnforcement",
        permission=Permission.ENFORCEMENT_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(EnforcementView, 202),
    )
    async def undo(
        self, request: ApiRequest, action_id: FromPath[str], data: JSONBody[UndoRequest]
    ) -> Response[bytes]:
        """Undo an action: it ends within seconds, and the detector leaves the lease alone for a while."""
        wanted = _read_action(action_id)

        async def effect(connection: Connection) -> Made | Refused:
            undone = await enforcement.undo(
                connection, request.world, wanted, why=data.why, actor=request.actor
            )
            return undone if isinstance(undone, Refused) else Made(enforcement_view(undone))

        return await idempotency.once(request, effect, status=202)

    @get(
        "/detectors",
        operation_id="listDetectors",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def detectors(self, request: ApiRequest) -> DetectorList:
        """All detectors, whether each acts, and for how many leases its condition holds."""
        found = await enforcement.detectors(request.world, request.principal.organization_id)
        return DetectorList(tuple(map(detector_view, found)))

    @post(
        "/detectors/{detector:str}/arm",
        operation_id="armDetector",
        permission=Permission.ENFORCEMENT_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(DetectorView, 200),
    )
    async def arm(
        self, request: ApiRequest, detector: FromPath[str], data: JSONBody[DetectorRequest]
    ) -> Response[bytes]:
        """Let a detector act: from now on its actions are taken, and no longer only decided."""
        return await _set(request, detector, data, armed=True)

    @post(
        "/detectors/{detector:str}/disarm",
        operation_id="disarmDetector",
        permission=Permission.ENFORCEMENT_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(DetectorView, 200),
    )
    async def disarm(
        self, request: ApiRequest, detector: FromPath[str], data: JSONBody[DetectorRequest]
    ) -> Response[bytes]:
        """Have a detector only decide. A stop that it announced is taken back; what else it did ends in its time."""
        return await _set(request, detector, data, armed=False)


def _read_action(text: str) -> EnforcementActionId:
    return EnforcementActionId(read_id(Prefix.ENFORCEMENT_ACTION, text))


async def _set(request: ApiRequest, word: str, data: DetectorRequest, *, armed: bool) -> Response[bytes]:
    detector = next((each for each in Detector if each == word), None)
    if detector is None:
        raise ApiError(
            RefusalCode.NOT_FOUND, f"There is no such detector. The detectors are {', '.join(Detector)}."
        )

    async def effect(connection: Connection) -> Made | Refused:
        state = await enforcement.set_arm(
            connection, request.world, detector, armed=armed, why=data.why, actor=request.actor
        )
        return Made(detector_view(state))

    return await idempotency.once(request, effect, status=200)
