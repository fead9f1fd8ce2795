"""Raw rows for tests: what a table holds, read by attribute, without the product's types."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import TextClause

from control_plane.db.connection import Connection


async def rows(connection: Connection, statement: TextClause, **values: object) -> Sequence[Any]:
    return (await connection.execute(statement, values)).all()
