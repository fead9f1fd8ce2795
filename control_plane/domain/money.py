"""Money is a signed 64-bit integer of nano-US-dollars (1e-9 USD). No floats, anywhere.

Why nano: an hourly list price such as 2.49 USD does not divide into whole micro-dollars per
second, and the difference shows in a finance check (a month of one GPU rated per second in
micro-units is 86 cents off). Why totals: a charge is the difference of two accrued totals, so
however time is cut the parts add up to the whole.
"""

from collections.abc import Sequence
from typing import NewType

Nano = NewType("Nano", int)
"""Nano-US-dollars; positive or negative."""

NOTHING = Nano(0)
CURRENCY = "USD"
"""The only one, by ISO 4217."""
NANO_PER_USD = 1_000_000_000
SECONDS_PER_HOUR = 3_600
NANO_PER_CENT = 10_000_000
NANO_MAX = 2**63 - 1


def accrued(nano_per_unit_hour: Nano, unit_seconds: int) -> Nano:
    """What `unit_seconds` cost in total at this price, rounded once, half to even.

    Always bill `accrued(price, total_after) - accrued(price, total_before)`; never round a slice.
    """
    if nano_per_unit_hour < 0 or unit_seconds < 0:
        raise ValueError("a price and a duration are never negative")
    whole, rest = divmod(nano_per_unit_hour * unit_seconds, SECONDS_PER_HOUR)
    half = SECONDS_PER_HOUR // 2
    if rest > half or (rest == half and whole % 2 == 1):
        whole += 1
    return Nano(whole)


def affordable(nano_per_unit_hour: Nano, amount: Nano) -> int:
    """The most unit-seconds that cost at most `amount` at this price: the inverse of `accrued`.

    Raises ValueError for a price of zero, at which any time is affordable.
    """
    if nano_per_unit_hour <= 0 or amount < 0:
        raise ValueError("a price is positive, and an amount is never negative")
    # `accrued` rounds half to even: half a nano above an even amount is rounded down to it, above an odd one up.
    limit = (2 * amount + 1) * SECONDS_PER_HOUR - amount % 2
    return limit // (2 * nano_per_unit_hour)


def usd(amount: Nano) -> str:
    """The exact amount as decimal text with nine places: `usd(2_490_000_000) == "2.490000000"`."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), NANO_PER_USD)
    return f"{sign}{whole}.{rest:09d}"


def short_usd(amount: Nano) -> str:
    """The exact amount with as few places as it needs, and two at least: `short_usd(2_490_000_000) == "2.49"`."""
    whole, _, places = usd(amount).partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"


def dollars(amount: Nano) -> str:
    """The amount for a sentence: to the nearest cent, half to even, with thousands separators."""
    whole, rest = divmod(amount, NANO_PER_CENT)
    half = NANO_PER_CENT // 2
    return _cents(whole + (1 if rest > half or (rest == half and whole % 2 == 1) else 0))


def dollars_up(amount: Nano) -> str:
    """As `dollars`, rounded up: what is needed, beside what there is rounded down."""
    return _cents(-(-amount // NANO_PER_CENT))


def dollars_down(amount: Nano) -> str:
    """As `dollars`, rounded down: what there is, so that it never reads as enough when it is not."""
    return _cents(amount // NANO_PER_CENT)


def _cents(count: int) -> str:
    whole, rest = divmod(abs(count), 100)
    return f"{'-' if count < 0 else ''}{whole:,}.{rest:02d}"


def in_whole_cents(amounts: Sequence[Nano]) -> tuple[int, ...]:
    """The amounts in cents that add up to their exact sum, rounded down to a whole cent (largest remainder method).

    Each is within a cent of its exact amount. Of equal remainders, the first ones get the cents that are left.
    """
    parts = [divmod(amount, NANO_PER_CENT) for amount in amounts]
    left = sum(rest for _, rest in parts) // NANO_PER_CENT
    by_remainder = sorted(range(len(parts)), key=lambda index: -parts[index][1])
    raised = frozenset(by_remainder[:left])
    return tuple(whole + (index in raised) for index, (whole, _) in enumerate(parts))


def parse_usd(text: str) -> Nano:
    """The inverse of `usd`; up to nine decimal places, otherwise ValueError.

    >>> parse_usd("25")
    25000000000
    """
    sign = -1 if text.startswith("-") else 1
    whole, _, rest = text.removeprefix("-").partition(".")
    if not (whole.isascii() and whole.isdigit()) or (rest and not (rest.isascii() and rest.isdigit())):
        raise ValueError(f"not an amount in US dollars: {text!r}")
    if len(rest) > 9:
        raise ValueError(f"more than nine decimal places: {text!r}")
    amount = sign * (int(whole) * NANO_PER_USD + int(rest.ljust(9, "0")))
    if abs(amount) > NANO_MAX:
        raise ValueError(f"too large an amount: {text!r}")
    return Nano(amount)
