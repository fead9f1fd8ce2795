"""The pages of invoices and credit notes show what these say, print whole, and run nothing that is written in a name."""

import re
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from html.parser import HTMLParser
from uuid import UUID

from control_plane.api.views.credit_note_page import credit_note_page
from control_plane.api.views.invoice_page import invoice_page
from control_plane.api.views.printed_page import HEADERS
from control_plane.domain.credit_note import CreditNote, CreditNoteLine
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.invoice import BillingDetails, GivenCredit, Seller, Usage, draft
from control_plane.domain.money import NANO_PER_CENT, Nano
from control_plane.domain.period import MAIN_ISSUER, Period, PeriodState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier
from control_plane.services.credit_notes import FullCreditNote
from control_plane.services.invoices import FullInvoice

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
BUYER = BillingDetails(
    legal_name="Heliotrope GmbH",
    address=("Idlerstr. 12", "86159 Augsburg"),
    country="DE",
    tax_id="DE811907980",
    tax_rate=1_900,
    reverse_charge=False,
)
USED = Usage(
    project_id=ProjectId(UUID(int=2)),
    project="research",
    sku="h100x8",
    purchase=PurchaseKind.ON_DEMAND,
    sla=SlaTier.BRONZE,
    stopped=False,
    unused=False,
    unit=Unit.GPU,
    nano_per_unit_hour=Nano(2_490_000_000),
    used_in=OCTOBER,
    unit_seconds=20_736_000,
    amount_nano=Nano(14_342_400_000_000),
)
LATE = replace(
    USED,
    sku="cpu-8",
    unit=Unit.MACHINE,
    stopped=True,
    used_in=datetime(2026, 9, 1, tzinfo=UTC),
    nano_per_unit_hour=Nano(1_333_333_333),
    unit_seconds=3_600,
    amount_nano=Nano(1_333_333_333),
)


def an_invoice(
    buyer: BillingDetails = BUYER, usage: tuple[Usage, ...] = (USED, LATE), *, issued: bool = True
) -> FullInvoice:
    invoice, lines = draft(
        OrganizationId(UUID(int=1)),
        Period(MAIN_ISSUER, OCTOBER, PeriodState.CLOSED),
        seller=Seller("Neocloud Ltd", ("1 Quay Street", "Galway"), "IE6388047V"),
        buyer=buyer,
        usage=usage,
        unused_credits=Nano(2_500_000_000),
        given=[GivenCredit(id=UUID(int=4), left_nano=Nano(2_600_000_000), reason="ticket <4711>")],
    )
    if issued:
        at = datetime(2026, 11, 3, 9, tzinfo=UTC)
        invoice = invoice.issued(UUID(int=3), "INV-2026-000001", at=at, by="user_1")
    return FullInvoice(invoice, lines)


