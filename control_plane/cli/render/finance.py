"""Accounting periods and the ledger on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, both, price, spaced
from control_plane.wire.finance import LedgerAccountView, LedgerTransactionView, PeriodView

_STYLES = {"closed": "green", "closing": "yellow"}


def period_table(periods: Sequence[PeriodView]) -> RenderableType:
    if not periods:
        return Text("No months: nothing was used yet.")
    rows = [
        (
            Text(period.month, style="bold"),
            Text(period.state, style=_STYLES.get(period.state, "")),
            "" if period.changed_at is None else absolute(period.changed_at),
            _note(period),
        )
        for period in periods
    ]
    return table(("PERIOD", "STATE", "SINCE", "NOTE"), rows, whole=("PERIOD", "STATE"))


def _note(period: PeriodView) -> str:
    if period.reopening is not None:
        return f"{period.reopening.by} asks for its reopening: {period.reopening.reason}"
    return " ".join(period.missing)


def period_page(period: PeriodView, now: datetime) -> RenderableType:
    reopening = period.reopening
    return Group(
        heading(period.month, period.state),
        facts(
            ("Issuer", period.issuer),
            ("Since", both(period.changed_at, now)),
            ("By", period.changed_by),
            ("Reopening", None if reopening is None else f"{reopening.by} asks for it: {reopening.reason}"),
            ("", None if reopening is None else "Somebody else has to agree."),
            *(("Missing", sentence) for sentence in period.missing),
        ),
    )


def account_table(accounts: Sequence[LedgerAccountView]) -> RenderableType:
    rows = [
        (Text(spaced(account.kind), style="bold"), account.normal_side, price(account.balance))
        for account in accounts
    ]
    return table(("ACCOUNT", "SIDE", "BALANCE USD"), rows, right=("BALANCE USD",))


def transaction_page(posted: LedgerTransactionView, organization: str) -> RenderableType:
    return Group(
        heading(f"{spaced(posted.kind)} of {price(posted.amount)} USD", organization),
        facts(
            ("Transaction", posted.id),
            ("Period", posted.period),
            ("Decided by", posted.approved_by),
            ("Reason", posted.reason),
        ),
    )
