"""A customer's balance, and the transactions that made it."""

from collections.abc import Sequence
from typing import Annotated

from litestar import Controller, get
from litestar.params import QueryParameter
from litestar.response import Stream

from control_plane.api import csv_text, paging
from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.filters import OfMonth, first_instant
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.balance import balance_view, entry_view
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.ledger import TransactionKind
from control_plane.domain.money import usd
from control_plane.domain.period import month_text
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import balance
from control_plane.services.balance import BalanceEntry
from control_plane.wire.balance import BalanceEntryPage, BalanceView

CSV_ROWS_PER_READ = 1_000
CSV_COLUMNS = (
    "number",
    "transaction_id",
    "kind",
    "effective_at",
    "recorded_at",
    "period",
    "amount_usd",
    "balance_usd",
    "due_change_usd",
    "due_usd",
    "amount_nano_usd",
    "balance_nano_usd",
    "reason",
    "charge_id",
    "lease_id",
    "lease_name",
    "project",
    "started_at",
    "ended_at",
    "invoice_number",
    "unused",
)
"""New columns go to the end, because people's sheets count them."""
OfKind = Annotated[TransactionKind | None, QueryParameter(description="Only transactions of this kind.")]
_KIND = "balance_entries"
_WORDS = {None: "", False: "false", True: "true"}


class BalanceController(Controller):
    path = "/balance"
    tags = ("billing",)

    @get(
        "/",
        operation_id="getBalance",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest) -> BalanceView:
        """What your organization has, what is on hold, and how long the rest pays for its running leases."""
        return balance_view(await balance.show(request.world, request.principal.organization_id))

    @get(
        "/entries",
        operation_id="listBalanceEntries",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(422),
    )
    async def entries(
        self,
        request: ApiRequest,
        *,
        month: OfMonth = None,
        kind: OfKind = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> BalanceEntryPage:
        """The transactions that made the balance, newest first, each with the balance after it.

        With `month`, those that are booked in it: the charges of that month's invoice.
        """
        found = await balance.entries(
            request.world,
            request.principal.organization_id,
            period=first_instant(month),
            kind=kind,
            before=paging.number(_KIND, cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(found, limit, lambda entry: paging.after_number(_KIND, entry.number))
        return BalanceEntryPage(tuple(map(entry_view, page)), following)

    @get(
        "/entries.csv",
        operation_id="exportBalanceEntries",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(422),
        media_type="text/csv",
    )
    async def entries_csv(self, request: ApiRequest, month: OfMonth = None, kind: OfKind = None) -> Stream:
        """All of /v1/balance/entries as CSV: a header and one line per transaction, newest first."""

        async def read(last: BalanceEntry | None) -> Sequence[BalanceEntry]:
            return await balance.entries(
                request.world,
                request.principal.organization_id,
                period=first_instant(month),
                kind=kind,
                before=None if last is None else last.number,
                limit=CSV_ROWS_PER_READ,
            )

        lines = csv_text.stream(CSV_COLUMNS, read, _csv_row, rows_per_read=CSV_ROWS_PER_READ)
        return Stream(lines, media_type="text/csv", headers=csv_text.attachment("balance.csv"))


def _csv_row(entry: BalanceEntry) -> tuple[object, ...]:
    return (
        entry.number,
        on_wire(Prefix.TRANSACTION, entry.id),
        entry.kind,
        csv_text.utc(entry.effective_at),
        csv_text.utc(entry.recorded_at),
        month_text(entry.period),
        usd(entry.amount_nano),
        usd(entry.balance_nano),
        usd(entry.due_change_nano),
        usd(entry.due_nano),
        entry.amount_nano,
        entry.balance_nano,
        entry.reason or "",
        "" if entry.charge_id is None else on_wire(Prefix.CHARGE, entry.charge_id),
        "" if entry.lease_id is None else on_wire(Prefix.LEASE, entry.lease_id),
        entry.lease_name or "",
        entry.project or "",
        csv_text.utc(entry.started_at),
        csv_text.utc(entry.ended_at),
        entry.invoice_number or "",
        _WORDS[entry.unused],
    )
