"""What a file contains, counted while it is written: rows, sums of columns, the first and the last time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from control_plane.domain.focus import NAMES, SUMMED, Row, Scaled

_PLACES = tuple((name, NAMES.index(name)) for name in SUMMED)


@dataclass(slots=True)
class Totals:
    rows: int = 0
    sums: dict[str, Scaled] = field(default_factory=lambda: dict.fromkeys(SUMMED, Scaled(0)))
    """Of each column of `focus.SUMMED`."""

    def add(self, rows: Sequence[Row]) -> None:
        self.rows += len(rows)
        for name, place in _PLACES:
            values = (row[place] for row in rows)
            self.sums[name] = Scaled(
                self.sums[name] + sum(value for value in values if isinstance(value, int))
            )
