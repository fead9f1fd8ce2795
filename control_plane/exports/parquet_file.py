"""Rows as Parquet: decimal128(38, 12), UTC timestamps in microseconds, text and JSON as strings.

The version of the writer is a part of the file, and so are its defaults, which is why pyarrow is pinned to one major
version and every setting that shapes the file is written here.
"""

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from control_plane.domain.focus import COLUMNS, DECIMAL_PLACES, Column, Kind

_BYTES_PER_DECIMAL = 16
_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.JSON: pa.string(),
    Kind.DECIMAL: pa.decimal128(38, DECIMAL_PLACES),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.INTEGER: pa.int64(),
    Kind.FLAG: pa.bool_(),
}


class ParquetEncoder:
    """Every batch becomes a row group. The rows are those of exports, unless other columns are named."""

    def __init__(self, columns: Sequence[Column] = COLUMNS) -> None:
        self._columns = columns
        self._schema = pa.schema(
            [pa.field(column.name, _TYPES[column.kind], column.nullable) for column in columns]
        )
        self._file = _Collected()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, mode="w"),
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=3,
            use_dictionary=True,
            write_statistics=True,
        )

    def begin(self) -> bytes:
        return self._file.take()

    def encode(self, rows: Sequence[tuple[object, ...]]) -> bytes:
        if rows:
            columns = zip(self._columns, zip(*rows, strict=True), strict=True)
            arrays = [_array(column, values) for column, values in columns]
            self._writer.write_table(
                pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=len(rows)
            )
        return self._file.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._file.take()


class _Collected(io.RawIOBase):
    """A file that is only written, whose bytes are taken away as they come: memory holds one row group."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def _array(column: Column, values: Sequence[Any]) -> Any:
    if values.count(values[0]) == len(values):
        return pa.repeat(_array_of(column, values[:1])[0], len(values))
    return _array_of(column, values)


def _array_of(column: Column, values: Sequence[Any]) -> Any:
    if column.kind is Kind.DECIMAL:
        return _decimals(values)
    return pa.array(values, type=_TYPES[column.kind])


def _decimals(values: Sequence[int | None]) -> Any:
    """The integers are the decimals' own representation, so none is converted, and none loses a digit."""
    nulls = [value is None for value in values]
    if all(nulls):
        return pa.nulls(len(values), _TYPES[Kind.DECIMAL])
    data = b"".join((value or 0).to_bytes(_BYTES_PER_DECIMAL, "little", signed=True) for value in values)
    valid = pa.array([not null for null in nulls]).buffers()[1] if any(nulls) else None
    return pa.Array.from_buffers(_TYPES[Kind.DECIMAL], len(values), [valid, pa.py_buffer(data)])
