"""Accounting periods and the ledger, for finance."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import made, refusable
from control_plane.api.filters import OfMonth, first_instant
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_month, read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.finance import (
    ledger_account_view,
    ledger_entry_view,
    ledger_transaction_view,
    period_view,
    wallet_view,
)
from control_plane.domain.ledger import AccountKind, Approval, TransactionKind
from control_plane.domain.money import parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import ledger, periods
from control_plane.services.idempotency import Connection
from control_plane.services.ledger import Deciding
from control_plane.wire.common import ORGANIZATION_ID_PATTERN
from control_plane.wire.finance import (
    LedgerAccountPage,
    LedgerEntryPage,
    LedgerTransactionRequest,
    LedgerTransactionView,
    PeriodPage,
    PeriodView,
    ReopenRequest,
    WalletPage,
)

OfLedgerAccount = Annotated[
    AccountKind, QueryParameter(description="What the account holds; by default the wallets of customers.")
]
OfOrganization = Annotated[
    str | None,
    QueryParameter(pattern=ORGANIZATION_ID_PATTERN, description="Only the money of this organization."),
]
_ENTRIES = "ledger_entries"


class PeriodController(Controller):
    path = "/finance/periods"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listPeriods",
        permission=Permission.PERIODS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self, request: ApiRequest, *, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> PeriodPage:
        """The accounting periods, newest first, with what is missing from those that can be closed."""
        found = await periods.page(request.world, request.principal.organization_id)
        page, following = paging.window(
            "periods", found, lambda shown: shown.period.name, limit=limit, cursor=cursor
        )
        return PeriodPage(tuple(map(period_view, page)), following)

    @post(
        "/{month:str}/close",
        operation_id="closePeriod",
        permission=Permission.PERIODS_CLOSE,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(PeriodView, 200),
    )
    async def close(self, request: ApiRequest, month: FromPath[str]) -> Response[bytes]:
        """Begin to close a period, and close it if nothing is missing.

        The answer is `closing` with what is missing, or `closed`: nothing in the period changes then, and what arrives
        late is booked in a later one.
        """
        wanted = read_month(month)

        async def effect(connection: Connection) -> Made | Refused:
            shown = await periods.close(
                connection, request.world, wanted, by=request.principal.subject.on_wire
            )
            return shown if isinstance(shown, Refused) else Made(period_view(shown))

        return await idempotency.once(request, effect, status=200)

    @post(
        "/{month:str}/reopen",
        operation_id="reopenPeriod",
        permission=Permission.PERIODS_REOPEN,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(PeriodView, 200),
    )
    async def reopen(
        self, request: ApiRequest, month: FromPath[str], data: JSONBody[ReopenRequest]
    ) -> Response[bytes]:
        """Ask for a closed period to be reopened, or agree to what somebody else asked for.

        It is reopened, as `closing`, by the second person who makes this request.
        """
        wanted = read_month(month)

        async def effect(connection: Connection) -> Made | Refused:
            shown = await periods.reopen(
                connection,
                request.world,
                wanted,
                by=request.principal.subject.on_wire,
                reason=data.reason,
            )
            return shown if isinstance(shown, Refused) else Made(period_view(shown))

        return await idempotency.once(request, effect, status=200)


class LedgerController(Controller):
    path = "/finance"
    tags = ("finance",)

    @get(
        "/accounts",
        operation_id="listLedgerAccounts",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def accounts(
        self, request: ApiRequest, *, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> LedgerAccountPage:
        """The chart of accounts, with the balance of each kind over all customers."""
        found = await ledger.balances(request.world, request.principal.organization_id)
        page, following = paging.window(
            "ledger_accounts", list(found.items()), lambda item: item[0].value, limit=limit, cursor=cursor
        )
        return LedgerAccountPage(tuple(ledger_account_view(kind, sum_) for kind, sum_ in page), following)

    @get(
        "/entries",
        operation_id="listLedgerEntries",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def entries(
        self,
        request: ApiRequest,
        *,
        account: OfLedgerAccount = AccountKind.WALLET,
        organization: OfOrganization = None,
        month: OfMonth = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LedgerEntryPage:
        """The entries of an account, newest first, with who decided on each and why: of all customers, or of one."""
        before = paging.moment(_ENTRIES, cursor)
        found = await ledger.entries(
            request.world,
            request.principal.organization_id,
            account,
            organization_id=None if organization is None else read_organization_id(organization),
            period=first_instant(month),
            before=None if before is None else before[1],
            limit=limit + 1,
        )
        page, following = paging.cut(
            found,
            limit,
            lambda entry: paging.after_moment(_ENTRIES, entry.recorded_at, entry.transaction_id),
        )
        return LedgerEntryPage(tuple(ledger_entry_view(account, entry) for entry in page), following)

    @get(
        "/wallets",
        operation_id="listWallets",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def wallets(
        self, request: ApiRequest, *, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> WalletPage:
        """What we owe each customer, and what it owes us."""
        found = await ledger.wallets(
            request.world,
            request.principal.organization_id,
            after=paging.moment("wallets", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found,
            limit,
            lambda wallet: paging.after_moment("wallets", wallet.created_at, wallet.organization_id),
        )
        return WalletPage(tuple(map(wallet_view, page)), following)

    @post(
        "/transactions",
        operation_id="createLedgerTransaction",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        moves_money=True,
        responses=made(LedgerTransactionView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[LedgerTransactionRequest]) -> Response[bytes]:
        """Post a top-up, a refund, a credit or a payment of an organization, once per Idempotency-Key."""
        amount = parse_usd(data.amount_usd)
        deciding = Deciding(
            read_organization_id(data.organization_id),
            TransactionKind(data.kind),
            amount,
            Approval(request.principal.subject.on_wire, data.reason),
            back_to=request.principal.organization_id,
        )

        async def effect(connection: Connection) -> Made | Refused:
            posted = await ledger.post(connection, request.world, deciding)
            return posted if isinstance(posted, Refused) else Made(ledger_transaction_view(posted, amount))

        return await idempotency.once(request, effect, status=201)
