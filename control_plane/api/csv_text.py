"""Lists as CSV, written while they are read, so that memory stays small however long they are."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from control_plane.wire import csv_lines

Row = TypeVar("Row")


async def stream(
    columns: Sequence[str],
    read: Callable[[Row | None], Awaitable[Sequence[Row]]],
    cells: Callable[[Row], Sequence[object]],
    *,
    rows_per_read: int,
) -> AsyncIterator[bytes]:
    """A header, and a line for each row. `read` answers up to `rows_per_read` rows behind the given one."""
    yield csv_lines.lines([columns]).encode()
    last: Row | None = None
    while True:
        rows = await read(last)
        if rows:
            yield csv_lines.lines(map(cells, rows)).encode()
            last = rows[-1]
        if len(rows) < rows_per_read:
            return


def utc(at: datetime | None) -> str:
    """A time in UTC to the second; empty for none."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def attachment(name: str) -> dict[str, str]:
    """The header with which a browser stores the answer as a file of this name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
