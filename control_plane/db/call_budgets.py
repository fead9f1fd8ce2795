"""The turns of calls to providers that all replicas share, a row per bucket."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, write
from control_plane.domain.call_budget import Bucket
from control_plane.domain.ids import AccountName


@dataclass(frozen=True, slots=True)
class Terms:
    """Which bucket, and the published limit that it keeps."""

    account: AccountName
    bucket: str
    calls: int
    seconds: float
    burst: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow(Bucket):
    """A bucket as it is stored, with the limit that it keeps."""

    account: AccountName
    bucket: str
    calls: int
    seconds: float
    burst: int | None


_TERMS = Recordset(Terms, "terms")
_ROWS = Recordset(BucketRow, "rows")
_COLUMNS = [field.name for field in fields(BucketRow)]
_STATE = [field.name for field in fields(Bucket)]

_ADD = text(f"""
INSERT INTO call_budgets (account, bucket, calls, seconds, burst, free_at)
SELECT account, bucket, calls, seconds, burst, :now FROM {_TERMS}
ON CONFLICT (account, bucket) DO UPDATE
  SET calls = excluded.calls, seconds = excluded.seconds, burst = excluded.burst
""")
# In one order, so that calls that need several buckets wait for one another and never in a circle.
_LOCK = text(f"""
SELECT {", ".join(f"b.{name}" for name in _COLUMNS)}
FROM call_budgets b JOIN {_TERMS} USING (account, bucket)
ORDER BY b.account, b.bucket FOR UPDATE OF b
""")
_STORE = text(f"""
UPDATE call_budgets b SET {", ".join(f"{name} = rows.{name}" for name in _STATE)}
FROM {_ROWS} WHERE (b.account, b.bucket) = (rows.account, rows.bucket)
""")
_ALL = text(f"SELECT {', '.join(_COLUMNS)} FROM call_budgets ORDER BY account, bucket LIMIT :limit")


async def add(connection: Connection, terms: Sequence[Terms], *, now: datetime) -> None:
    """Store which limits there are. Buckets that exist keep their turns."""
    await write(connection, _ADD, terms=_TERMS.document(sorted(terms, key=_place)), now=now)


async def lock(connection: Connection, terms: Sequence[Terms]) -> list[BucketRow]:
    """The buckets in the order of `terms`, locked until the transaction ends. Raises LookupError if one is missing."""
    found = {
        _place(row): row for row in await read(connection, _LOCK, BucketRow, terms=_TERMS.document(terms))
    }
    return [found[_place(each)] for each in terms]


async def store(connection: Connection, rows: Sequence[BucketRow]) -> None:
    await write(connection, _STORE, rows=_ROWS.document(rows))


async def listed(connection: Connection, *, limit: int) -> list[BucketRow]:
    """Every bucket, by account."""
    return await read(connection, _ALL, BucketRow, limit=limit)


def _place(of: Terms | BucketRow) -> tuple[AccountName, str]:
    return of.account, of.bucket
