"""Reads the text format of Prometheus, tolerantly: a line that is none is skipped.

What is read was written by a customer's program. Only metrics that were asked for are kept, so its size is bounded by
what is read of it.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence

_LINE = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]{0,127})"
    r'[ \t]*(?:\{(?:[^"{}\n]|"(?:[^"\\\n]|\\.)*")*\})?'
    r"[ \t]+([+-]?[0-9.][0-9.eE+-]{0,31}|[+-]?Inf|NaN)(?:[ \t]|$)"
)

Samples = Mapping[str, Sequence[float]]
"""The values of the series of a metric, by the metric's name."""


def read(text: str, wanted: "Collection[str]") -> "dict[str, list[float]]":
    """The finite values of the wanted metrics, whatever labels they have."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name = re.split(r"[{ \t]", line, maxsplit=1)[0]
        if name not in wanted:
            continue
        matched = _LINE.match(line)
        if matched is None:
            continue
        try:
            value = float(matched[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found.setdefault(name, []).append(value)
    return found
