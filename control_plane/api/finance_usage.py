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

        A customer reads the same of itself at `/v1/usage/sums`.
        """
        check_label_key(by, label_key)
        after = paging.moment(_KIND, cursor)
        found = await billing.usage_of_all(
            request.world,
            request.principal.organization_id,
            by=by,
            label=label_key,
            month=first_instant(month),
            only=None if organization is None else read_organization_id(organization),
            after=after,
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda one: paging.after_moment(_KIND, one.created_at, one.organization_id)
        )
        return CustomerUsagePage(tuple(map(customer_usage_view, page)), following)
