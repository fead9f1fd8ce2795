"""The rows of invoices and credit notes: they sum to what is printed, to the nano-dollar, and say what they are."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.credit_note import LineToCredit
from control_plane.domain.focus import COLUMNS, NAMES, Kind, Row, Value, usd
from control_plane.domain.focus_documents import DocumentDiffersError, DocumentFacts, document_rows, key
from control_plane.domain.invoice import TAX_RATE_MAX, LineKind
from control_plane.domain.money import NANO_PER_CENT, Nano
from tests.support.documents import (
    BROKEN,
    GOODWILL,
    NOVEMBER,
    OCTOBER,
    SEPTEMBER,
    an_invoice,
    of_credit_note,
    of_invoice,
)

DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
AMOUNTS = st.lists(st.integers(0, 10**14).map(Nano), min_size=1, max_size=6)
CREDITS = st.lists(st.integers(1, 10**14).map(Nano), max_size=4)


def named(row: Row) -> dict[str, Value]:
    return dict(zip(NAMES, row, strict=True))


def rows_of(facts: DocumentFacts) -> list[dict[str, Value]]:
    return [named(row) for row in document_rows(facts, seller="Neocloud Ltd")]


def billed(rows: list[dict[str, Value]]) -> int:
    return sum(cost for row in rows if isinstance(cost := row["BilledCost"], int))


@given(amounts=AMOUNTS, left=CREDITS, rate=st.integers(0, TAX_RATE_MAX), unused=st.integers(0, 10**15))
def test_the_rows_of_an_invoice_and_its_charges_sum_to_the_printed_total(
    amounts: list[Nano], left: list[Nano], rate: int, unused: int
) -> None:
    given = tuple(
        replace(GOODWILL, id=UUID(int=place), left_nano=amount) for place, amount in enumerate(left)
    )
    usable = min(unused, sum(left))  # A correction may have taken a part back.
    invoice, lines = an_invoice(amounts, given, rate=rate, unused=usable)
    rows = rows_of(of_invoice(invoice, lines))
    assert usd(Nano(sum(amounts))) + billed(rows) == usd(Nano(invoice.total_cents * NANO_PER_CENT))
    credited = [row for row in rows if row["ChargeCategory"] == "Credit"]
    assert billed(credited) == usd(Nano(-invoice.credits_nano))
    assert sum(line.amount_nano for line in lines if line.credit_id is not None) == -invoice.credits_nano


@given(
    amounts=AMOUNTS,
    left=CREDITS,
    rate=st.integers(0, TAX_RATE_MAX),
    part=st.one_of(st.none(), st.integers(1, 10**6)),
)
def test_the_rows_of_a_credit_note_sum_to_what_it_takes_off_the_invoice(
    amounts: list[Nano], left: list[Nano], rate: int, part: int | None
) -> None:
    given = tuple(
        replace(GOODWILL, id=UUID(int=place), left_nano=amount) for place, amount in enumerate(left)
    )
    invoice, lines = an_invoice(amounts, given, rate=rate)
    creditable = [line for line in lines if line.kind is LineKind.USAGE and line.cents]
    if not creditable:
        return
    asked = None if part is None else [LineToCredit(creditable[0].number, min(part, creditable[0].cents))]
    facts, total = of_credit_note(invoice, lines, asked)
    rows = rows_of(facts)
    assert billed(rows) == -usd(Nano(total * NANO_PER_CENT))
    assert {(row["ChargeClass"], row["InvoiceId"]) for row in rows} == {("Correction", "CN-2026-000001")}
    assert {row["x_CorrectsInvoiceId"] for row in rows} == {"INV-2026-000001"}


def test_a_credit_names_what_it_was_given_for_and_tax_and_rounding_stand_apart() -> None:
    invoice, lines = an_invoice([Nano(2_490_000_004)], (BROKEN, GOODWILL))
    rows = {str(row["x_ChargeId"]).partition("/")[2]: row for row in rows_of(of_invoice(invoice, lines))}
    broken, goodwill, rounding, tax = (rows[part] for part in ("2", "3", "4", "tax"))
    assert [row["ChargeCategory"] for row in (broken, goodwill, rounding, tax)] == [
        "Credit",
        "Credit",
        "Adjustment",
        "Tax",
    ]
    assert broken["BilledCost"] == usd(Nano(-1_000_000_001))
    assert broken["ChargeDescription"] == f"Credit used by INV-2026-000001: {BROKEN.reason}"
    assert (broken["ResourceId"], broken["ResourceName"], broken["ResourceType"]) == (
        "le_0000000000000000000000000000000d",
        "train-1",
        "GPU Lease",
    )
    assert (broken["SubAccountName"], broken["SubAccountType"]) == ("research", "Project")
    # The promise was broken in September, which had been invoiced.
    assert (broken["ChargePeriodStart"], broken["ChargePeriodEnd"]) == (SEPTEMBER, OCTOBER)
    assert (broken["BillingPeriodStart"], broken["ChargeClass"]) == (OCTOBER, "Correction")
    assert (goodwill["ChargePeriodStart"], goodwill["ChargeClass"]) == (OCTOBER, None)
    assert goodwill["ResourceId"] is goodwill["SubAccountId"] is None
    assert rounding["BilledCost"] == usd(invoice.adjustment_nano)
    assert tax["BilledCost"] == usd(Nano(invoice.tax_cents * NANO_PER_CENT))
    assert tax["ChargeDescription"] == "Tax of 19 % on INV-2026-000001"


def test_a_credit_note_corrects_the_usage_of_the_invoices_month_and_its_tax_and_gives_credit_back() -> None:
    invoice, lines = an_invoice([Nano(2_490_000_004)], (GOODWILL,))
    facts, _ = of_credit_note(invoice, lines, None)
    usage, credit, tax = _by_category(facts, "Usage", "Credit", "Tax")
    assert usage["BilledCost"] == usd(Nano(-2_490_000_000))
    assert (usage["SkuId"], usage["SkuPriceId"], usage["SkuMeter"]) == (
        "h100x1",
        "h100x1/on_demand/bronze",
        "GPU Time",
    )
    assert usage["x_CorrectsInvoiceLine"] == "1"
    assert usage["ChargeDescription"] == "CN-2026-000001 corrects line 1 of INV-2026-000001: ticket 4712"
    assert (usage["ChargePeriodStart"], usage["BillingPeriodStart"]) == (OCTOBER, NOVEMBER)
    assert usage["BillingPeriodEnd"] == DECEMBER
    assert credit["BilledCost"] == usd(GOODWILL.left_nano)
    assert tax["BilledCost"] == -usd(Nano(invoice.tax_cents * NANO_PER_CENT))


def _by_category(facts: DocumentFacts, *categories: str) -> list[dict[str, Value]]:
    rows = rows_of(facts)
    return [next(row for row in rows if row["ChargeCategory"] == category) for category in categories]


def test_at_list_prices_the_tax_is_that_on_list_prices() -> None:
    invoice, lines = an_invoice([Nano(2_000_000_000)])
    (tax,) = rows_of(of_invoice(invoice, lines, list_nano=3_000_000_000))
    assert (tax["BilledCost"], tax["ListCost"]) == (usd(Nano(380_000_000)), usd(Nano(570_000_000)))
    assert tax["ContractedCost"] == tax["EffectiveCost"] == tax["BilledCost"]


def test_an_invoice_without_tax_credits_and_rounding_has_no_rows_beside_its_charges() -> None:
    invoice, lines = an_invoice([Nano(2_490_000_000)], rate=0)
    assert rows_of(of_invoice(invoice, lines)) == []


def test_a_document_whose_lines_do_not_come_to_its_total_has_no_rows() -> None:
    invoice, lines = an_invoice([Nano(2_490_000_004)], (GOODWILL,))
    facts = of_invoice(invoice, lines)
    with pytest.raises(DocumentDiffersError, match="lack 10000000 nano-USD"):
        document_rows(replace(facts, total_cents=facts.total_cents + 1), seller="Neocloud Ltd")
    note, _ = of_credit_note(invoice, lines, None)
    with pytest.raises(DocumentDiffersError):
        document_rows(replace(note, total_cents=note.total_cents - 1), seller="Neocloud Ltd")


def test_every_row_is_of_the_types_of_its_columns_and_tax_names_no_sku_or_price() -> None:
    types = {Kind.TEXT: str, Kind.JSON: str, Kind.DECIMAL: int, Kind.TIME: datetime}
    invoice, lines = an_invoice([Nano(2_490_000_004)], (BROKEN, GOODWILL))
    note, _ = of_credit_note(invoice, lines, None)
    for facts in (of_invoice(invoice, lines), note):
        rows = document_rows(facts, seller="Neocloud Ltd")
        assert rows == sorted(rows, key=key)
        for row in rows:
            for column, value in zip(COLUMNS, row, strict=True):
                assert value is None or isinstance(value, types[column.kind]), column.name
                assert value is not None or column.nullable, column.name
                assert value != "", column.name
            said = named(row)
            assert said["PricingQuantity"] is said["ConsumedQuantity"] is said["ListUnitPrice"] is None
            if said["ChargeCategory"] == "Tax":
                assert (
                    said["SkuId"] is said["SkuPriceId"] is said["SkuMeter"] is said["PricingCategory"] is None
                )
