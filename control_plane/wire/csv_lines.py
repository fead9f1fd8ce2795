"""Lines of CSV (RFC 4180) that a person opens in a spreadsheet: the API and the command line write all of theirs here.

Spreadsheets take a cell for a formula that begins with one of a few characters, and a formula may send what is beside
it elsewhere, or run a program. Customers and providers choose reasons, names and states. An apostrophe in front makes
such a cell a text. Numbers stay as they are, also where they are negative and given as text.
https://owasp.org/www-community/attacks/CSV_Injection (2026-11-24)

Exports in FOCUS are no such files: programs read them, and CSV and Parquet hold the same values (docs/exports.md).
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With what a formula begins. The last four are the full-width forms of the first four, which some versions take."""
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)


def cell(value: object) -> object:
    """A value that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value.startswith(FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def lines(rows: Iterable[Sequence[object]]) -> str:
    """The rows as text, each ended by CR and LF. None is an empty cell."""
    text = io.StringIO()
    csv.writer(text).writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
