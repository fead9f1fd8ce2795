"""The official FOCUS validator accepts our exports, wherever it is built."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from control_plane.domain.focus import NAMES
from control_plane.domain.focus_documents import document_rows
from control_plane.domain.money import Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import CapacityShape
from control_plane.exports.csv_file import CsvEncoder
from tests.support import focus_validator
from tests.support.charges import FACTS, SELLER, lease_charges, usage_row
from tests.support.documents import BROKEN, GOODWILL, an_invoice, of_credit_note, of_invoice

RULES_PASSED_MIN = 290
"""It leaves out rules silently, so that a file may pass because hardly anything was checked."""


@pytest.mark.skipif(focus_validator.missing() is not None, reason=str(focus_validator.missing()))
def test_the_official_validator_finds_no_fault_in_an_export(tmp_path: Path) -> None:
    charges = [
        *lease_charges([1_000, 3_600, 7_200], list_price=Nano(2_790_000_000)),
        *lease_charges([1_800], gpu_count=0, price=Nano(0)),
        replace(FACTS, purchase=PurchaseKind.SPOT, stopped=True, lease=None, labels={}),
        replace(FACTS, capacity=CapacityShape.BAREMETAL, sku="h100-sxm.8x-metal"),
        *(
            replace(FACTS, id=UUID(int=77 + unused), purchase=PurchaseKind.COMMITTED, unused=unused)
            for unused in (False, True)
        ),
    ]
    encoder, file = CsvEncoder(), tmp_path / "focus-1.2.csv"
    # Rows of an invoiced month. The validator accepts a file in which all rows have an InvoiceId or none has one.
    rows = [usage_row(replace(charge, invoice="INV-2026-000001"), seller=SELLER) for charge in charges]
    # Its credits, rounding and tax, and a credit note over all of it.
    invoice, lines = an_invoice([Nano(2_490_000_004)], (BROKEN, GOODWILL))
    note, _ = of_credit_note(invoice, lines, None)
    for document in (of_invoice(invoice, lines), note):
        rows += document_rows(document, seller=SELLER)
    assert {row[NAMES.index("ChargeCategory")] for row in rows} == {"Usage", "Credit", "Adjustment", "Tax"}
    file.write_bytes(encoder.begin() + encoder.encode(rows) + encoder.end())
    passed, failed = focus_validator.judge(file, tmp_path / "work")
    assert failed == set()
    assert passed >= RULES_PASSED_MIN
