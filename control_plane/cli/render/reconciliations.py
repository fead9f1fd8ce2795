"""Reconciliations of months on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import ago, both, plural, price
from control_plane.wire.common import Money
from control_plane.wire.reconciliations import (
    DifferenceView,
    LinkView,
    PeriodReconciliationView,
    ReconciledCustomerView,
)

_STYLES = {"reconciled": "green", "different": "bold red", "running": "yellow"}
_SIDES = {
    "metered": ("journal", "metered time"),
    "rated": ("metered time", "time of charges"),
    "charged": ("time of charges", "charges"),
    "posted": ("charges booked", "ledger"),
    "invoiced": ("charges to bill", "invoice lines"),
    "invoice_posted": ("invoices", "ledger"),
    "credit_note_posted": ("credit notes", "ledger"),
    "exported_to_customer": ("billed", "own exports"),
    "exported": ("billed", "export of all"),
    "supplier_posted": ("suppliers", "provider cost"),
    "supplier_owed": ("provider cost", "payable"),
}

_EXAMPLES_MAX = 5
"""The answer of the API has more of them."""


def progress_of(found: PeriodReconciliationView) -> str:
    """How far a reconciliation is, as a line."""
    if found.remaining is None:
        return f"{found.period}: waiting for the reconciler"
    return f"{found.period}: {plural(found.customers, 'customer')} examined, {found.remaining} left"


def reconciliation_table(found: Sequence[PeriodReconciliationView], now: datetime) -> RenderableType:
    if not found:
        return Text("No reconciliations. To ask for one: splitplane finance reconcile MONTH")
    rows = [
        (
            one.id,
            Text(one.period, style="bold"),
            Text(one.state, style=_STYLES.get(one.state, "")),
            str(one.differing_customers),
            ago(one.asked_at, now),
        )
        for one in found
    ]
    columns = ("RECONCILIATION", "PERIOD", "STATE", "DIFFERING", "ASKED FOR")
    return table(columns, rows, right=("DIFFERING",), whole=("RECONCILIATION", "PERIOD", "STATE"))


def reconciliation_page(found: PeriodReconciliationView, now: datetime) -> RenderableType:
    left = "" if not found.remaining else f", {found.remaining} left"
    return Group(
        heading(f"Reconciliation of {found.period}", found.id),
        facts(
            ("State", Text(found.state, style=_STYLES.get(found.state, ""))),
            ("Period", "closed" if found.closed else "not closed: what is on its way is left out"),
            ("Asked for", both(found.asked_at, now)),
            ("By", found.asked_by),
            ("Customers", f"{found.customers} examined{left}, {found.differing_customers} with a difference"),
            ("Not invoiced", _not_invoiced(found.not_invoiced)),
            ("Export", found.export_id or "none of all customers is complete"),
        ),
        Text(),
        table(
            ("BEFORE", "USD", "AFTER", "USD ", "DIFFERENCE"),
            [_link(link) for link in found.links],
            right=("USD", "USD ", "DIFFERENCE"),
        ),
    )


def _not_invoiced(amount: Money) -> str | None:
    return f"charges of {price(amount)} USD; their invoices are not issued yet" if amount.nano else None


def _link(link: LinkView) -> Sequence[str | Text]:
    before, after = _SIDES.get(link.link, (link.link, link.link))
    return before, price(link.before), after, price(link.after), _difference(link.difference)


def _difference(amount: Money) -> Text:
    return Text(price(amount), style="bold red" if amount.nano else "green")


def difference_table(found: Sequence[DifferenceView]) -> RenderableType:
    """Customers and links that differ."""
    rows = [
        (
            Text(one.organization or one.organization_id, style="bold"),
            one.link,
            price(one.before),
            price(one.after),
            _difference(one.difference),
        )
        for one in found
    ]
    return Group(Text(), _links_of_customers(rows))


def customer_table(found: Sequence[ReconciledCustomerView]) -> RenderableType:
    """Both sides of the links of customers. A link that has nothing on either side is left out."""
    rows = [
        (
            Text(customer.organization or customer.organization_id, style="bold"),
            link.link,
            price(link.before),
            price(link.after),
            _difference(link.difference),
        )
        for customer in found
        for link in customer.links
        if link.before.nano or link.after.nano
    ]
    return Group(Text(), _links_of_customers(rows)) if rows else Group()


def nothing_line(count: int) -> RenderableType:
    """How many customers are not in the table, because they have nothing on either side."""
    return Text(f"\n{plural(count, 'customer')} had nothing in the month, on either side of any link.")


def _links_of_customers(rows: Sequence[Sequence[str | Text]]) -> RenderableType:
    columns = ("CUSTOMER", "LINK", "BEFORE USD", "AFTER USD", "DIFFERENCE")
    return table(columns, rows, right=("BEFORE USD", "AFTER USD", "DIFFERENCE"))


def to_see_why(found: Sequence[DifferenceView]) -> RenderableType:
    """How to follow what differs through the chain."""
    examples = list(dict.fromkeys(example for one in found for example in one.examples[:1]))[:_EXAMPLES_MAX]
    return Group(
        *([Text("\nTo see why:")] if examples else []),
        *(Text(f"  splitplane finance explain {id_}") for id_ in examples),
    )


def more_differences_line(shown: int) -> RenderableType:
    return Text(f"\nThe first {shown} links that differ are shown; --all shows every one.")


def agreement_line(found: PeriodReconciliationView) -> RenderableType:
    """How many customers agree on every link, and how to see them."""
    agreeing = found.customers - found.differing_customers
    verb = "agrees" if agreeing == 1 else "agree"
    shown = "; --all shows them" if found.all_customers else ""
    return Text(f"\n{plural(agreeing, 'customer')} {verb} on every link{shown}.")


def not_stored_line(found: PeriodReconciliationView) -> RenderableType:
    """Why customers that agree are not in the table, and how to see them."""
    return Text(
        "\nIt is a daily one, which stores only customers that differ. To see all of them:"
        f" splitplane finance reconcile {found.period} --all"
    )
