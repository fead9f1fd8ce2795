"""Usage, bills and reconciliations on the wire."""

from typing import Any

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.services.billing import Bill, BillLine, Reconciliation
from control_plane.wire.billing import BillLineView, BillView, ReconciliationView, UsageRow


def usage_row(row: Any) -> UsageRow:
    return UsageRow(
        id=on_wire(Prefix.CHARGE, row.id),
        lease_id=on_wire(Prefix.LEASE, row.lease_id),
        lease_name=row.lease_name,
        number=row.number,
        sku=row.sku,
        started_at=row.started_at,
        ended_at=row.ended_at,
        gpu_seconds=row.gpu_seconds,
        price_per_gpu_hour=money(Nano(row.nano_per_gpu_hour)),
        amount=money(Nano(row.amount_nano)),
    )


def bill_view(bill: Bill) -> BillView:
    return BillView(
        since=bill.since,
        until=bill.until,
        lines=tuple(_line(line) for line in bill.lines),
        amount=money(bill.amount_nano),
        unrated=money(bill.unrated_nano),
        balance=money(bill.posted_nano),
        held=money(bill.held_nano),
        available=money(Nano(bill.posted_nano - bill.held_nano)),
    )


def _line(line: BillLine) -> BillLineView:
    return BillLineView(
        lease_id=on_wire(Prefix.LEASE, line.lease_id),
        name=line.name,
        sku=line.sku,
        price_per_gpu_hour=money(line.nano_per_gpu_hour),
        gpu_seconds=line.gpu_seconds,
        amount=money(line.amount_nano),
        unrated_gpu_seconds=line.unrated_gpu_seconds,
        unrated=money(line.unrated_nano),
    )


def reconciliation_view(reconciliation: Reconciliation) -> ReconciliationView:
    return ReconciliationView(
        gpu_seconds=reconciliation.gpu_seconds,
        rated=money(reconciliation.rated_nano),
        posted=money(reconciliation.posted_nano),
        balance=money(reconciliation.balance_nano),
        difference=money(reconciliation.difference_nano),
    )
