"""A balance and what changed it on the screen. Tables show cents; the exact amounts are in `--json` and `--csv`."""

from collections.abc import Sequence
from datetime import UTC, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, table
from control_plane.cli.words import plural, price, rounded, spaced, span
from control_plane.wire.balance import BalanceEntryView, BalanceView
from control_plane.wire.common import Money


def balance_page(balance: BalanceView) -> RenderableType:
    running = plural(balance.running_leases, "lease")
    return facts(
        ("Balance", f"{rounded(balance.balance)} USD"),
        ("On hold", f"{rounded(balance.held)} USD, set aside for the next hour of leases, and for terms"),
        ("Credit limit", _credit_limit(balance)),
        ("Available", Text(f"{rounded(balance.available)} USD", style="bold")),
        ("Running", f"{price(balance.running_per_hour)} USD per hour for {running}"),
        ("Lasts", _lasts(balance)),
        _owed(balance.due),
    )


def _owed(due: Money) -> tuple[str, str | None]:
    return ("Due", f"{rounded(due)} USD, which invoices left to pay" if due.nano else None)


def _credit_limit(balance: BalanceView) -> str | None:
    limit = balance.credit_limit
    if limit is None or not limit.nano:
        return None
    return f"{rounded(limit)} USD, less what is due and what the balance is below zero"


def _lasts(balance: BalanceView) -> str | Text | None:
    if balance.available_lasts_seconds is None:
        return None
    length = f"{span(timedelta(seconds=balance.available_lasts_seconds))} at that rate"
    return Text(length, style="yellow") if balance.available_lasts_seconds < 86_400 else length


def entry_table(entries: Sequence[BalanceEntryView]) -> RenderableType:
    if not entries:
        return Text("Nothing changed the balance.")
    rows: list[Sequence[Cell]] = [
        (
            f"{entry.effective_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            spaced(entry.kind),
            _what_for(entry),
            rounded(entry.amount),
            rounded(entry.balance),
        )
        for entry in entries
    ]
    note = "Amounts are rounded to cents; --json and --csv have them to the nano-dollar."
    return Group(
        table(
            ("AT (UTC)", "KIND", "FOR", "USD", "BALANCE"),
            rows,
            right=("USD", "BALANCE"),
            whole=("AT (UTC)", "KIND"),
        ),
        Text(),
        Text(note, style="dim"),
    )


def _what_for(entry: BalanceEntryView) -> str:
    """What it was for: the hour of a lease, an invoice, or a reason with what it changed of what is due."""
    if entry.unused:
        return f"{entry.lease_name}, rest of its term"
    if entry.started_at is not None and entry.ended_at is not None:
        return f"{entry.lease_name}, {span(entry.ended_at - entry.started_at)}"
    what = entry.invoice_number or entry.reason or ""
    return f"{what} ({_due(entry)})" if entry.due_change.nano else what


def _due(entry: BalanceEntryView) -> str:
    change = entry.due_change
    return f"{rounded(change)} due" if change.nano > 0 else f"{rounded(change).removeprefix('-')} paid"
