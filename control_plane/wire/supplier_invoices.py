"""Suppliers' invoices, and the three-way match of our meter, their record and the customers' bills."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import (
    PLACE_LENGTH_MAX,
    PROVIDER_PATTERN,
    Money,
    NextCursor,
    Request,
    Sentence,
    Timestamp,
    View,
)
from control_plane.wire.exports import PeriodText
from control_plane.wire.finance import MonthText
from control_plane.wire.vocabulary import (
    MachineIdText,
    SupplierInvoiceIdText,
    SupplierUploadIdText,
    one_of,
)

CSV_LENGTH_MAX = 60_000
"""Of a part, so that it fits into the body of a request."""
LINES_MAX = 500_000
FILE_BYTES_MAX = 50_000_000
PARTS_MAX = 10_000
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
NamedUploadId = Annotated[
    str,
    Meta(
        pattern=r"^sup_[0-9a-f]{32}$(?!\n)",
        description="The id of an upload of a supplier's invoice.",
        examples=["sup_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of an upload: sup_ and 32 lower-case hexadecimal digits"},
    ),
]
SupplierStateWord = Annotated[
    str,
    one_of(
        "SupplierInvoiceState",
        "What was decided on a supplier's invoice.",
        imported="Nothing yet.",
        posted="It is right: the ledger has it as a cost that we owe.",
        voided="It does not count, and nothing of its month is posted.",
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
        left_behind="Something that a launch made beside its machine, such as a volume, outlived it.",
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


class SupplierUploadRequest(Request):
    """A file of a supplier's invoice that is going to be uploaded."""

    provider: SupplierText
    """Whose invoice it is."""
    period: PeriodText
    """The month."""


class SupplierPartRequest(Request):
    """A part of the file: whole lines of it. It takes the place of an earlier one with its number."""

    number: Annotated[
        int,
        Meta(ge=1, le=PARTS_MAX, examples=[1], extra={"must": f"a whole number from 1 to {PARTS_MAX}"}),
    ]
    """Its place in the file, from 1."""
    first_line: Annotated[
        int,
        Meta(
            ge=1,
            le=LINES_MAX,
            examples=[1],
            extra={"must": f"a whole number from 1 to {LINES_MAX}: the number of a line"},
        ),
    ]
    """The number of its first line in the file: `lines` of the answer to the part before, and one."""
    csv: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=CSV_LENGTH_MAX,
            examples=[CSV_EXAMPLE],
            extra={"must": f"whole lines of 1 to {CSV_LENGTH_MAX:,} characters"},
        ),
    ]
    """The lines. The first part has the header `machine,from,to,quantity,unit,amount,currency`."""


class SupplierUploadView(View):
    """A file of a supplier's invoice that is on its way. Nothing of it counts before it is imported."""

    id: SupplierUploadIdText
    """The id of the upload."""
    provider: str
    """Whose invoice it is."""
    period: MonthText
    """The month."""
    parts: int
    """How many parts are there."""
    lines: int
    """How many lines they have, with the header."""
    size: int
    """How many bytes."""


class SupplierInvoiceRequest(Request):
    """A file that was uploaded as a whole."""

    upload_id: NamedUploadId
    """The id of the upload."""
    parts: Annotated[
        int,
        Meta(
            ge=1,
            le=PARTS_MAX,
            examples=[1],
            extra={"must": f"a whole number from 1 to {PARTS_MAX}"},
        ),
    ]
    """How many parts the file has."""


class SupplierPostingRequest(Request):
    """A supplier's invoice that is right."""

    reason: Sentence | None = None
    """Why it is posted although its match has a difference that nothing explains; null: only if it has none."""


class SupplierVoidRequest(Request):
    """A supplier's invoice that does not count."""

    reason: Sentence
    """Why, such as the supplier's word."""


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
    state: SupplierStateWord
    """What was decided on it."""
    decided_at: Timestamp | None
    """When that was; null while nobody has decided."""
    decided_by: str | None
    """The id of the subject that decided."""
    reason: str | None
    """Why it was posted or voided."""


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
    """A machine in the three records, or something that outlived one, such as a volume."""

    reference: str
    """The supplier's reference."""
    machine_id: MachineIdText | None
    """The id of our record, for a volume that of the machine that it was made for; null where the supplier alone has
    one."""
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
    child_kind: str | None = None
    """What it is that outlived its machine, in the provider's word, such as `volume`; null for a machine."""


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
