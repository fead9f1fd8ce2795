"""Invoices, requests to issue them, and who is invoiced."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.billing import UnitWord
from control_plane.wire.common import (
    LINE_PATTERN,
    Money,
    NamedOrganizationId,
    NextCursor,
    Request,
    RequestError,
    Timestamp,
    View,
)
from control_plane.wire.credit_notes import CreditNoteSummaryView
from control_plane.wire.exports import PeriodText
from control_plane.wire.finance import MonthText
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import (
    InvoiceIdText,
    LeaseIdText,
    OrganizationIdText,
    ProjectIdText,
    PurchaseWord,
    one_of,
)

TAX_RATE_MAX = 5_000
InvoiceStateWord = Annotated[
    str,
    one_of(
        "InvoiceState",
        "Where an invoice stands.",
        draft="What would be issued now. It has no number, and nothing is posted.",
        issued="It has a number, its tax and rounding are posted, and it is never edited.",
        voided="Its credit notes cover all of it.",
    ),
]
InvoiceLineKindWord = Annotated[
    str,
    one_of(
        "InvoiceLineKind",
        "What a line of an invoice is.",
        usage="The charges of one project, SKU, kind of purchase, tier and price. What was not used of terms has a line"
        " of its own.",
        credit="What was used of a credit, which nobody paid for. It lowers the taxable amount. With a positive amount:"
        " what an earlier invoice used of a credit that was corrected since then.",
        adjustment="What the subtotal is below the exact sum, so that it is in whole cents.",
    ),
]

AddressLine = Annotated[
    str,
    Meta(
        pattern=LINE_PATTERN,
        max_length=100,
        description="One line of an address, of up to 100 characters.",
        examples=["Salomon-Idler-Str. 12"],
        extra={"must": "one line of 1 to 100 characters, without control characters"},
    ),
]
CountryText = Annotated[
    str,
    Meta(
        pattern=r"^[A-Z]{2}$(?!\n)",
        max_length=2,
        description="The code of a country: two capital letters (ISO 3166-1).",
        examples=["DE"],
        extra={"must": "the code of a country, such as `DE`"},
    ),
]
TaxIdText = Annotated[
    str,
    Meta(
        pattern=r"^[A-Z0-9][A-Z0-9 ./-]*$(?!\n)",
        max_length=32,
        description="A number for tax, such as a VAT identification number.",
        examples=["DE811907980"],
        extra={"must": "a tax id of 1 to 32 capital letters, digits, spaces or . / -"},
    ),
]
TaxRate = Annotated[
    int,
    Meta(
        ge=0,
        le=TAX_RATE_MAX,
        description="A rate of tax in basis points: 1900 is 19 %.",
        examples=[1900],
        extra={"must": f"a whole number from 0 to {TAX_RATE_MAX}: a rate of tax in basis points"},
    ),
]


class BillingDetailsRequest(Request):
    """Who is invoiced. It replaces the details before as a whole."""

    legal_name: AddressLine
    """The name of the buyer."""
    address_lines: Annotated[tuple[AddressLine, ...], Meta(min_length=1, max_length=6)]
    """The lines of its address, without the country."""
    country: CountryText
    """Its country."""
    tax_rate: TaxRate
    """The rate of tax on what it uses, in basis points."""
    tax_id: TaxIdText | None = None
    """Its number for tax; null where it has none."""
    reverse_charge: bool = False
    """Whether the buyer owes the tax instead of the seller. It needs a tax id and a rate of 0."""

    def __post_init__(self) -> None:
        if self.reverse_charge and (self.tax_rate or self.tax_id is None):
            raise RequestError("must have a `tax_id` and a `tax_rate` of 0 with `reverse_charge`")


class BillingDetailsView(View):
    """Who is invoiced, and at which rate of tax."""

    organization_id: OrganizationIdText
    """Whose details these are."""
    legal_name: str
    """The name of the buyer."""
    address_lines: tuple[str, ...]
    """The lines of its address, without the country."""
    country: str
    """The code of its country (ISO 3166-1)."""
    tax_id: str | None
    """Its number for tax; null where it has none."""
    tax_rate: int
    """The rate of tax, in basis points."""
    reverse_charge: bool
    """Whether the buyer owes the tax instead of the seller."""
    changed_at: Timestamp
    """When they were set."""
    changed_by: str
    """The id of the subject that set them."""


class InvoiceRunRequest(Request):
    """A request for the invoices of a month."""

    period: PeriodText
    """The month. It has to be closed, unless drafts are asked for."""
    organization_id: NamedOrganizationId | None = None
    """One organization. Null for all: a batch at a time, because each batch is issued as a whole."""
    draft: bool = False
    """Only compute what would be issued."""
    cursor: Annotated[str, Meta(max_length=1_000, examples=["aW52b2ljZWJhdGNoZXM6MTc2Mzc3NjAwMA"])] | None = (
        None
    )
    """`next_cursor` of the answer before, unchanged, to go on with the next batch."""


class InvoiceSummaryView(View, kw_only=True):
    """An invoice without its lines."""

    id: InvoiceIdText | None
    """The id of the invoice; null for a draft."""
    number: str | None
    """Its number, without a gap in each year; null for a draft."""
    state: InvoiceStateWord
    """Where it stands."""
    organization_id: OrganizationIdText
    """Who is invoiced."""
    legal_name: str
    """The name of the buyer."""
    period: MonthText
    """The month in which its charges are booked."""
    subtotal: Money
    """What was used less credits, in whole cents: what is taxed."""
    tax: Money
    """Tax."""
    total: Money
    """Both together."""
    paid: Money
    """What was paid from the balance when it was used."""
    due: Money
    """What is left to pay, less the tax of its credit notes."""
    issued_at: Timestamp | None
    """When it was issued; null for a draft."""
    credited: Money
    """By how much credit notes lower its total."""
    due_at: Timestamp | None = None
    """When what it left to pay is due; null for a draft, and when nothing was left."""


class InvoiceLineView(View):
    """A line of an invoice. The printed amounts of all lines add up to the subtotal, and so do the exact ones."""

    number: int
    """Its place, from 1."""
    kind: InvoiceLineKindWord
    """What it is."""
    project_id: ProjectIdText | None
    """The project that used it, or whose lease a credit is for."""
    project: str | None
    """The name of the project."""
    sku: str | None
    """The SKU; null unless it is usage, as the following ones up to `unit_seconds`."""
    purchase: PurchaseWord | None
    """How it was bought."""
    stopped: bool | None
    """Whether the machines were stopped."""
    unit: UnitWord | None
    """What is counted."""
    price: Money | None
    """The price of one unit for an hour."""
    unit_seconds: int | None
    """How many units were used for a second each."""
    used_in: MonthText | None
    """The month of use, or of a broken promise. Before the invoice's, it corrects a month that had been closed."""
    lease_id: LeaseIdText | None
    """Of a credit, the lease whose promise was broken."""
    reason: str | None
    """Why a credit was given."""
    amount: Money
    """The printed amount, in whole cents."""
    exact: Money
    """The exact amount, as the ledger has it."""
    credited: Money
    """By how much credit notes correct it."""
    sla: SlaTierWord | None = None
    """The tier that it was sold with; null unless it is usage."""
    unused: bool | None = None
    """Whether it is the rest of terms, which was not used; null unless it is usage."""


