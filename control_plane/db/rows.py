"""Converts between SQL rows and typed values; no other module maps columns to fields.

`read` turns rows into values of a dataclass by the names and type hints of its fields, so a query module
names a column once in its SQL and once in its dataclass. `Recordset` is the reverse: many values as one JSON
parameter, with the column list generated from the same hints.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Generic, NewType, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from sqlalchemy import TextClause

from control_plane.db.connection import Connection

Kind = TypeVar("Kind")
Made = TypeVar("Made")

_SQL_TYPES: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    str: "text",
    UUID: "uuid",
    datetime: "timestamptz",
}


async def read(
    connection: Connection, statement: TextClause, kind: type[Kind], /, **values: object
) -> list[Kind]:
    """Run a statement and read every row as a `kind`.

    `kind` is a dataclass whose fields are the columns, or the type of a single column.
    Raises msgspec.ValidationError when a column is missing or has another type: the query is wrong.
    """
    found = (await connection.execute(statement, values)).all()
    if is_dataclass(kind):
        return [convert(row, kind) for row in found]
    return [msgspec.convert(row[0], kind) for row in found]


def convert(row: object, kind: type[Kind]) -> Kind:
    """Read a row as a `kind`, for a query whose rows hold several values side by side."""
    return msgspec.convert(row, kind, from_attributes=True)


class Alike(Generic[Kind, Made]):
    """Reads rows most of which say what an earlier one said, but for their first columns.

    The first columns are the fields of the dataclass `own`, in their order, and have its values for each row. Then come
    `key`, the bytes of a record of all that rows may have in common (PostgreSQL's `record_send`), and `alike`, that
    record, which is null where an earlier row of the same statement has the same key. `make` gets it once for each
    different key, and what it made stands for it. `kept` is how many are kept from one statement to the next.
    """

    def __init__(self, own: type[Kind], make: Callable[[tuple[object, ...]], Made], *, kept: int) -> None:
        self._own = own
        self._make = make
        self._kept = kept
        self._made: dict[bytes, Made] = {}

    async def read(
        self, connection: Connection, statement: TextClause, /, **values: object
    ) -> list[tuple[Made, Kind]]:
        if len(self._made) > self._kept:
            self._made.clear()
        found = (await connection.execute(statement, values)).all()
        for row in found:
            if row.alike is not None and row.key not in self._made:
                self._made[row.key] = self._make(tuple(row.alike))
        return [(self._made[row.key], convert(row, self._own)) for row in found]


async def read_one(
    connection: Connection, statement: TextClause, kind: type[Kind], /, **values: object
) -> Kind | None:
    """The first row as a `kind`; None when there is no row."""
    found = await read(connection, statement, kind, **values)
    return found[0] if found else None


async def write(connection: Connection, statement: TextClause, /, **values: object) -> int:
    """Run a statement that returns no rows. Returns how many rows it wrote."""
    return (await connection.execute(statement, values)).rowcount


def document(value: object) -> str:
    """A value as JSON text, for one jsonb parameter."""
    return json.dumps(msgspec.to_builtins(value))


def from_document(content: bytes, kind: type[Kind]) -> Kind:
    """Read JSON text as a `kind`. Raises msgspec.ValidationError when it is something else."""
    return msgspec.json.decode(content, type=kind)


def readable(content: bytes, kind: type[Kind]) -> Kind | None:
    """Read JSON text that somebody outside decided upon; None when it is no `kind`."""
    try:
        return from_document(content, kind)
    except msgspec.ValidationError:
        return None


class Recordset(Generic[Kind]):
    """Many values of one dataclass as a single JSON parameter.

    >>> MOVES = Recordset(MachineMove, "moves")
    >>> f"UPDATE machines SET ... FROM {MOVES} AS w WHERE ..."
    >>> await write(connection, statement, moves=MOVES.document(moves))

    Its text is `jsonb_to_recordset(CAST(:moves AS jsonb)) AS moves(id uuid, ...)`. A field that is a
    sequence or a mapping becomes a jsonb column.
    """

    def __init__(self, kind: type[Kind], parameter: str) -> None:
        columns = ", ".join(f"{name} {_sql_type(hint)}" for name, hint in _hints(kind).items())
        self._text = f"jsonb_to_recordset(CAST(:{parameter} AS jsonb)) AS {parameter}({columns})"

    def __str__(self) -> str:
        return self._text

    @staticmethod
    def document(values: Sequence[Kind]) -> str:
        """The parameter's value: JSON text."""
        return msgspec.json.encode([*values]).decode()


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _sql_type(hint: Any) -> str:
    """PostgreSQL's type for a type hint."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not NoneType]
        if len(parts) != 1:
            raise TypeError(f"no column has the type {hint}")
        return _sql_type(parts[0])
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return "text"
    return _SQL_TYPES.get(hint, "jsonb")
