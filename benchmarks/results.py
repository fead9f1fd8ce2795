"""The result of a benchmark: figures with units and aims, as JSON and as a table."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DIRECTORY = Path("var/bench")


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    aim: str = ""
    """What DESIGN asks for, with its direction: `>= 2000`."""
    note: str = ""
    """What the value has to be read with: an interval, what a formula says."""

    @property
    def reached(self) -> bool | None:
        direction, _, limit = self.aim.partition(" ")
        if not limit:
            return None
        return self.value >= float(limit) if direction == ">=" else self.value <= float(limit)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine() -> str:
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, {python}"


def publish(name: str, figures: Sequence[Figure]) -> None:
    """Write `var/bench/NAME.json` and print the table."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
    (DIRECTORY / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for figure in figures:
        verdict = {True: "reached", False: "missed", None: ""}[figure.reached]
        row = f"{figure.name:52} {figure.value:>12,.3f} {figure.unit:14} {figure.aim:10} {verdict:8} {figure.note}"
        print(row.rstrip())