class InvoiceView(InvoiceSummaryView, kw_only=True):
    """An invoice. It is never edited."""

    issuer: str
    """The code of the legal entity that sells."""
    seller: str
    """Its name."""
    seller_address: tuple[str, ...]
    """The lines of its address."""
    seller_tax_id: str | None
    """Its number for tax."""
    address_lines: tuple[str, ...]
    """The lines of the buyer's address, without the country."""
    country: str
    """The code of the buyer's country (ISO 3166-1)."""
    tax_id: str | None
    """The buyer's number for tax."""
    tax_rate: int
    """The rate of tax, in basis points."""
    reverse_charge: bool
    """Whether the buyer owes the tax instead of the seller."""
    usage: Money
    """The exact sum of the charges that are booked in the month."""
    credits: Money
    """What of it was used of money that nobody paid in."""
    adjustment: Money
    """What the subtotal differs from the exact sum, so that it is in whole cents."""
    issued_by: str | None
    """The id of the subject that issued it; null for a draft."""
    lines: tuple[InvoiceLineView, ...]
    """Its lines."""
    credit_notes: tuple[CreditNoteSummaryView, ...]
    """The credit notes that correct it, the oldest first."""


class InvoicePage(View):
    """A page of invoices."""

    items: tuple[InvoiceSummaryView, ...]
    """The invoices, newest first."""
    next_cursor: NextCursor | None


class NotInvoicedView(View):
    """An organization that used something and has no invoice."""

    organization_id: OrganizationIdText
    """The organization."""
    code: str
    """Why, for programs: docs/errors.md."""
    detail: str
    """Why, as a sentence."""


class InvoiceBatchView(View):
    """What came of a request for invoices: one organization's, or a batch of all."""

    period: MonthText
    """The month."""
    items: tuple[InvoiceView, ...]
    """The invoices."""
    refused: tuple[NotInvoicedView, ...]
    """Organizations that used something and have no invoice."""
    next_cursor: NextCursor | None
    """Pass it as `cursor` to go on with the next batch. Null after the last one."""
