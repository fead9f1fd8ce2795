"""Charges on the wire, as finance reads them."""

from collections.abc import Sequence

from control_plane.api.views.journal import journal_line
from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.period import month_text
from control_plane.services.charges import (
    ChargePosting,
    ExplainedCharge,
    LeaseCharge,
    LineOfInvoice,
)
from control_plane.wire.charges import (
    ChargeExplanationView,
    ChargeInvoiceLineView,
    ChargePriceView,
    ChargeTransactionView,
    IntervalView,
    LeaseChargeView,
    PostingView,
)


def lease_charge_view(charge: LeaseCharge) -> LeaseChargeView:
    return LeaseChargeView(
        id=on_wire(Prefix.CHARGE, charge.id),
        lease_id=on_wire(Prefix.LEASE, charge.lease_id),
        interval=charge.number,
        started_at=charge.started_at,
        ended_at=charge.ended_at,
        unit_seconds=charge.unit_seconds,
        stopped=charge.stopped,
        amount=money(charge.amount_nano),
        period=month_text(charge.period),
        unused=charge.unused,
    )


def explanation_view(explained: ExplainedCharge) -> ChargeExplanationView:
    charge = explained.charge
    return ChargeExplanationView(
        charge=lease_charge_view(charge),
        rated_at=charge.rated_at,
        period_closed=explained.period_closed,
        organization_id=on_wire(Prefix.ORGANIZATION, charge.organization_id),
        organization=charge.organization,
        lease_id=on_wire(Prefix.LEASE, charge.lease_id),
        machine_id=on_wire(Prefix.MACHINE, charge.machine_id),
        sku=charge.sku,
        purchase=charge.purchase.value,
        sla=charge.sla.value,
        journal=tuple(map(journal_line, explained.events)),
        interval=_interval(explained),
        price=ChargePriceView(
            per_unit_hour=money(charge.nano_per_unit_hour),
            price_book=charge.price_book,
            price_book_from=charge.price_book_from,
            listed=money(charge.list_nano_per_unit_hour),
        ),
        transaction=_transaction(explained.postings),
        invoice_line=None if explained.invoice_line is None else _invoice_line(explained.invoice_line),
    )


def _invoice_line(line: LineOfInvoice) -> ChargeInvoiceLineView:
    return ChargeInvoiceLineView(on_wire(Prefix.INVOICE, line.invoice_id), line.invoice, line.number)


def _interval(explained: ExplainedCharge) -> IntervalView | None:
    charge, cost = explained.charge, explained.computed_nano
    if (
        charge.metered_from is None
        or charge.metered_until is None
        or charge.metered_at is None
        or charge.unit_seconds_before is None
        or charge.metered_unit_seconds is None
        or cost is None
    ):
        return None
    return IntervalView(
        started_at=charge.metered_from,
        ended_at=charge.metered_until,
        unit_seconds_before=charge.unit_seconds_before,
        unit_seconds=charge.metered_unit_seconds,
        recorded_at=charge.metered_at,
        cost=money(cost),
    )


def _transaction(postings: Sequence[ChargePosting]) -> ChargeTransactionView | None:
    if not postings:
        return None
    first = postings[0]
    return ChargeTransactionView(
        id=on_wire(Prefix.TRANSACTION, first.transaction_id),
        effective_at=first.effective_at,
        recorded_at=first.recorded_at,
        period=month_text(first.period),
        postings=tuple(
            PostingView(posting.account.value, money(posting.amount_nano)) for posting in postings
        ),
    )
