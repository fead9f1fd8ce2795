"""Accounting periods and the ledger on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.ledger import TERMS, AccountKind
from control_plane.domain.ledger import balance as balance_of
from control_plane.domain.money import Nano
from control_plane.domain.period import month_text
from control_plane.services.ledger import LedgerEntry, PostedTransaction, Wallet
from control_plane.services.periods import ShownPeriod
from control_plane.wire.finance import (
    LedgerAccountView,
    LedgerEntryView,
    LedgerTransactionView,
    PeriodView,
    ReopeningView,
    WalletView,
)


def period_view(shown: ShownPeriod) -> PeriodView:
    period = shown.period
    return PeriodView(
        month=period.name,
        issuer=period.issuer,
        state=period.state.value,
        changed_at=period.changed_at,
        changed_by=period.changed_by,
        reopening=_reopening(shown),
        missing=() if shown.missing is None else shown.missing.sentences,
    )


def _reopening(shown: ShownPeriod) -> ReopeningView | None:
    at, by, reason = (
        shown.period.reopening_requested_at,
        shown.period.reopening_requested_by,
        shown.period.reopening_reason,
    )
    if at is None or by is None or reason is None:
        return None
    return ReopeningView(at, by, reason)


def ledger_transaction_view(posted: PostedTransaction, amount: Nano) -> LedgerTransactionView:
    return LedgerTransactionView(
        id=on_wire(Prefix.TRANSACTION, posted.id),
        organization_id=on_wire(Prefix.ORGANIZATION, posted.organization_id),
        kind=posted.kind.value,
        amount=money(amount),
        effective_at=posted.effective_at,
        period=month_text(posted.period),
        approved_by=posted.approved_by,
        reason=posted.reason,
    )


def ledger_account_view(kind: AccountKind, balance: Nano) -> LedgerAccountView:
    return LedgerAccountView(kind.value, TERMS[kind].normal_side.value, money(balance))


def ledger_entry_view(account: AccountKind, entry: LedgerEntry) -> LedgerEntryView:
    return LedgerEntryView(
        transaction_id=on_wire(Prefix.TRANSACTION, entry.transaction_id),
        organization_id=on_wire(Prefix.ORGANIZATION, entry.organization_id),
        organization=entry.organization,
        kind=entry.kind.value,
        effective_at=entry.effective_at,
        recorded_at=entry.recorded_at,
        period=month_text(entry.period),
        amount=money(balance_of(account, entry.amount_nano)),
        approved_by=entry.approved_by,
        reason=entry.reason,
    )


def wallet_view(wallet: Wallet) -> WalletView:
    return WalletView(
        organization_id=on_wire(Prefix.ORGANIZATION, wallet.organization_id),
        organization=wallet.organization,
        balance=money(wallet.wallet_nano),
        held=money(wallet.held_nano),
        due=money(balance_of(AccountKind.RECEIVABLE, wallet.receivable_nano)),
    )
