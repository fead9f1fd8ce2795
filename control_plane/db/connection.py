"""What a query needs of a connection, whichever pool it came from.

SQLAlchemy's connections and the fast ones of `fast.py` both fit. Query modules, services and outcomes name
this protocol and no driver.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import TextClause


class Rows(Protocol):
    """The outcome of a statement."""

    @property
    def rowcount(self) -> int:
        """Rows written, or read."""
        ...

    def all(self) -> Sequence[Any]: ...


class Connection(Protocol):
    """An open connection; in a transaction when it came from `Database.transaction`."""

    async def execute(
        self, statement: TextClause, parameters: Mapping[str, Any] | None = None, /
    ) -> Rows: ...
