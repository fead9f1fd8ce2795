"""A supplier's invoice of a month, as a CSV file that finance imports: a line for each time of a machine.

The file is uploaded in parts of whole lines, and each part is read by itself. Nothing counts before all of them are
there. What an invoice comes to is posted once somebody accepts it, and another one of the same month posts what it
differs by.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.money import NANO_MAX, NANO_PER_USD, NOTHING, Nano, parse_usd
from control_plane.domain.period import month_after, month_text
from control_plane.domain.refusal import RefusalCode, Refused

HEADER = ("machine", "from", "to", "quantity", "unit", "amount", "currency")
CURRENCY = "USD"
BYTES_MAX = 50_000_000
"""Of a file."""
LINES_MAX = 500_000
SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
"""The units of time, in the singular; a line may have any other unit, such as GB."""
_TEXT = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")


class SupplierEvent(StrEnum):
    """What somebody decided on a supplier's invoice."""

    POSTED = "posted"
    """It is right: it is a cost, and we owe it."""
    VOIDED = "voided"
    """It does not count any more, and what was posted of its month is taken back."""


@dataclass(frozen=True, slots=True)
class SupplierLine:
    machine: str
    """The supplier's reference of the machine."""
    since: datetime
    until: datetime
    quantity_nano: int
    """The quantity, in billionths of the unit."""
    unit: str
    amount_nano: Nano
    """Negative for a credit."""

    @property
    def seconds_nano(self) -> int | None:
        """The quantity in billionths of a second; None when its unit is not one of time."""
        seconds = SECONDS.get(self.unit.lower().removesuffix("s"))
        return None if seconds is None else self.quantity_nano * seconds


@dataclass(slots=True)
class BilledMachine:
    """What the lines of a machine come to."""

    lines: int = 0
    amount_nano: Nano = NOTHING
    _seconds_nano: int | None = 0

    def add(self, line: SupplierLine) -> None:
        self.lines += 1
        self.amount_nano = Nano(self.amount_nano + line.amount_nano)
        if self._seconds_nano is not None:
            seconds = line.seconds_nano
            self._seconds_nano = None if seconds is None else self._seconds_nano + seconds

    @property
    def seconds(self) -> int | None:
        """The whole seconds that the lines bill, rounded; None when one of them bills no time."""
        nano = self._seconds_nano
        return None if nano is None else (nano + NANO_PER_USD // 2) // NANO_PER_USD


class _BadLineError(ValueError):
    pass


def parse(
    rows: Iterable[tuple[int, Sequence[str]]], month: datetime, *, first: bool
) -> tuple[SupplierLine, ...] | Refused:
    """The lines of a part of a supplier's invoice, or the reason why the first wrong one is wrong.

    `rows` are the fields of each line with its number in the file. The `first` part begins with the header. Refused for
    another header or currency, a value that cannot be read, and a time outside the month.
    """
    rows = iter(rows)
    if first:
        number, header = next(rows, (1, ()))
        if tuple(header) != HEADER:
            return invalid(number, f"must be the header {','.join(HEADER)}")
    lines: list[SupplierLine] = []
    for number, fields in rows:
        if len(fields) != len(HEADER):
            return invalid(number, f"has {len(fields)} fields instead of {len(HEADER)}")
        if fields[-1] != CURRENCY:
            why = f"Line {number} is in another currency than {CURRENCY}."
            return Refused(RefusalCode.CURRENCY_NOT_SUPPORTED, why)
        try:
            lines.append(_line(fields, month))
        except _BadLineError as error:
            return invalid(number, str(error))
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part of a file, as it was read."""

    number: int
    """From 1."""
    first_line: int
    """The number of its first line in the file."""
    lines: int
    """Of the file, with the header."""
    size: int
    """In bytes."""
    amount_nano: Nano
    """The sum of its amounts without their signs."""


def size_refusal(parts: Sequence[UploadedPart]) -> Refused | None:
    """Why a file that has these parts so far is not taken: it is too large, or its amounts are."""
    if sum(part.size for part in parts) > BYTES_MAX or sum(part.lines for part in parts) > LINES_MAX:
        why = f"A file has at most {LINES_MAX:,} lines and {BYTES_MAX // 1_000_000} MB."
        return Refused(RefusalCode.SUPPLIER_INVOICE_INVALID, why)
    if sum(part.amount_nano for part in parts) > NANO_MAX:
        return Refused(RefusalCode.SUPPLIER_INVOICE_INVALID, "The amounts of the file are too large.")
    return None


def upload_refusal(parts: Sequence[UploadedPart], count: int) -> Refused | None:
    """Why parts, in their order, are no whole file of `count` parts."""
    line = 1
    for number, part in enumerate(parts, start=1):
        if part.number != number or part.first_line != line:
            why = f"Part {number} has to begin with line {line} of the file."
            return Refused(RefusalCode.UPLOAD_INCOMPLETE, why)
        line += part.lines
    if len(parts) != count:
        return Refused(RefusalCode.UPLOAD_INCOMPLETE, f"{len(parts)} of {count} parts are there.")
    if line <= 2:
        return invalid(line, "is missing: an invoice has a line at least")
    return None


def invalid(number: int, why: str) -> Refused:
    """The refusal of a file because of one of its lines."""
    return Refused(RefusalCode.SUPPLIER_INVOICE_INVALID, f"Line {number} of the file {why}.")


def _line(fields: Sequence[str], month: datetime) -> SupplierLine:
    machine, since, until, quantity, unit, amount, _ = fields
    if not _TEXT.fullmatch(machine) or not _TEXT.fullmatch(unit):
        raise _BadLineError("has no machine or no unit, or one with other characters than printable ASCII")
    begin, end = _moment(since), _moment(until)
    if not month <= begin <= end <= month_after(month):
        raise _BadLineError(f"is not a time within {month_text(month)}")
    if quantity.startswith("-"):
        raise _BadLineError("has a negative quantity")
    return SupplierLine(machine, begin, end, _decimal(quantity), unit, Nano(_decimal(amount)))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _BadLineError("has a time that is not like 2026-10-01T00:00:00Z")
    return moment


def _decimal(text: str) -> int:
    try:
        return parse_usd(text)
    except ValueError:
        raise _BadLineError(
            "has a quantity or an amount that is no decimal number with up to nine places"
        ) from None
