"""Credit notes, and requests to issue them."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, NextCursor, Request, RequestError, Sentence, Timestamp, View
from control_plane.wire.vocabulary import CreditNoteIdText, InvoiceIdText, OrganizationIdText

LINES_MAX = 1_000
NamedInvoiceId = Annotated[
    str,
    Meta(
        pattern=r"^inv_[0-9a-f]{32}$(?!\n)",
        description="The id of an invoice.",
        examples=["inv_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
        extra={"must": "the id of an invoice: inv_ and 32 lower-case hexadecimal digits"},
    ),
]
CentsText = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,2})?$(?!\n)",
        max_length=12,
        description="An amount in US dollars in whole cents, as text: `25` or `2.49`.",
        examples=["25", "2.49"],
        # Our own check of the struct refuses zero; this tells the document.
        extra_json_schema={"not": {"pattern": "^[0.]*$"}},
        extra={"must": "an amount in US dollars as text, in whole cents, such as `25` or `2.49`"},
    ),
]
InvoiceLineNumber = Annotated[
    int,
    Meta(
        ge=1,
        le=1_000_000,
        description="The number of a line of an invoice, from 1.",
        examples=[1],
        extra={"must": "the number of a line of the invoice"},
    ),
]


class CreditNoteLineRequest(Request):
    """By how much a line of an invoice is corrected."""

    line: InvoiceLineNumber
    """The number of the line, which has usage."""
    amount_usd: CentsText | None = None
    """By how much; null for all that is left of it."""

    def __post_init__(self) -> None:
        if self.amount_usd is not None and not self.amount_usd.strip("0."):
            raise RequestError("must have an `amount_usd` of more than zero")


class CreditNoteRequest(Request):
    """A credit note to be issued."""

    invoice_id: NamedInvoiceId
    """The invoice that it corrects."""
    reason: Sentence
    """Why, such as the number of a ticket. It is printed, and stored with who sent it."""
    lines: Annotated[tuple[CreditNoteLineRequest, ...], Meta(min_length=1, max_length=LINES_MAX)] | None = (
        None
    )
    """What is corrected, each line once; null for all that is left, which voids the invoice."""

    def __post_init__(self) -> None:
        if self.lines is not None and len({line.line for line in self.lines}) < len(self.lines):
            raise RequestError("must name each of its `lines` once")


class CreditNoteSummaryView(View):
    """A credit note without its lines."""

    id: CreditNoteIdText
    """The id of the credit note."""
    number: str
    """Its number, without a gap in each year."""
    invoice_id: InvoiceIdText
    """The invoice that it corrects."""
    invoice_number: str
    """The number of that invoice."""
    organization_id: OrganizationIdText
    """Who was invoiced."""
    legal_name: str
    """The name of the buyer."""
    net: Money
    """By how much it lowers what is taxed."""
    tax: Money
    """By how much it lowers the tax."""
    total: Money
    """Both together."""
    to_balance: Money
    """What went to the balance: what had been paid, with its tax, and what had been used of credits."""
    less_due: Money
    """What is owed less by invoices: what had not been paid."""
    reason: str
    """Why it was issued."""
    issued_at: Timestamp
    """When."""
    issued_by: str
    """The id of the subject that decided on it."""


class CreditNoteLineView(View):
    """A line of a credit note."""

    number: int
    """Its place, from 1."""
    invoice_line: int
    """The line of the invoice that it corrects."""
    amount: Money
    """By how much, in whole cents."""


class CreditNoteView(CreditNoteSummaryView):
    """A credit note. It is never edited, and has the seller and the buyer of its invoice."""

    credited: Money
    """The sum of its lines."""
    credits: Money
    """What of it had been used of credits: it was not taxed, and is credit again."""
    lines: tuple[CreditNoteLineView, ...]
    """Its lines."""


class CreditNotePage(View):
    """A page of credit notes."""

    items: tuple[CreditNoteSummaryView, ...]
    """The credit notes, newest first."""
    next_cursor: NextCursor | None
