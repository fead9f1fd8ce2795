"""Which lines of a lease's journal a reader has, so that it gets every line once, whenever each was committed.

A line gets its number when it is written, but others see it only after the commit, so a line with a lower number
can appear after one with a higher number. A reader that remembered the highest number would miss it. Therefore a
position says: every line of a transaction below the horizon, and of later transactions the lines in `seen`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

START = -(1 << 62)
"""Below every transaction. Lines of a restored database have negative ones: see `db/restored.py`."""
SEEN_MAX = 500
"""Numbers in a position. It holds those of lines that were written since the oldest open transaction began, so only a
transaction that stays open for very long could exceed this: until it ends, its readers wait for more lines."""
_HORIZONS = range(-(1 << 63), 1 << 63)
"""What PostgreSQL's bigint holds."""
_TEXT = re.compile(rf"(-?[0-9]{{1,19}})((?:\.[0-9]{{1,18}}){{0,{SEEN_MAX}}})", re.ASCII)


class Written(Protocol):
    """A line of the journal, as one statement read it."""

    @property
    def number(self) -> int: ...

    @property
    def transaction(self) -> int:
        """The transaction that wrote the line."""
        ...

    @property
    def settled(self) -> int:
        """No line after this one, visible or still uncommitted, is of a transaction below this."""
        ...


Line = TypeVar("Line", bound=Written)


@dataclass(frozen=True, slots=True)
class Position:
    horizon: int = START
    """The reader has every line of the transactions below this."""
    seen: tuple[int, ...] = ()
    """The numbers of the lines that it has of later transactions, in ascending order."""

    @property
    def room(self) -> int:
        """How many more lines the position can hold while the horizon stands still."""
        return SEEN_MAX - len(self.seen)

    def has(self, line: Written) -> bool:
        return line.transaction < self.horizon or line.number in self.seen

    def after(self, line: Written, transactions: Mapping[int, int]) -> "Position":
        """The position once the reader has this line, and all lines of its page before it.

        `transactions` has the transaction of each line of the page by its number.
        """
        horizon = max(self.horizon, line.settled)
        numbers = sorted({*self.seen, line.number})
        return Position(
            horizon, tuple(number for number in numbers if transactions.get(number, horizon) >= horizon)
        )

    def __str__(self) -> str:
        """The text for cursors and ids of events: the horizon, and the numbers as differences."""
        steps = [number - before for before, number in zip((0, *self.seen), self.seen, strict=False)]
        return ".".join(map(str, (self.horizon, *steps)))


def parse(text: str) -> Position | None:
    """The position in a text; None when it is not one."""
    match = _TEXT.fullmatch(text)
    if match is None or int(match[1]) not in _HORIZONS:
        return None
    seen, number = [], 0
    for step in match[2].split(".")[1:]:
        number += int(step)
        seen.append(number)
    return Position(int(match[1]), tuple(seen))


def _reads(position: Position, page: Sequence[Line]) -> Iterator[tuple[Line, bool, Position]]:
    """Each line of a page, whether the reader has it already, and the position behind it."""
    transactions = {line.number: line.transaction for line in page}
    for line in page:
        known = position.has(line)
        position = position.after(line, transactions)
        yield line, known, position


def unseen(position: Position, page: Sequence[Line]) -> list[tuple[Line, Position]]:
    """The lines that a reader at `position` lacks, each with the position once it has the line.

    `page` holds the first lines by number of all visible ones at or above a horizon that is not above the reader's.
    """
    return [(line, after) for line, known, after in _reads(position, page) if not known]


def behind(position: Position, page: Sequence[Line]) -> Position:
    """The position of a reader that has the whole page. The page may end with lines that it had before."""
    for _, _, after in _reads(position, page):
        position = after
    return position
