"""The part of a connection that queries use, whichever pool the connection came from.

The connections of `fast.py` fit this protocol, and so do SQLAlchemy's. Query modules, services and
outcomes name it, and never a driver. Rows are `Any` only here and in `fast.py`, because their types are the
driver's; `rows.read` converts them to typed values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import TextClause


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows written or read."""
        ...

    def all(self) -> Sequence[Any]: ...


class Connection(Protocol):
    """An open connection; in a transaction when it came from `Database.transaction`."""

    async def execute(
        self, statement: TextClause, parameters: Mapping[str, Any] | None = None, /
    ) -> Rows: ...