class Seen(HTMLParser):
    """What a browser makes of a page: its elements with their attributes, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text += "" if tag in ("bdi", "strong") else " "

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def test_the_page_says_who_sells_what_to_whom_and_when() -> None:
    words = Seen(invoice_page(an_invoice())).words
    for said in (
        "Invoice INV-2026-000001",
        "From Neocloud Ltd 1 Quay Street Galway Tax id IE6388047V",
        "To Heliotrope GmbH Idlerstr. 12 86159 Augsburg DE Tax id DE811907980",
        "Date of issue 2026-11-03",
        "Period 2026-10-01 to 2026-10-31 (UTC)",
        "1 h100x8 for the project research on demand 5,760.0000 GPU-hours 2.49 14,342.40",
        "2 cpu-8 for the project research on demand, stopped, corrects 2026-09 1.0000 machine-hours 1.333333333 1.33",
        "3 Credit used: ticket <4711> paid for by a credit that we gave \N{MINUS SIGN}2.50",
        "4 Rounding down to whole cents exactly \N{MINUS SIGN}0.003333333 USD, which went back to the prepaid balance 0.00",
        "Subtotal 14,341.23 USD",
        "Tax, 19 % 2,724.83 USD",
        "Total 17,066.06 USD",
        "Paid from the balance \N{MINUS SIGN}14,341.23 USD",
        "Due, to be paid by 2026-11-03 2,724.83 USD",
    ):
        assert said in words, said
    assert "draft" not in words


def test_a_draft_says_that_it_is_no_invoice() -> None:
    words = Seen(invoice_page(an_invoice(issued=False))).words
    assert "This is a draft. It is no invoice" in words
    for unknown in ("Invoice number", "Date of issue", "None"):
        assert unknown not in words


def test_with_reverse_charge_the_page_says_who_owes_the_tax() -> None:
    buyer = replace(BUYER, tax_rate=0, reverse_charge=True)
    words = Seen(invoice_page(an_invoice(buyer))).words
    assert "Tax, reverse charge 0.00 USD" in words
    assert "Reverse charge: the customer is liable for the payment of the tax." in words
    assert "Reverse charge:" not in Seen(invoice_page(an_invoice())).words


def a_credit_note(full: FullInvoice, *, net_cents: int, tax_cents: int, reason: str) -> CreditNote:
    assert full.invoice.id is not None
    return CreditNote(
        id=UUID(int=5),
        organization_id=full.invoice.organization_id,
        invoice_id=full.invoice.id,
        issuer="main",
        number="CN-2026-000001",
        credited_cents=net_cents + 250,
        net_cents=net_cents,
        tax_cents=tax_cents,
        credits_nano=Nano(2_500_000_000),
        to_wallet_nano=Nano(net_cents * NANO_PER_CENT + 2_500_000_000),
        reason=reason,
        issued_at=datetime(2026, 11, 5, 9, tzinfo=UTC),
        issued_by="user_1",
    )


def test_a_corrected_invoice_names_its_credit_notes_and_what_they_leave_to_pay() -> None:
    full = an_invoice()
    part = a_credit_note(full, net_cents=10_000, tax_cents=1_900, reason="<b>late</b>")
    words = Seen(invoice_page(replace(full, credit_notes=[part]))).words
    for said in (
        "Due, to be paid by 2026-11-03 2,724.83 USD Tax of CN-2026-000001 \N{MINUS SIGN}19.00 USD Due after credit notes 2,705.83 USD",
        "Credit note CN-2026-000001 of 2026-11-05 lowers the subtotal by 100.00 USD and its tax by 19.00 USD; 102.50",
        "102.50 USD went to the balance, and 19.00 USD less is due. Reason: <b>late</b>",
    ):
        assert said in words, said
    assert "is void" not in words


def test_the_page_of_a_credit_note_says_what_it_corrects_and_what_it_gives_back() -> None:
    full = an_invoice()
    note = a_credit_note(full, net_cents=10_000, tax_cents=1_900, reason="<script>late")
    lines = [CreditNoteLine(1, 2, 250), CreditNoteLine(2, 1, 10_000)]
    seen = Seen(credit_note_page(FullCreditNote(note, lines, full.invoice)))
    for said in (
        "Credit note CN-2026-000001 From Neocloud Ltd 1 Quay Street Galway Tax id IE6388047V",
        "Date of issue 2026-11-05 Corrects the invoice INV-2026-000001 Reason <script>late",
        "# Corrects the line USD 1 2 2.50 2 1 100.00",
        "Sum of the lines 102.50 USD Of it, used of credits \N{MINUS SIGN}2.50 USD Net 100.00 USD",
        "Tax, 19 % 19.00 USD Total 119.00 USD",
        "102.50 USD went to the balance, and 19.00 USD less is due.",
    ):
        assert said in seen.words, said
    assert "script" not in {tag for tag, _ in seen.elements}


def test_a_voided_invoice_says_so() -> None:
    full = an_invoice()
    whole = a_credit_note(full, net_cents=1_434_123, tax_cents=272_483, reason="billed by mistake")
    words = Seen(invoice_page(replace(full, credit_notes=[whole]))).words
    assert "This invoice is void: credit notes cover all of it." in words
    assert "Due after credit notes 0.00 USD" in words
    assert "14,343.73 USD went to the balance, and 2,724.83 USD less is due." in words


def test_a_rate_of_tax_has_only_the_places_that_it_needs() -> None:
    for rate, said in ((810, "Tax, 8.1 %"), (0, "Tax, 0 %"), (1_905, "Tax, 19.05 %")):
        assert said in Seen(invoice_page(an_invoice(replace(BUYER, tax_rate=rate)))).words


def test_no_name_becomes_an_element_or_turns_a_line_around() -> None:
    """Of every text that somebody chooses: the elements of the page are the same, whatever the names are."""
    hostile = (
        "</td></style><script>alert(1)</script><img src=x onerror=\"alert('1')\">&lt;b&gt;\u202e\u200b\x1b[2J"
    )
    buyer = replace(BUYER, legal_name=hostile, address=(hostile, hostile), country=hostile, tax_id=hostile)
    usage = (replace(USED, project=hostile, sku=hostile), LATE)
    full = an_invoice(buyer, usage)
    seller = replace(full.invoice, seller=hostile, seller_address=(hostile, hostile), seller_tax_id=hostile)
    page = invoice_page(replace(full, invoice=replace(seller, number=hostile)))
    seen = Seen(page)
    assert seen.elements == Seen(invoice_page(an_invoice())).elements
    assert seen.text.count("<script>alert(1)</script>") == 14
    assert not re.search("[\u202e\u200b\x1b]", seen.text)


def test_the_page_loads_and_runs_nothing_and_permits_only_its_own_style() -> None:
    page = invoice_page(an_invoice())
    elements = Seen(page).elements
    used = {name for _, attributes in elements for name in attributes}
    assert used == {"lang", "charset", "http-equiv", "content", "name", "class"}
    assert not {"script", "link", "img", "iframe", "form", "a"} & {tag for tag, _ in elements}
    style = page.split(b"<style>")[1].split(b"</style>")[0]
    permitted = f"style-src 'sha256-{b64encode(sha256(style).digest()).decode()}'"
    (policy,) = (attributes["content"] for _, attributes in elements if "http-equiv" in attributes)
    assert policy is not None
    for found in (HEADERS["Content-Security-Policy"], policy):
        assert found.startswith("default-src 'none'; ")
        assert permitted in found
    assert b"url(" not in style
    assert b"@import" not in style


def test_amounts_are_aligned_to_the_right() -> None:
    page = invoice_page(an_invoice()).decode()
    cells = re.findall(r"<td([^>]*)>([^<]*[0-9]\.[0-9]{2}[^<]*)</td>", page)
    assert len(cells) == 13
    assert {attributes for attributes, _ in cells} == {' class="n"'}
    assert re.search(r"\.n \{ text-align: right;", page)
