"""A supplier's invoice of a month, as a CSV file that finance imports: a line for each time of a machine."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.money import NANO_MAX, NANO_PER_USD, Nano, parse_usd
from control_plane.domain.period import month_after, month_text
from control_plane.domain.refusal import RefusalCode, Refused

HEADER = ("machine", "from", "to", "quantity", "unit", "amount", "currency")
CURRENCY = "USD"
SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
"""The units of time, in the singular; a line may have any other unit, such as GB."""
_TEXT = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")


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


class _BadLineError(ValueError):
    pass


def parse(rows: Iterable[tuple[int, Sequence[str]]], month: datetime) -> tuple[SupplierLine, ...] | Refused:
    """The lines of a supplier's invoice of a month: all of them, or the reason why the first wrong one is wrong.

    `rows` are the fields of each line of the file with its number, the header first. Refused for another header or
    currency, a value that cannot be read, a time outside the month, and a file without lines.
    """
    number, header = next(iter(rows := iter(rows)), (1, ()))
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
    if not lines:
        return invalid(number + 1, "is missing: an invoice has a line at least")
    if sum(abs(line.amount_nano) for line in lines) > NANO_MAX:
        return invalid(number, "makes the total too large")
    return tuple(lines)


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


def seconds_of(lines: Sequence[SupplierLine]) -> int | None:
    """The whole seconds that lines bill together, rounded; None when one of them bills no time."""
    found = list(_seconds(lines))
    return None if None in found else (sum(filter(None, found)) + NANO_PER_USD // 2) // NANO_PER_USD


def _seconds(lines: Sequence[SupplierLine]) -> Iterator[int | None]:
    for line in lines:
        yield line.seconds_nano
