"""Money is a signed 64-bit integer of nano-US-dollars (1e-9 USD). No floats, anywhere.

Why nano: an hourly list price such as 2.49 USD does not divide into whole micro-dollars per
second, and the difference shows in a finance check (a month of one GPU rated per second in
micro-units is 86 cents off). Why totals: a charge is the difference of two accrued totals, so
however time is cut the parts add up to the whole.
"""

from typing import NewType

Nano = NewType("Nano", int)
"""Nano-US-dollars; positive or negative."""

NANO_PER_USD = 1_000_000_000
SECONDS_PER_HOUR = 3_600
NANO_MAX = 2**63 - 1


def accrued(nano_per_gpu_hour: Nano, gpu_seconds: int) -> Nano:
    """What `gpu_seconds` cost in total at this price, rounded once, half to even.

    Always bill `accrued(price, total_after) - accrued(price, total_before)`; never round a slice.
    """
    if nano_per_gpu_hour < 0 or gpu_seconds < 0:
        raise ValueError("a price and a duration are never negative")
    whole, rest = divmod(nano_per_gpu_hour * gpu_seconds, SECONDS_PER_HOUR)
    half = SECONDS_PER_HOUR // 2
    if rest > half or (rest == half and whole % 2 == 1):
        whole += 1
    return Nano(whole)


def usd(amount: Nano) -> str:
    """The exact amount as decimal text with nine places: `usd(2_490_000_000) == "2.490000000"`."""
    sign = "-" if amount < 0 else ""
    whole, rest = divmod(abs(amount), NANO_PER_USD)
    return f"{sign}{whole}.{rest:09d}"


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
