"""Opaque cursors: where the next page of a list starts.

A cursor contains the sort key of the last row, so that rows which are added or removed in between cause no
other row to be repeated or left out. It is validated and not signed, because all it can do is choose a
position in what the caller may read.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from control_plane.api.errors import ApiError
from control_plane.domain.position import Position, parse
from control_plane.wire.problems import FieldError

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="Rows per page.")]
Cursor = Annotated[
    str | None, QueryParameter(max_length=1_000, description="`next_cursor` of the previous page, unchanged.")
]
LongCursor = Annotated[
    str | None, QueryParameter(max_length=6_000, description="`next_cursor` of the previous page, unchanged.")
]

Row = TypeVar("Row")
Place = TypeVar("Place")

_MOMENT = re.compile(r"([a-z_]+):([0-9]{1,17}):([0-9a-f]{32})", re.ASCII)
_NUMBER = re.compile(r"([a-z_]+):([0-9]{1,18})", re.ASCII)
_NAMED = re.compile(r"([a-z_]+):([0-9]{1,9}):(.+)", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_MAX = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


def cut(rows: Sequence[Row], limit: int, cursor_of: Callable[[Row], str]) -> tuple[Sequence[Row], str | None]:
    """Cut a page out of `limit + 1` rows. Returns the page, and the cursor of the next one if there is one."""
    if len(rows) <= limit:
        return rows, None
    page = rows[:limit]
    return page, cursor_of(page[-1])


def window(
    kind: str, rows: Sequence[Row], name_of: Callable[[Row], str], *, limit: int, cursor: str | None
) -> tuple[Sequence[Row], str | None]:
    """A page of a list that is read whole, and the cursor of the next one if there is one.

    The cursor names the last row and its place: after a row that is gone, the next page begins at that place. It
    contains no sort key, because that may be a price which the caller may not see.
    """
    start = 0 if cursor is None else _after_name(kind, cursor, [name_of(row) for row in rows])
    page = rows[start : start + limit]
    following = start + limit
    if following >= len(rows):
        return page, None
    return page, _pack(f"{kind}:{following}:{name_of(page[-1])}")


def _after_name(kind: str, cursor: str, names: Sequence[str]) -> int:
    match = _NAMED.fullmatch(_unpack(cursor))
    if match is None or match[1] != kind:
        raise _invalid()
    return names.index(match[3]) + 1 if match[3] in names else int(match[2])


def after_moment(kind: str, at: datetime, row_id: UUID) -> str:
    return _pack(f"{kind}:{(at - _EPOCH) // timedelta(microseconds=1)}:{row_id.hex}")


def after_position(kind: str, reached: Position) -> str:
    return _pack(f"{kind}:{reached}")


def after_place(kind: str, place: object) -> str:
    return _pack(f"{kind}:{msgspec.json.encode(place).decode()}")


def place(kind: str, cursor: str | None, of: type[Place]) -> Place | None:
    """The place, such as a composite key, in a cursor of this kind; None for the first page."""
    if cursor is None:
        return None
    found_kind, _, text = _unpack(cursor).partition(":")
    try:
        parts = msgspec.json.decode(text, type=dict[str, str | None])
        found = msgspec.convert(parts, of)
    except (msgspec.MsgspecError, UnicodeError):
        raise _invalid() from None
    if found_kind != kind or "\0" in "".join(filter(None, parts.values())):  # PostgreSQL takes no NUL.
        raise _invalid()
    return found


def moment(kind: str, cursor: str | None) -> tuple[datetime, UUID] | None:
    """The time and id in a cursor of this kind; None for the first page."""
    if cursor is None:
        return None
    match = _MOMENT.fullmatch(_unpack(cursor))
    if match is None or match[1] != kind or int(match[2]) > _MICROSECONDS_MAX:
        raise _invalid()
    return _EPOCH + timedelta(microseconds=int(match[2])), UUID(hex=match[3])


def after_number(kind: str, number: int) -> str:
    return _pack(f"{kind}:{number}")


def number(kind: str, cursor: str | None) -> int | None:
    """The number in a cursor of this kind; None for the first page."""
    if cursor is None:
        return None
    match = _NUMBER.fullmatch(_unpack(cursor))
    if match is None or match[1] != kind:
        raise _invalid()
    return int(match[2])


def position(kind: str, cursor: str | None) -> Position:
    """The position in a cursor of this kind; the beginning for the first page."""
    if cursor is None:
        return Position()
    found_kind, _, text = _unpack(cursor).partition(":")
    found = parse(text)
    if found is None or found_kind != kind:
        raise _invalid()
    return found


def _pack(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _unpack(cursor: str) -> str:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise _invalid() from error
    if _pack(text) != cursor:
        raise _invalid()
    return text


def _invalid() -> ApiError:
    why = "is not a cursor of this list"
    return ApiError("invalid_cursor", f"`cursor` {why}.", errors=[FieldError("cursor", why)])


def instant(name: str, text: str | None) -> datetime | None:
    """Read a query parameter that is a time: RFC 3339 with an offset, in the years 2000 to 2200."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and 2000 <= at.year <= 2200:
            return at.astimezone(UTC)
    except ValueError:
        pass  # Refused below, like a time without an offset.
    why = "is not a time such as 2026-11-01T00:00:00Z"
    raise ApiError("invalid_parameter", f"`{name}` {why}.", errors=[FieldError(name, why)])
