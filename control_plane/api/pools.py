"""Warm pools, for operators: create, list, read, change, delete, and compare policies over a trace."""

from litestar import Controller, Response, delete, get, patch, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.pools import pool_detail_view, pool_view, simulation_view
from control_plane.domain.money import Nano, parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.pool import PoolPolicy
from control_plane.domain.pool_simulation import Costs
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.sla import SlaTier
from control_plane.services import pools
from control_plane.services.idempotency import Connection
from control_plane.wire.pools import (
    TRACE_REQUESTS_MAX,
    PoolChangeRequest,
    PoolDetailView,
    PoolPage,
    PoolRequest,
    PoolSimulationRequest,
    PoolSimulationView,
    PoolView,
)


class PoolController(Controller):
    path = "/operator/pools"
    tags = ("fleet",)

    @get(
        "/",
        operation_id="listPools",
        permission=Permission.POOLS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> PoolPage:
        """The warm pools that are not deleted, in order of name, with their figures of the last day."""
        found = await pools.every(request.world, request.principal.organization_id)
        page, following = paging.window(
            "pools", found, lambda shown: shown.pool.name, limit=limit, cursor=cursor
        )
        return PoolPage(tuple(map(pool_view, page)), following)

    @post(
        "/",
        operation_id="createPool",
        permission=Permission.POOLS_MANAGE,
        scope=ScopeKind.PLATFORM,
        responses=made(PoolView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[PoolRequest]) -> Response[bytes]:
        """Create a warm pool. Unless told otherwise, it only shows what it would do."""
        wanted = pools.WantedPool(
            name=data.name,
            sku=data.sku,
            region=data.region,
            sla=None if data.sla is None else SlaTier(data.sla),
            policy=PoolPolicy(data.policy),
            machines_min=data.machines_min,
            machines_max=data.machines_max,
            step_max=data.step_max,
            idle_nano_per_day=parse_usd(data.idle_usd_per_day),
            waiting_nano_per_hour=parse_usd(data.waiting_usd_per_hour),
            dry_run=data.dry_run,
        )

        async def effect(connection: Connection) -> Made | Refused:
            shown = await pools.create(connection, request.world, wanted)
            return shown if isinstance(shown, Refused) else Made(pool_view(shown))

        return await idempotency.once(request, effect, status=201)

    @get(
        "/{pool:str}",
        operation_id="getPool",
        permission=Permission.POOLS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, pool: FromPath[str]) -> PoolDetailView:
        """One warm pool with its figures, and what was decided about it. It is named by its name."""
        found = await pools.show(request.world, request.principal.organization_id, pool)
        if found is None:
            raise refusal(Refused(RefusalCode.NOT_FOUND, f"There is no pool {pool!r}."))
        return pool_detail_view(found)

    @patch(
        "/{pool:str}",
        operation_id="changePool",
        permission=Permission.POOLS_MANAGE,
        scope=ScopeKind.PLATFORM,
        responses=refusable(408, 413, 415, 422),
    )
    async def change(
        self, request: ApiRequest, pool: FromPath[str], data: JSONBody[PoolChangeRequest]
    ) -> PoolView:
        """Change a warm pool. Its machines follow."""
        wanted = pools.WantedChange(
            policy=None if data.policy is None else PoolPolicy(data.policy),
            machines_min=data.machines_min,
            machines_max=data.machines_max,
            step_max=data.step_max,
            idle_nano_per_day=_nano(data.idle_usd_per_day),
            waiting_nano_per_hour=_nano(data.waiting_usd_per_hour),
            dry_run=data.dry_run,
        )
        changed = await pools.change(request.world, request.principal.organization_id, pool, wanted)
        if isinstance(changed, Refused):
            raise refusal(changed)
        return pool_view(changed)

    @delete(
        "/{pool:str}",
        operation_id="deletePool",
        permission=Permission.POOLS_MANAGE,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def remove(self, request: ApiRequest, pool: FromPath[str]) -> None:
        """Delete a warm pool. Its waiting machines are terminated; those that leases claimed stay."""
        refused = await pools.delete(request.world, request.principal.organization_id, pool)
        if refused is not None:
            raise refusal(refused)


class PoolSimulationController(Controller):
    path = "/operator/pool-simulations"
    tags = ("fleet",)

    @post(
        "/",
        operation_id="simulatePools",
        permission=Permission.POOLS_READ,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(PoolSimulationView, 200),
    )
    async def simulate(self, request: ApiRequest, data: JSONBody[PoolSimulationRequest]) -> Response[bytes]:
        """Compare policies of warm pools over a trace of requests. Nothing is stored."""
        series = [list(each.seconds) for each in data.series]
        if sum(map(len, series)) > TRACE_REQUESTS_MAX:
            why = f"The trace has more than {TRACE_REQUESTS_MAX:,} requests."
            raise refusal(Refused(RefusalCode.TRACE_TOO_LONG, why))
        costs = Costs(
            idle_nano_per_hour=parse_usd(data.idle_usd_per_hour),
            waiting_nano_per_hour=parse_usd(data.waiting_usd_per_hour),
            lead_seconds=data.lead_seconds,
            machines_max=data.machines_max,
        )
        compared = simulation_view(await pools.simulate(series, costs), series)

        async def effect(_: Connection) -> Made:
            return Made(compared)

        return await idempotency.once(request, effect, status=200)


def _nano(usd: str | None) -> Nano | None:
    return None if usd is None else parse_usd(usd)
