"""Rows become files, and files a manifest: the same rows, the same bytes."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from control_plane.domain import focus
from control_plane.domain.focus import COLUMNS, NAMES, Kind, Row
from control_plane.domain.money import Nano
from control_plane.exports.csv_file import CsvEncoder
from control_plane.exports.encoder import Encoder
from control_plane.exports.manifest import Described, ExportedFile, digest, manifest
from control_plane.exports.parquet_file import ParquetEncoder
from control_plane.exports.totals import Totals
from tests.support.charges import FACTS, SELLER, lease_charges, usage_row

AWKWARD = replace(
    FACTS,
    lease='a "quoted", name\r\nof two lines',
    labels={"team": "Zürich"},
    nano_per_unit_hour=Nano(2**63 - 1),
    amount_nano=Nano(2**63 - 1),
)
ROWS = [
    usage_row(charge, seller=SELLER)
    for charge in (*lease_charges([1_000, 3_600, 7_200]), AWKWARD, replace(FACTS, lease=None))
]


def encoded(encoder: Encoder, rows: Sequence[Row] = ROWS, *, batch: int = 2) -> bytes:
    def parts() -> Iterator[bytes]:
        yield encoder.begin()
        for start in range(0, len(rows), batch):
            yield encoder.encode(rows[start : start + batch])
        yield encoder.end()

    return b"".join(parts())


def texts(row: Row) -> list[str]:
    """The values of a row as CSV has them, written down a second time."""
    found = []
    for column, value in zip(COLUMNS, row, strict=True):
        if value is None:
            found.append("")
        elif column.kind is Kind.DECIMAL:
            assert isinstance(value, int)
            digits = f"{value:013d}"
            found.append(f"{digits[:-12]}.{digits[-12:]}")
        elif isinstance(value, datetime):
            found.append(value.strftime("%Y-%m-%dT%H:%M:%SZ"))
        else:
            assert isinstance(value, str)
            found.append(value)
    return found


def test_a_csv_reader_reads_the_values_that_were_written() -> None:
    content = encoded(CsvEncoder())
    assert list(csv.reader(io.StringIO(content.decode(), newline=""))) == [list(NAMES), *map(texts, ROWS)]
    assert content.startswith(b"AvailabilityZone,BilledCost,")
    assert content.endswith(b"\r\n")


def test_parquet_has_the_values_of_the_csv() -> None:
    table = pq.read_table(io.BytesIO(encoded(ParquetEncoder())))
    assert table.column_names == list(NAMES)
    found = [
        [
            ""
            if value is None
            else f"{value:.12f}"
            if column.kind is Kind.DECIMAL
            else value.strftime("%Y-%m-%dT%H:%M:%SZ")
            if column.kind is Kind.TIME
            else value
            for column, value in zip(COLUMNS, row.values(), strict=True)
        ]
        for row in table.to_pylist()
    ]
    assert found == list(map(texts, ROWS))


@pytest.mark.parametrize("kind", [CsvEncoder, ParquetEncoder])
def test_the_same_rows_give_the_same_bytes(kind: type[CsvEncoder | ParquetEncoder]) -> None:
    assert encoded(kind()) == encoded(kind())


@pytest.mark.parametrize("kind", [CsvEncoder, ParquetEncoder])
def test_an_export_without_rows_is_a_file_with_columns(kind: type[CsvEncoder | ParquetEncoder]) -> None:
    content = encoded(kind(), [])
    if kind is CsvEncoder:
        assert content.decode() == ",".join(NAMES) + "\r\n"
    else:
        assert pq.read_table(io.BytesIO(content)).num_rows == 0


def test_the_bytes_of_a_batch_leave_with_it_so_that_memory_holds_one_batch() -> None:
    encoder = ParquetEncoder()
    encoder.begin()
    sizes = [len(encoder.encode(ROWS)) for _ in range(3)]
    assert min(sizes) > 1_000
    assert max(sizes) < 2 * min(sizes)


def totals(rows: Sequence[Row] = ROWS[:3]) -> Totals:
    found = Totals()
    for row in rows:
        found.add([row])
    return found


DESCRIBED = Described(
    run="exp_1",
    covers="all",
    period="2026-10",
    since=datetime(2026, 10, 1, tzinfo=UTC),
    until=datetime(2026, 11, 1, tzinfo=UTC),
    final=True,
    cut_at=datetime(2026, 11, 4, 0, 0, 0, 5, tzinfo=UTC),
    created_at=datetime(2026, 11, 4, 0, 5, tzinfo=UTC),
    price_books=[3, 1],
    previous=("exp_0", bytes(32)),
)


def test_a_manifest_states_rows_sums_checksums_price_books_and_the_run_before() -> None:
    content = encoded(CsvEncoder(), ROWS[:3])
    file = ExportedFile("focus-1.2.csv", len(content), digest(content), totals())
    said = json.loads(manifest(DESCRIBED, [file]))
    assert said["rows"] == 3
    assert said["sums"]["BilledCost"] == "39.840000000000"
    assert said["sums"]["ConsumedQuantity"] == "57600.000000000000"
    assert said["files"] == [
        {"name": "focus-1.2.csv", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    ]
    assert said["price_books"] == ["v1", "v3"]
    assert said["previous"] == {"run": "exp_0", "manifest_sha256": "00" * 32}
    assert (said["status"], said["period"], said["covers"]) == ("final", "2026-10", "all")
    assert said["cut_at"] == "2026-11-04T00:00:00.000005Z"
    assert [column["name"] for column in said["columns"]] == list(NAMES)
    assert set(said["sums"]) == set(focus.SUMMED)


def test_an_export_of_an_open_period_says_that_it_is_provisional() -> None:
    file = ExportedFile("focus-1.2.csv", 1, bytes(32), totals())
    said = json.loads(manifest(replace(DESCRIBED, final=False, previous=None), [file]))
    assert (said["status"], said["previous"]) == ("provisional", None)


def test_files_with_different_rows_have_no_manifest() -> None:
    files = [
        ExportedFile(name, 1, bytes(32), totals(rows)) for name, rows in (("a", ROWS[:3]), ("b", ROWS[:2]))
    ]
    with pytest.raises(ValueError, match="do not hold the same rows"):
        manifest(DESCRIBED, files)
