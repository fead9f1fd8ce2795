"""How amounts, times and foreign text read on a terminal. Pure."""

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

from control_plane.domain.money import Nano, parse_usd, usd


def clean(value: Any) -> Any:
    """The same JSON with control characters made visible.

    Names come from customers, sentences from providers and readings from machines that we do not
    trust; none of them may move the cursor, colour the screen or retitle the window.
    """
    if isinstance(value, str):
        return "".join(_visible(character) for character in value)
    if isinstance(value, list):
        return [clean(one) for one in value]
    if isinstance(value, dict):
        return {clean(key): clean(one) for key, one in value.items()}
    return value


def _visible(character: str) -> str:
    if character in "\n\t":
        return " "
    # Cc: control codes. Cf: among others the ones that reverse the reading direction.
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in ("Cc", "Cf") else character


def moment(text: str | None) -> datetime | None:
    """A time on the wire (RFC 3339) as a time."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def absolute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def span(length: timedelta) -> str:
    """A length of time in its largest unit that says enough: `42 s`, `5 min`, `3 h 20 min`, `4 d 2 h`."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10 and seconds:
        return f"{minutes} min {seconds} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def ago(at: datetime, now: datetime) -> str:
    """`at` as seen from `now`. A clock that runs ahead of the server's by a little reads as just now."""
    length = now - at
    if length < timedelta(seconds=-5):
        return f"in {span(-length)}"
    if length < timedelta(seconds=1):
        return "just now"
    return f"{span(length)} ago"


def both(at: datetime | None, now: datetime) -> str:
    """Relative for the eye, absolute for the record."""
    return "-" if at is None else f"{absolute(at)}  ({ago(at, now)})"


def money(amount: str | None) -> str:
    """An amount on the wire as a person compares it: cents, or more places where there is more to say."""
    if amount is None:
        return "-"
    return short_usd(parse_usd(amount))


def short_usd(amount: Nano) -> str:
    """At least two places, no trailing zeros behind them, nothing rounded away."""
    whole, _, places = usd(amount).partition(".")
    sign = "-" if whole.startswith("-") else ""
    return f"{sign}{int(whole.removeprefix('-')):,}.{places[:2]}{places[2:].rstrip('0')}"


def gpu_hours(gpu_seconds: int) -> str:
    """GPU-hours with four places, enough to see a third of a second's worth; the exact figure is in seconds."""
    tenths_of_milli = (gpu_seconds * 10_000 + 1_800) // 3_600
    return f"{tenths_of_milli // 10_000:,}.{tenths_of_milli % 10_000:04d}"


def short_id(full: str, among: list[str], *, digits_min: int = 12) -> str:
    """The shortest beginning of an id that names it among the others; never shorter than its timestamp."""
    prefix, _, tail = full.partition("_")
    length = digits_min
    while length < len(tail):
        candidate = f"{prefix}_{tail[:length]}"
        if sum(1 for other in among if other.startswith(candidate)) <= 1:
            return candidate
        length += 1
    return full


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """Words from the journal as a sentence: a capital, and a full stop."""
    text = text.strip()
    if not text:
        return text
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?:" else ".")


def spaced(code: str) -> str:
    """A stable code in words: `costs_more_than_sold` reads `costs more than sold`."""
    return code.replace("_", " ")
