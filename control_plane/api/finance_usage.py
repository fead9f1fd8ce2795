"""What all customers used, for finance."""

from litestar import Controller, get

from control_plane.api import paging
from control_plane.api.billing import GroupedBy, LabelKey, check_label_key
from control_plane.api.documents import refusable
from control_plane.api.errors import refusal
from control_plane.api.filters import OfMonth, first_instant
from control_plane.api.finance import OfOrganization
from control_plane.api.identifiers import read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.billing import customer_usage_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.usage_grouping import UsageGrouping
from control_plane.services import billing
from control_plane.services.billing import CustomerUsage
from control_plane.wire.billing import CustomerUsagePage

_KIND = "customer_usage"


class FinanceUsageController(Controller):
    path = "/finance/usage"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listUsageOfAll",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        by: GroupedBy = UsageGrouping.PROJECT,
        label_key: LabelKey = None,
        month: OfMonth = None,
        organization: OfOrganization = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> CustomerUsagePage:
        """The usage of each customer in a calendar month in UTC, by default the present one, added up in groups.

        A page has at most `limit` customers, and fewer where these have very many charges or groups. A customer reads
        the same of itself at `/v1/usage/sums`.
        """
        check_label_key(by, label_key)
        found = await billing.usage_of_all(
            request.world,
            request.principal.organization_id,
            by=by,
            label=label_key,
            month=first_instant(month),
            only=None if organization is None else read_organization_id(organization),
            after=paging.moment(_KIND, cursor),
            limit=limit,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return CustomerUsagePage(
            tuple(map(customer_usage_view, found.customers)),
            _after(found.customers[-1]) if found.more else None,
        )


def _after(customer: CustomerUsage) -> str:
    return paging.after_moment(_KIND, customer.created_at, customer.organization_id)
