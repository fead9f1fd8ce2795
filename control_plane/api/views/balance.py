"""A customer's balance and its entries on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.period import month_text
from control_plane.services.balance import Balance, BalanceEntry
from control_plane.wire.balance import BalanceEntryView, BalanceView


def balance_view(balance: Balance) -> BalanceView:
    lasts = balance.lasts
    return BalanceView(
        balance=money(balance.posted_nano),
        held=money(balance.held_nano),
        available=money(balance.available_nano),
        credit_limit=money(balance.credit_limit_nano),
        due=money(balance.due_nano),
        running_leases=balance.running_leases,
        running_per_hour=money(balance.running_nano_per_hour),
        available_lasts_seconds=None if lasts is None else int(lasts.total_seconds()),
    )


def entry_view(entry: BalanceEntry) -> BalanceEntryView:
    return BalanceEntryView(
        id=on_wire(Prefix.TRANSACTION, entry.id),
        number=entry.number,
        kind=entry.kind.value,
        effective_at=entry.effective_at,
        recorded_at=entry.recorded_at,
        period=month_text(entry.period),
        amount=money(entry.amount_nano),
        balance=money(entry.balance_nano),
        due_change=money(entry.due_change_nano),
        due=money(entry.due_nano),
        reason=entry.reason,
        charge_id=None if entry.charge_id is None else on_wire(Prefix.CHARGE, entry.charge_id),
        lease_id=None if entry.lease_id is None else on_wire(Prefix.LEASE, entry.lease_id),
        lease_name=entry.lease_name,
        project_id=None if entry.project_id is None else on_wire(Prefix.PROJECT, entry.project_id),
        project=entry.project,
        started_at=entry.started_at,
        ended_at=entry.ended_at,
        invoice_id=None if entry.invoice_id is None else on_wire(Prefix.INVOICE, entry.invoice_id),
        invoice_number=entry.invoice_number,
        unused=entry.unused,
    )
