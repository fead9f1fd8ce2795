"""Suppliers' invoices, and the three-way match of our meter, their record and the customers' bills."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import (
    PLACE_LENGTH_MAX,
    PROVIDER_PATTERN,
    Money,
    NextCursor,
    Request,
    Timestamp,
    View,
)
from control_plane.wire.exports import PeriodText
from control_plane.wire.finance import MonthText
from control_plane.wire.vocabulary import MachineIdText, SupplierInvoiceIdText, one_of

CSV_LENGTH_MAX = 60_000
"""So that it fits into the body of a request."""
CSV_EXAMPLE = (
    "machine,from,to,quantity,unit,amount,currency\n"
    "i-0a1b2c3d,2026-11-01T00:00:00Z,2026-11-02T00:00:00Z,24,hour,59.76,USD\n"
)
SupplierText = Annotated[
    str,
    Meta(
        pattern=PROVIDER_PATTERN,
        max_length=PLACE_LENGTH_MAX,
        description="The name of a provider at which there is an account.",
        examples=["lambda_cloud"],
        extra={"must": "the name of a provider, such as lambda_cloud"},
    ),
]
MatchWordText = Annotated[
    str,
    one_of(
        "MatchWord",
        "Why the records of a machine differ. The last five are open: somebody has to decide on them.",
        before_ready="A lease held the machine, and its customer could not use it yet.",
        unsold_time="No lease held the machine.",
        not_billed="The customer was not billed: the bill was paused, or the charge has yet to come.",
        billed_by_block="The supplier rounds up, or bills a minimum.",
        observed_times="The supplier's begin and end lie within what we saw of them.",
        rounding="Less than a cent for each line.",
        spot_price="The price of spot capacity moved.",
        price_differs="The supplier bills another price than the one at which the machine was ordered.",
        time_differs="The supplier bills another time than the machine can have existed.",
        amount_differs="The supplier bills another amount, and its lines do not say for how much time.",
        not_on_our_records="The supplier bills what no record of the month has.",
        not_on_theirs="The supplier does not bill a machine that we expect it to bill.",
    ),
]


class SupplierInvoiceRequest(Request):
    """A supplier's whole invoice of a month, as a CSV file."""

    provider: SupplierText
    """Whose invoice it is."""
    period: PeriodText
    """The month."""
    csv: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=CSV_LENGTH_MAX,
            examples=[CSV_EXAMPLE],
            extra={"must": f"a file of 1 to {CSV_LENGTH_MAX:,} characters"},
        ),
    ]
    """The file, with the header `machine,from,to,quantity,unit,amount,currency`."""


class SupplierInvoiceView(View):
    """A supplier's invoice of a month. The last import of a month counts."""

    id: SupplierInvoiceIdText
    """The id of the import."""
    provider: str
    """Whose invoice it is."""
    period: MonthText
    """The month."""
    lines: int
    """How many lines it has."""
    amount: Money
    """The sum of its lines."""
    sha256: str
    """The SHA-256 of the file, in hexadecimal."""
    imported_at: Timestamp
    """When it was imported."""
    imported_by: str
    """The id of the subject that imported it."""


class SupplierInvoicePage(View):
    """A page of suppliers' invoices."""

    items: tuple[SupplierInvoiceView, ...]
    """The invoices, newest import first."""
    next_cursor: NextCursor | None


class MatchDifferenceView(View):
    """A step from what customers used to what a supplier bills."""

    word: MatchWordText
    """Why there is a difference."""
    amount: Money
    """By how much it makes the supplier's amount more."""


class MatchedMachineView(View):
    """A machine in the three records."""

    reference: str
    """The supplier's reference."""
    machine_id: MachineIdText | None
    """The id of our record; null where the supplier alone has one."""
    billed: Money
    """What customers were charged for its time."""
    used: Money
    """What that time costs at the supplier's price."""
    expected: Money
    """What we expect the supplier to bill."""
    invoiced: Money
    """What it bills."""
    open: bool
    """Whether a difference needs somebody's decision."""
    differences: tuple[MatchDifferenceView, ...]
    """The steps from `used` to `invoiced`, which add up."""


class MatchView(View):
    """The three-way match of a month."""

    month: MonthText
    """The month."""
    until: Timestamp
    """Up to when machines are counted: the end of the month, or now."""
    matched: bool
    """Whether no difference is open and no invoice is missing."""
    providers: tuple[str, ...]
    """Whose invoices are matched."""
    missing_invoices: tuple[str, ...]
    """Providers with machines in the month of which no invoice is imported."""
    billed: Money
    """What customers were charged for the time of these machines."""
    used: Money
    """What that time costs at the suppliers' prices."""
    expected: Money
    """What we expect suppliers to bill."""
    invoiced: Money
    """What they bill."""
    differences: tuple[MatchDifferenceView, ...]
    """The sum of each word that has one. They add up from `used` to `invoiced`."""
    machines_count: int
    """How many machines there are in the records."""
    open_count: int
    """How many of them have an open difference."""
    machines: tuple[MatchedMachineView, ...]
    """Those with open differences first, and the largest ones first; as many as asked for."""
