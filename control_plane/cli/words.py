"""How amounts, times and text from others are written on a terminal. Pure."""

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from control_plane.wire.common import Money

ID_DIGITS_MIN = 12
"""The digits of an id that are its time in milliseconds; fewer are rarely unique."""
_NANO_PER_USD = 1_000_000_000
_NANO_PER_CENT = 10_000_000
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control codes, invisible characters (among them those that reverse the reading direction), halves of a character,
and the separators of lines and paragraphs."""


def clean(value: Any) -> Any:
    """The same JSON with control characters made visible, and each text in one line.

    Names come from customers, sentences from providers, and readings from machines that we do not trust. None
    of them may move the cursor, change colours or set the title of the window.
    """
    if isinstance(value, str):
        return printable(value.replace("\n", " ").replace("\t", " "))
    if isinstance(value, list):
        return [clean(one) for one in value]
    if isinstance(value, dict):
        return {clean(key): clean(one) for key, one in value.items()}
    return value


def clean_lines(text: str) -> str:
    """Our own text that quotes others: its line breaks are kept."""
    return "\n".join(clean(line) for line in text.split("\n"))


def printable(text: str) -> str:
    """The text with every character replaced that would control a terminal; line breaks and tabs stay.

    All that this program prints passes here (`Terminal`), so that no command has to remember it.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text  # Most texts, and all JSON: looking at every character takes a hundred times as long.
    return "\r\n".join("".join(map(_visible, part)) for part in text.split("\r\n"))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _CONTROLS:
        return character
    return "\N{REPLACEMENT CHARACTER}"


# Time


def absolute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(length: timedelta) -> str:
    """A length of time in up to two units: `42 s`, `5 min`, `3 h 20 min`, `4 d 2 h`."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if minutes < 10 and seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def coarse(length: timedelta) -> str:
    """A length of time in one unit, for a column: `42 s`, `5 min`, `3 h`, `4 d`."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def ago(at: datetime, now: datetime) -> str:
    """`at` as seen from `now`. A difference of a few seconds between two clocks reads as just now."""
    length = now - at
    if length < timedelta(seconds=-5):
        return f"in {span(-length)}"
    if length < timedelta(seconds=1):
        return "just now"
    return f"{span(length)} ago"


def both(at: datetime | None, now: datetime) -> str | None:
    """A time, absolute and relative; None stays None."""
    return None if at is None else f"{absolute(at)}  ({ago(at, now)})"


# Money and quantities


def price(amount: Money | None) -> str:
    """An amount, exact, with at least two places; a dash when there is none."""
    return "-" if amount is None else _grouped(amount.nano)


def exact_usd(nano: int) -> str:
    """Nano-US-dollars in US dollars, exact, with at least two places."""
    return _grouped(nano)


def exact(text: str) -> str:
    """An exact amount of the API, with at least two places and no further zeros."""
    whole, _, places = text.partition(".")
    return f"{int(whole):,}.{places.rstrip('0').ljust(2, '0')}"


def rounded(amount: Money) -> str:
    """An amount to the cent."""
    return cents(amount.nano)


def cents(nano: int) -> str:
    """Nano-US-dollars rounded to the cent, half to even, for tables that people compare; not the exact amount."""
    return _grouped(_nearest_cent(nano) * _NANO_PER_CENT)


def adding_up(amounts: Sequence[Money]) -> list[int]:
    """The amounts in whole cents, as nano-US-dollars, which add up to their exact sum rounded to the cent.

    Each is within a cent of its exact amount: those with the largest remainders are rounded up (largest remainder
    method), of equal remainders the first ones.
    """
    parts = [divmod(amount.nano, _NANO_PER_CENT) for amount in amounts]
    up = _nearest_cent(sum(amount.nano for amount in amounts)) - sum(whole for whole, _ in parts)
    raised = frozenset(sorted(range(len(parts)), key=lambda index: -parts[index][1])[:up])
    return [(whole + (index in raised)) * _NANO_PER_CENT for index, (whole, _) in enumerate(parts)]


def _nearest_cent(nano: int) -> int:
    whole, rest = divmod(nano, _NANO_PER_CENT)
    half = _NANO_PER_CENT // 2
    return whole + (rest > half or (rest == half and whole % 2 == 1))


def _grouped(nano: int) -> str:
    """Exact, with at least two decimal places, without further trailing zeros, with thousands separators."""
    whole, rest = divmod(abs(nano), _NANO_PER_USD)
    places = f"{rest:09d}"
    return f"{'-' if nano < 0 else ''}{whole:,}.{places[:2]}{places[2:].rstrip('0')}"


def unit_hours(unit_seconds: int) -> str:
    """Hours of GPUs, or of machines, with four decimal places; the exact amount is in seconds."""
    parts = (unit_seconds * 10_000 + 1_800) // 3_600
    return f"{parts // 10_000:,}.{parts % 10_000:04d}"


# Words


def short_id(full: str, among: list[str]) -> str:
    """The shortest beginning of an id that is unique among the others, and not shorter than its time."""
    prefix, _, tail = full.partition("_")
    for length in range(ID_DIGITS_MIN, len(tail)):
        candidate = f"{prefix}_{tail[:length]}"
        if not any(other != full and other.startswith(candidate) for other in among):
            return candidate
    return full


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """The text with a full stop. It gets no capital letter, because it may begin with the name of a SKU."""
    text = text.strip()
    return text if not text or text[-1] in ".!?:" else f"{text}."


def spaced(code: str) -> str:
    """A stable code in words: `costs_more_than_sold` reads `costs more than sold`."""
    return code.replace("_", " ")
