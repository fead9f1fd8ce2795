"""Usage, bills and reconciliations on the wire."""

from control_plane.api.views.money import money, money_or_none
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import CURRENCY, Nano
from control_plane.domain.sku import Unit, unit_of
from control_plane.domain.usage_grouping import UsageGrouping
from control_plane.services.billing import (
    Bill,
    BilledCredit,
    BillLine,
    Charge,
    CustomerUsage,
    ProjectTotal,
    Reconciliation,
    UsageSums,
)
from control_plane.wire.billing import (
    BillLineView,
    BillView,
    CustomerUsageView,
    ProjectTotalView,
    ReconciliationView,
    SlaCreditView,
    UsageGroupView,
    UsageRow,
    UsageSumsView,
)


def usage_row(charge: Charge) -> UsageRow:
    return UsageRow(
        id=on_wire(Prefix.CHARGE, charge.id),
        lease_id=on_wire(Prefix.LEASE, charge.lease_id),
        lease_name=charge.lease_name,
        interval=charge.number,
        sku=charge.sku,
        started_at=charge.started_at,
        ended_at=charge.ended_at,
        unit=unit_of(charge.gpu_count).value,
        unit_seconds=charge.unit_seconds,
        price_per_unit_hour=money(charge.nano_per_unit_hour),
        amount=money(charge.amount_nano),
        project=charge.project,
        project_id=on_wire(Prefix.PROJECT, charge.project_id),
        machine_id=on_wire(Prefix.MACHINE, charge.machine_id),
        provider=charge.provider,
        region=charge.region,
        purchase=charge.purchase,
        sla=charge.sla.value,
        price_book=charge.price_book,
        organization_id=on_wire(Prefix.ORGANIZATION, charge.organization_id),
        gpu_model=charge.gpu_model,
        gpu_count=charge.gpu_count,
        currency=CURRENCY,
        labels=dict(charge.labels),
        node_pool=charge.node_pool,
        stopped=charge.stopped,
        unused=charge.unused,
    )


_PREFIXES = {
    UsageGrouping.ORGANIZATION: Prefix.ORGANIZATION,
    UsageGrouping.PROJECT: Prefix.PROJECT,
    UsageGrouping.LEASE: Prefix.LEASE,
}
"""Of the ids of groups; other ones have none."""


def usage_sums_view(sums: UsageSums) -> UsageSumsView:
    return UsageSumsView(
        by=sums.by.value,
        label_key=sums.label,
        since=sums.since,
        until=sums.until,
        groups=tuple(
            UsageGroupView(
                id=None if group.id is None else on_wire(_PREFIXES[sums.by], group.id),
                name=group.name,
                charges=group.charges,
                gpu_seconds=group.gpu_seconds,
                machine_seconds=group.machine_seconds,
                amount=money(group.amount_nano),
                unused=money(group.unused_nano),
            )
            for group in sums.groups
        ),
        gpu_seconds=sums.gpu_seconds,
        machine_seconds=sums.machine_seconds,
        amount=money(sums.amount_nano),
        unused=money(sums.unused_nano),
    )


def customer_usage_view(customer: CustomerUsage) -> CustomerUsageView:
    return CustomerUsageView(
        organization_id=on_wire(Prefix.ORGANIZATION, customer.organization_id),
        organization=customer.organization,
        usage=usage_sums_view(customer.usage),
    )


def bill_view(bill: Bill) -> BillView:
    return BillView(
        since=bill.since,
        until=bill.until,
        lines=tuple(_line(line) for line in bill.lines),
        projects=tuple(_project(total) for total in bill.by_project),
        amount=money(bill.amount_nano),
        unrated=money(bill.unrated_nano),
        balance=money_or_none(bill.posted_nano),
        held=money_or_none(bill.held_nano),
        available=money_or_none(bill.available_nano),
        balance_warning=bill.balance_warning,
        sla_credits=tuple(map(_sla_credit, bill.sla_credits)),
    )


def _sla_credit(credit: BilledCredit) -> SlaCreditView:
    return SlaCreditView(
        breach_id=on_wire(Prefix.SLA_BREACH, credit.id),
        lease_id=on_wire(Prefix.LEASE, credit.lease_id),
        lease_name=credit.lease_name,
        promise=credit.promise.value,
        why=credit.why,
        amount=money(credit.amount_nano),
    )


def _project(total: ProjectTotal) -> ProjectTotalView:
    return ProjectTotalView(
        project=total.project,
        project_id=on_wire(Prefix.PROJECT, total.project_id),
        gpu_seconds=total.seconds(Unit.GPU),
        machine_seconds=total.seconds(Unit.MACHINE),
        amount=money(Nano(sum(line.amount_nano for line in total.lines))),
        unrated_gpu_seconds=total.unrated_seconds(Unit.GPU),
        unrated_machine_seconds=total.unrated_seconds(Unit.MACHINE),
        unrated=money(Nano(sum(line.unrated_nano for line in total.lines))),
    )


def _line(line: BillLine) -> BillLineView:
    return BillLineView(
        lease_id=on_wire(Prefix.LEASE, line.lease_id),
        name=line.name,
        project=line.project,
        project_id=on_wire(Prefix.PROJECT, line.project_id),
        sku=line.sku,
        sla=line.sla.value,
        unit=line.unit.value,
        price_per_unit_hour=money(line.nano_per_unit_hour),
        unit_seconds=line.unit_seconds,
        amount=money(line.amount_nano),
        unrated_unit_seconds=line.unrated_unit_seconds,
        unrated=money(line.unrated_nano),
        node_pool=line.node_pool,
        stopped=line.stopped,
        unused=line.unused,
    )


def reconciliation_view(reconciliation: Reconciliation) -> ReconciliationView:
    return ReconciliationView(
        gpu_seconds=reconciliation.gpu_seconds,
        machine_seconds=reconciliation.machine_seconds,
        rated=money(reconciliation.rated_nano),
        posted=money(reconciliation.posted_nano),
        balance=money(reconciliation.balance_nano),
        difference=money(reconciliation.difference_nano),
    )
