"""Reads the text format of Prometheus, tolerantly: a line that is none is skipped.

What is read was written by a customer's program, and by a hostile pod at worst. The agent has a tenth of a CPU and
256 MiB, and a pattern at work stops all of its threads. So only lines of metrics that were asked for are looked at, up
to a length and a number, and the patterns have one way through a line: 2 MiB take 0.2 s of CPU, whatever is in them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

LINE_MAX = 4096
"""Characters. A longer line is skipped; those of vLLM have about 100."""
LINES_MAX = 2000
"""Of the wanted metrics. Further ones are not read; vLLM has about 20 for each model."""
# Between braces: what is not quoted, and then, again and again, a quoted text and what is not quoted after it.
_REST = re.compile(
    r'[ \t]*(?:\{[^"{}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"{}]*)*\}[ \t]*)?'
    r"([+-]?[0-9.][0-9.eE+-]{0,31})(?:[ \t\r]|$)"
)
"""What follows the name of a metric: labels, and a value that is a number."""

Samples = Mapping[str, Sequence[float]]
"""The values of the series of a metric, by the metric's name."""


def read(text: str, wanted: "frozenset[str]") -> "dict[str, list[float]]":
    """The finite values of the wanted metrics, whatever labels they have."""
    found: dict[str, list[float]] = {}
    for number, line in enumerate(_lines(wanted).finditer(text)):
        if number == LINES_MAX:
            break
        rest = _REST.match(line[2])
        if rest is None:
            continue
        try:
            value = float(rest[1])
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(line[1], []).append(value)
    return found


@lru_cache(maxsize=4)
def _lines(wanted: "frozenset[str]") -> "re.Pattern[str]":
    names = "|".join(map(re.escape, sorted(wanted)))
    return re.compile(rf"^({names})([ \t{{][^\n]{{0,{LINE_MAX - 1}}})$", re.MULTILINE)
