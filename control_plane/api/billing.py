"""Usage, the running bill, and the reconciliation of both with the ledger."""

import json
from datetime import UTC, datetime
from typing import Annotated

from litestar import Controller, get
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from control_plane.api import csv_text, paging
from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.errors import ApiError
from control_plane.api.filters import OfMonth, first_instant
from control_plane.api.paging import Cursor, Limit
from control_plane.api.projects import OfProject, project_id_of
from control_plane.api.requests import ApiRequest
from control_plane.api.views.billing import bill_view, reconciliation_view, usage_row, usage_sums_view
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import CURRENCY, usd
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.domain.sku import unit_of
from control_plane.domain.usage_grouping import UsageGrouping
from control_plane.services import billing
from control_plane.services.billing import Charge
from control_plane.wire.billing import BillView, ReconciliationView, UsagePage, UsageSumsView
from control_plane.wire.common import LABEL_KEY_PATTERN, LABEL_LENGTH_MAX
from control_plane.wire.problems import FieldError

CSV_ROWS_PER_READ = 1_000
CSV_COLUMNS = (
    "charge_id",
    "lease_id",
    "lease_name",
    "interval",
    "sku",
    "started_at",
    "ended_at",
    "unit_seconds",
    "price_usd_per_unit_hour",
    "amount_usd",
    "amount_nano_usd",
    "project",
    "project_id",
    "machine_id",
    "provider",
    "region",
    "purchase",
    "price_book",
    "labels",
    "node_pool",
    "unit",
    "stopped",
    "gpu_model",
    "gpu_count",
    "organization_id",
    "currency",
    "sla",
    "unused",
)
"""New columns go to the end, because people's sheets count them."""
GroupedBy = Annotated[UsageGrouping, QueryParameter(description="By what it is added up.")]
LabelKey = Annotated[
    str | None,
    QueryParameter(
        pattern=LABEL_KEY_PATTERN,
        max_length=LABEL_LENGTH_MAX,
        description="The key of the label by which it is added up: needed with `by=label`, and refused without it.",
    ),
]


def check_label_key(by: UsageGrouping, label_key: str | None) -> None:
    """Raises ApiError for a key without `by=label`, and for that without a key."""
    if (label_key is None) == (by is UsageGrouping.LABEL):
        why = "belongs to `by=label`, which needs it"
        raise ApiError("invalid_parameter", f"`label_key` {why}.", errors=[FieldError("label_key", why)])


class BillingController(Controller):
    path = "/"
    tags = ("billing",)

    @get(
        "/usage",
        operation_id="listUsage",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def usage(
        self,
        request: ApiRequest,
        *,
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        project: OfProject = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> UsagePage:
        """Charges whose interval starts in [since, until), oldest first; without a period, all of them."""
        start, end = _period(since, until)
        found = await billing.usage_page(
            request.world,
            request.principal.organization_id,
            since=start,
            until=end,
            project_id=await project_id_of(request, project),
            after=paging.moment("usage", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("usage", row.started_at, row.id)
        )
        return UsagePage(tuple(usage_row(row) for row in page), following)

    @get(
        "/usage.csv",
        operation_id="exportUsage",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
        media_type="text/csv",
    )
    async def usage_csv(
        self,
        request: ApiRequest,
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        project: OfProject = None,
    ) -> Stream:
        """All of /v1/usage as CSV: a header and one line per charge, without totals.

        Amounts are exact; the labels of a lease are one JSON object.
        """
        start, end = _period(since, until)
        project_id = await project_id_of(request, project)

        async def read(last: Charge | None) -> list[Charge]:
            return await billing.usage_page(
                request.world,
                request.principal.organization_id,
                reach=request.reach,
                since=start,
                until=end,
                project_id=project_id,
                after=None if last is None else (last.started_at, last.id),
                limit=CSV_ROWS_PER_READ,
            )

        lines = csv_text.stream(CSV_COLUMNS, read, _csv_row, rows_per_read=CSV_ROWS_PER_READ)
        return Stream(lines, media_type="text/csv", headers=csv_text.attachment("usage.csv"))

    @get(
        "/usage/sums",
        operation_id="getUsageSums",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def usage_sums(
        self,
        request: ApiRequest,
        by: GroupedBy = UsageGrouping.PROJECT,
        label_key: LabelKey = None,
        month: OfMonth = None,
        project: OfProject = None,
    ) -> UsageSumsView:
        """The usage of a calendar month in UTC, by default the present one, added up in groups."""
        check_label_key(by, label_key)
        found = await billing.usage_sums(
            request.world,
            request.principal.organization_id,
            by=by,
            label=label_key,
            month=first_instant(month),
            project_id=await project_id_of(request, project),
            reach=request.reach,
        )
        return usage_sums_view(found)

    @get(
        "/bill",
        operation_id="getBill",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def bill(self, request: ApiRequest, month: OfMonth = None, project: OfProject = None) -> BillView:
        """A calendar month in UTC, by default the present one so far, per lease and project.

        Usage that is not billed yet is shown separately.
        """
        project_id = await project_id_of(request, project)
        found = await billing.bill(
            request.world,
            request.principal.organization_id,
            month=first_instant(month),
            project_id=project_id,
            reach=request.reach,
        )
        return bill_view(found)

    @get(
        "/reconciliation",
        operation_id="getReconciliation",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def reconciliation(self, request: ApiRequest) -> ReconciliationView:
        """What was rated and what was posted, each added up on its own."""
        found = await billing.reconcile(request.world, request.principal.organization_id)
        return reconciliation_view(found)


def _period(since: str | None, until: str | None) -> tuple[datetime, datetime]:
    return (
        paging.instant("since", since) or datetime(2000, 1, 1, tzinfo=UTC),
        paging.instant("until", until) or datetime(2200, 1, 1, tzinfo=UTC),
    )


def _csv_row(charge: Charge) -> tuple[object, ...]:
    return (
        on_wire(Prefix.CHARGE, charge.id),
        on_wire(Prefix.LEASE, charge.lease_id),
        charge.lease_name,
        charge.number,
        charge.sku,
        csv_text.utc(charge.started_at),
        csv_text.utc(charge.ended_at),
        charge.unit_seconds,
        usd(charge.nano_per_unit_hour),
        usd(charge.amount_nano),
        charge.amount_nano,
        charge.project,
        on_wire(Prefix.PROJECT, charge.project_id),
        on_wire(Prefix.MACHINE, charge.machine_id),
        charge.provider,
        charge.region,
        charge.purchase,
        charge.price_book,
        json.dumps(charge.labels, sort_keys=True, ensure_ascii=False, separators=(",", ":")),
        charge.node_pool or "",
        unit_of(charge.gpu_count),
        "true" if charge.stopped else "false",
        charge.gpu_model or "",
        charge.gpu_count,
        on_wire(Prefix.ORGANIZATION, charge.organization_id),
        CURRENCY,
        charge.sla,
        "true" if charge.unused else "false",
    )
