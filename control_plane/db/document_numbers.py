"""The numbers of documents, without a gap in each series and year of an issuer.

Whoever issues documents takes the series, which nobody else can take until the transaction ends. A transaction that is
rolled back leaves no gap.
"""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.invoice import DocumentSeries

_BEGIN = text("""
INSERT INTO document_numbers (issuer, series, year, last) VALUES (:issuer, :series, :year, 0)
ON CONFLICT (issuer, series, year) DO NOTHING
""")
_SERIES = "WHERE issuer = :issuer AND series = :series AND year = :year"
_TAKE = text(f"SELECT last FROM document_numbers {_SERIES} FOR UPDATE")
_SAVE = text(f"UPDATE document_numbers SET last = :last {_SERIES}")


async def take(connection: Connection, issuer: str, series: DocumentSeries, year: int) -> int:
    """The last number of a series in a year, 0 before the first one. Nobody else takes it until the transaction ends.

    The connection acts for the platform's organization.
    """
    values = {"issuer": issuer, "series": series.value, "year": year}
    await write(connection, _BEGIN, **values)
    (last,) = await read(connection, _TAKE, int, **values)
    return last


async def save(connection: Connection, issuer: str, series: DocumentSeries, year: int, last: int) -> None:
    """Store the last number that was used, after `take`."""
    await write(connection, _SAVE, issuer=issuer, series=series.value, year=year, last=last)
