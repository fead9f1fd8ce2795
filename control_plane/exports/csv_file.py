"""An export as CSV (RFC 4180): UTF-8 without a byte order mark, CRLF, a header line; null is an empty field."""

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from control_plane.domain.focus import COLUMNS, NAMES, Kind, Row, decimal_text, time_text

_DECIMALS = tuple(place for place, column in enumerate(COLUMNS) if column.kind is Kind.DECIMAL)
_TIMES = tuple(place for place, column in enumerate(COLUMNS) if column.kind is Kind.TIME)


class CsvEncoder:
    def begin(self) -> bytes:
        return _lines([NAMES])

    def encode(self, rows: Sequence[Row]) -> bytes:
        return _lines([_cells(row) for row in rows])

    def end(self) -> bytes:
        return b""


def _cells(row: Row) -> list[object]:
    cells: list[object] = list(row)
    for place in _DECIMALS:
        value = row[place]
        if isinstance(value, int):
            cells[place] = _decimal(value)
    for place in _TIMES:
        value = row[place]
        if isinstance(value, datetime):
            cells[place] = _time(value)
    return cells


_time = lru_cache(maxsize=4_096)(time_text)
_decimal = lru_cache(maxsize=16_384)(decimal_text)
"""Most rows of a batch begin and end at full hours, have one of a few prices, and several costs that are equal."""


def _lines(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
