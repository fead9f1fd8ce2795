"""Reconciliations of periods over all customers, for finance."""

from dataclasses import dataclass
from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.reconciliations import (
    difference_view,
    reconciled_customer_view,
    reconciliation_view,
)
from control_plane.domain.ids import OrganizationId, Prefix
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import reconciliations
from control_plane.services.idempotency import Connection
from control_plane.services.reconciliations import NamedDifference, ReconciledCustomer
from control_plane.wire.reconciliations import (
    DifferencePage,
    PeriodReconciliationPage,
    PeriodReconciliationView,
    ReconciledCustomerPage,
    ReconciliationRequest,
)

_KIND, _DIFFERENCES, _CUSTOMERS = "reconciliations", "differences", "customers"


@dataclass(frozen=True, slots=True)
class _Place:
    """The last difference of a page."""

    customer: UUID
    link: str


@dataclass(frozen=True, slots=True)
class _Customer:
    """The last customer of a page."""

    id: UUID


class ReconciliationController(Controller):
    path = "/finance/reconciliations"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listPeriodReconciliations",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> PeriodReconciliationPage:
        """The reconciliations of periods, newest first."""
        found = await reconciliations.page(
            request.world,
            request.principal.organization_id,
            before=paging.moment(_KIND, cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda one: paging.after_moment(_KIND, one.asked.asked_at, one.asked.id)
        )
        return PeriodReconciliationPage(tuple(map(reconciliation_view, page)), following)

    @post(
        "/",
        operation_id="createPeriodReconciliation",
        permission=Permission.RECONCILIATIONS_CREATE,
        scope=ScopeKind.PLATFORM,
        responses=made(PeriodReconciliationView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ReconciliationRequest]) -> Response[bytes]:
        """Ask for a period to be reconciled over all customers. Then read it until it is no longer `running`."""
        month = parse_month(data.period)

        async def effect(connection: Connection) -> Made | Refused:
            found = await reconciliations.create(
                connection,
                request.world,
                request.principal.organization_id,
                month,
                by=request.principal.subject.on_wire,
            )
            return found if isinstance(found, Refused) else Made(reconciliation_view(found))

        return await idempotency.once(request, effect, status=201)

    @get(
        "/{reconciliation_id:str}",
        operation_id="getPeriodReconciliation",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, reconciliation_id: FromPath[str]) -> PeriodReconciliationView:
        """A reconciliation, with what was found so far."""
        found = await reconciliations.get(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.RECONCILIATION, reconciliation_id),
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return reconciliation_view(found)

    @get(
        "/{reconciliation_id:str}/customers",
        operation_id="listReconciledCustomers",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def customers(
        self,
        request: ApiRequest,
        reconciliation_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> ReconciledCustomerPage:
        """The customers that were examined, with both sides of each of their links: with `all_customers` every one,
        otherwise those that differ.
        """
        last = paging.place(_CUSTOMERS, cursor, _Customer)
        found = await reconciliations.customers(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.RECONCILIATION, reconciliation_id),
            after=None if last is None else OrganizationId(last.id),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, _after_customer)
        return ReconciledCustomerPage(tuple(map(reconciled_customer_view, page)), following)

    @get(
        "/{reconciliation_id:str}/differences",
        operation_id="listReconciliationDifferences",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def differences(
        self,
        request: ApiRequest,
        reconciliation_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> DifferencePage:
        """The customers and links that differ, with ids of leases and charges that show why."""
        place = paging.place(_DIFFERENCES, cursor, _Place)
        found = await reconciliations.differences(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.RECONCILIATION, reconciliation_id),
            after=None if place is None else (place.customer, place.link),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, _after)
        return DifferencePage(tuple(map(difference_view, page)), following)


def _after_customer(customer: ReconciledCustomer) -> str:
    return paging.after_place(_CUSTOMERS, _Customer(customer.customer_id))


def _after(named: NamedDifference) -> str:
    last = _Place(named.difference.customer_id, named.difference.link.value)
    return paging.after_place(_DIFFERENCES, last)
