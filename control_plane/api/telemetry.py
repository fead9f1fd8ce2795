"""What the machines of leases measured, how they are, and both for Prometheus."""

from datetime import timedelta
from typing import Annotated

from litestar import Controller, Response, get
from litestar.params import FromPath, QueryParameter

from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_lease_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.exposition import EXPOSITION, exposition
from control_plane.api.views.telemetry import health_groups, lease_health, lease_metrics
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.telemetry import WINDOW_MAX
from control_plane.services import telemetry
from control_plane.services.telemetry import GroupedBy
from control_plane.wire.telemetry import HealthGroups, LeaseHealth, LeaseMetrics

LAST_DEFAULT = 900
Last = Annotated[
    int,
    QueryParameter(
        ge=60, le=int(WINDOW_MAX.total_seconds()), description="How long the window is, in seconds."
    ),
]
By = Annotated[GroupedBy, QueryParameter(description="What machines are grouped by.")]


class TelemetryController(Controller):
    path = "/"
    tags = ("telemetry",)

    @get(
        "/leases/{lease_id:str}/metrics",
        operation_id="getLeaseMetrics",
        permission=Permission.TELEMETRY_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def metrics(
        self, request: ApiRequest, lease_id: FromPath[str], last: Last = LAST_DEFAULT
    ) -> LeaseMetrics:
        """What the machine of a lease measured: its last sample, and a window of up to two hours.

        The window has at most 120 points for each machine. It is what the machine says about itself.
        """
        found = await telemetry.metrics(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            window=timedelta(seconds=last),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return lease_metrics(found)

    @get(
        "/leases/{lease_id:str}/health",
        operation_id="getLeaseHealth",
        permission=Permission.TELEMETRY_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def health(self, request: ApiRequest, lease_id: FromPath[str]) -> LeaseHealth:
        """How the machine of a lease is: the verdict, all open faults and alerts, and the age of the evidence."""
        wanted = read_lease_id(lease_id)
        found = await telemetry.health(
            request.world, request.principal.organization_id, wanted, reach=request.reach
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return lease_health(wanted, found, request.world.now())

    @get(
        "/machine-health",
        operation_id="getMachineHealth",
        permission=Permission.TELEMETRY_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def groups(self, request: ApiRequest, by: By = GroupedBy.PROJECT) -> HealthGroups:
        """How many machines of your leases are healthy, in groups."""
        found = await telemetry.groups(
            request.world, request.principal.organization_id, by=by, reach=request.reach
        )
        return health_groups(by, found, request.world.now())

    @get(
        "/metrics",
        operation_id="scrapeMetrics",
        permission=Permission.TELEMETRY_READ,
        scope=ScopeKind.LEASE,
        media_type=EXPOSITION,
        responses=PROBLEMS,
    )
    async def scrape(self, request: ApiRequest) -> Response[str]:
        """The last samples of your machines in Prometheus' text format, under the names of dcgm-exporter.

        Of a machine without a sample of the last two minutes, only the time of its last one is there, until it is two
        hours old or the lease ends. Give Prometheus an API key with the scope `telemetry.read` as its bearer token.
        """
        found = await telemetry.scrape(request.world, request.principal.organization_id, reach=request.reach)
        return Response(exposition(found), media_type=EXPOSITION)

    @get(
        "/operator/metrics",
        operation_id="scrapeAllMetrics",
        permission=Permission.TELEMETRY_READ_ALL,
        scope=ScopeKind.PLATFORM,
        media_type=EXPOSITION,
        responses=PROBLEMS,
    )
    async def scrape_all(self, request: ApiRequest) -> Response[str]:
        """The last samples of everybody's machines, of a thousand at most: use remote write for more."""
        found = await telemetry.scrape_all(request.world, request.principal.organization_id)
        return Response(exposition(found), media_type=EXPOSITION)
