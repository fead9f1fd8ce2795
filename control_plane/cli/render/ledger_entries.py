"""The entries of the ledger's accounts, and the wallets of customers, on the screen."""

from collections.abc import Sequence
from datetime import UTC

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, table
from control_plane.cli.words import price, spaced
from control_plane.wire.common import Money
from control_plane.wire.finance import LedgerEntryView, WalletView


def entry_table(entries: Sequence[LedgerEntryView], account: str) -> RenderableType:
    if not entries:
        return Text(f"The account {spaced(account)} has no such entries.")
    rows: list[Sequence[Cell]] = [
        (
            f"{entry.effective_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            spaced(entry.kind),
            entry.organization,
            f"{entry.reason} ({entry.approved_by})" if entry.reason else "",
            price(entry.amount),
        )
        for entry in entries
    ]
    columns = ("AT (UTC)", "KIND", "ORGANIZATION", "WHY (BY)", "USD")
    return table(columns, rows, right=("USD",), whole=("AT (UTC)", "KIND"))


def wallet_table(wallets: Sequence[WalletView]) -> RenderableType:
    if not wallets:
        return Text("There are no customers.")
    rows: list[Sequence[Cell]] = [
        (
            Text(wallet.organization, style="bold"),
            price(wallet.balance),
            price(wallet.held),
            price(wallet.due),
        )
        for wallet in wallets
    ]
    sums = (
        sum(amount.nano for amount in amounts)
        for amounts in zip(*((wallet.balance, wallet.held, wallet.due) for wallet in wallets), strict=True)
    )
    rows.append([Text(cell, style="bold") for cell in ("Total", *(price(Money("", nano)) for nano in sums))])
    names = ("ORGANIZATION", "WE OWE USD", "OF IT ON HOLD", "OWES US USD")
    return table(names, rows, right=names[1:])
