"""Reconciliations of periods on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.period import month_text
from control_plane.domain.reconciliation import Sides
from control_plane.services.reconciliations import Found, NamedDifference, ReconciledCustomer
from control_plane.wire.reconciliations import (
    DifferenceView,
    LinkView,
    PeriodReconciliationView,
    ReconciledCustomerView,
)


def reconciliation_view(found: Found) -> PeriodReconciliationView:
    asked = found.asked
    return PeriodReconciliationView(
        id=on_wire(Prefix.RECONCILIATION, asked.id),
        period=month_text(asked.period),
        state=_state(found),
        closed=asked.closed,
        export_id=None if asked.export_id is None else on_wire(Prefix.EXPORT_RUN, asked.export_id),
        asked_at=asked.asked_at,
        asked_by=asked.asked_by,
        all_customers=asked.all_customers,
        customers=found.customers,
        remaining=found.remaining,
        examined_at=found.examined_at,
        links=tuple(map(_link_view, found.links)),
        differing_customers=found.differing_customers,
        not_invoiced=money(found.not_invoiced),
    )


def _state(found: Found) -> str:
    if found.is_running:
        return "running"
    return "different" if found.differs else "reconciled"


def _link_view(sides: Sides) -> LinkView:
    return LinkView(
        sides.link.value, money(sides.before_nano), money(sides.after_nano), money(sides.difference_nano)
    )


def reconciled_customer_view(customer: ReconciledCustomer) -> ReconciledCustomerView:
    return ReconciledCustomerView(
        organization_id=on_wire(Prefix.ORGANIZATION, customer.customer_id),
        organization=customer.customer,
        differs=customer.differs,
        links=tuple(map(_link_view, customer.links)),
    )


def difference_view(named: NamedDifference) -> DifferenceView:
    sides = named.sides
    return DifferenceView(
        organization_id=on_wire(Prefix.ORGANIZATION, named.difference.customer_id),
        organization=named.customer,
        link=sides.link.value,
        before=money(sides.before_nano),
        after=money(sides.after_nano),
        difference=money(sides.difference_nano),
        examples=named.difference.examples,
    )
