"""Queries on what reconciliations found: batches of customers, both sides of each customer's links, and differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.reconciliation import Amounts, LinkName


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reconciliation is."""

    reconciliation_id: UUID
    batches: int
    customers: int
    """Examined so far."""
    remaining: int
    """To be examined; meaningless while there is no batch."""
    reached: OrganizationId | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What the examination of some customers came to."""

    reconciliation_id: UUID
    number: int
    reached: OrganizationId | None
    customers: int
    remaining: int
    amounts: Amounts
    examined_at: datetime


@dataclass(frozen=True, slots=True)
class Difference:
    """A link of a customer whose sides differ."""

    reconciliation_id: UUID
    batch: int
    customer_id: OrganizationId
    link: LinkName
    before_nano: Nano
    after_nano: Nano
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CustomerAmounts:
    """What a customer came to that was examined."""

    customer_id: OrganizationId
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class _StoredCustomer:
    customer_id: OrganizationId
    amounts: dict[str, int]
    """Those that are not zero."""


@dataclass(frozen=True, slots=True)
class LastDone:
    """The last reconciliation of a month that is done."""

    id: UUID
    period: datetime
    """The first instant of the month."""
    examined_at: datetime
    """When the last customers were examined."""
    differing_customers: int
    difference_nano: Nano
    """What the links of customers differ by, each as a positive amount."""


_PROGRESS = text("""
SELECT DISTINCT ON (reconciliation_id) reconciliation_id, number AS batches,
       (sum(customers) OVER (PARTITION BY reconciliation_id))::bigint AS customers, remaining, reached
FROM reconciliation_batches WHERE reconciliation_id = ANY(:ids) ORDER BY reconciliation_id, number DESC
""")
_BATCHES = text("""
SELECT reconciliation_id, number, reached, customers, remaining, amounts, examined_at
FROM reconciliation_batches WHERE reconciliation_id = ANY(:ids) ORDER BY reconciliation_id, number
""")
# A batch that another replica has stored meanwhile is dropped, with its differences.
_RECORD = text(f"""
WITH made AS (
  INSERT INTO reconciliation_batches (reconciliation_id, number, reached, customers, remaining, amounts, examined_at)
  VALUES (:reconciliation_id, :number, :reached, :customers, :remaining, CAST(:amounts AS jsonb), :examined_at)
  ON CONFLICT DO NOTHING RETURNING number
), customers AS (
  INSERT INTO reconciliation_customers (reconciliation_id, batch, customer_id, amounts)
  SELECT :reconciliation_id, made.number, c.customer_id, c.amounts
  FROM made CROSS JOIN (SELECT * FROM {Recordset(_StoredCustomer, "examined")}) c
)
INSERT INTO reconciliation_differences
  (reconciliation_id, batch, customer_id, link, before_nano, after_nano, examples)
SELECT d.reconciliation_id, d.batch, d.customer_id, d.link, d.before_nano, d.after_nano,
       ARRAY(SELECT jsonb_array_elements_text(d.examples))
FROM made CROSS JOIN (SELECT * FROM {Recordset(Difference, "differences")}) d
""")
_DIFFERENCES = text("""
SELECT reconciliation_id, batch, customer_id, link, before_nano, after_nano, examples
FROM reconciliation_differences
WHERE reconciliation_id = :id
  AND (CAST(:after_id AS uuid) IS NULL OR (customer_id, link) > (CAST(:after_id AS uuid), CAST(:after_link AS text)))
ORDER BY customer_id, link LIMIT :limit
""")
_LAST_DONE = text("""
SELECT done.id, done.period, done.examined_at, count(DISTINCT d.customer_id) AS differing_customers,
       coalesce(sum(abs(d.after_nano - d.before_nano)), 0)::bigint AS difference_nano
FROM (
  SELECT DISTINCT ON (r.period) r.id, r.period, b.examined_at
  FROM reconciliations r JOIN reconciliation_batches b ON b.reconciliation_id = r.id AND b.remaining = 0
  WHERE r.period = ANY(:months) ORDER BY r.period, r.asked_at DESC, r.id DESC
) done LEFT JOIN reconciliation_differences d ON d.reconciliation_id = done.id
GROUP BY done.id, done.period, done.examined_at ORDER BY done.period
""")
_DIFFERING = text("""
SELECT count(DISTINCT customer_id) FROM reconciliation_differences WHERE reconciliation_id = :id
""")
_CUSTOMER_AMOUNTS = text("""
SELECT customer_id, amounts FROM reconciliation_customers
WHERE reconciliation_id = :id AND (CAST(:after AS uuid) IS NULL OR customer_id > :after)
ORDER BY customer_id LIMIT :limit
""")


async def progress(connection: Connection, reconciliation_ids: Sequence[UUID]) -> dict[UUID, Progress]:
    """How far each is; those of which no customer was examined yet are left out."""
    found = await read(connection, _PROGRESS, Progress, ids=list(reconciliation_ids))
    return {reached.reconciliation_id: reached for reached in found}


async def batches(connection: Connection, reconciliation_ids: Sequence[UUID]) -> list[Batch]:
    """What was examined, by reconciliation and number."""
    return await read(connection, _BATCHES, Batch, ids=list(reconciliation_ids))


async def record(
    connection: Connection,
    batch: Batch,
    stored: Mapping[OrganizationId, Amounts],
    found: Sequence[Difference],
) -> None:
    """Store a batch with what customers came to and their differences, unless somebody else has stored it."""
    values = {name: getattr(batch, name) for name in Batch.__slots__}
    values |= {"amounts": document(batch.amounts), "differences": Recordset.document(found)}
    customers = [
        _StoredCustomer(customer_id, _without_zeros(amounts)) for customer_id, amounts in stored.items()
    ]
    await write(connection, _RECORD, **values, examined=Recordset.document(customers))


def _without_zeros(amounts: Amounts) -> dict[str, int]:
    stated = {field.name: getattr(amounts, field.name) for field in fields(amounts)}
    return {name: amount for name, amount in stated.items() if amount}


async def differences(
    connection: Connection,
    reconciliation_id: UUID,
    *,
    after: tuple[UUID, str] | None,
    limit: int,
) -> list[Difference]:
    """By customer and link; `after` is both of the previous page's last one."""
    return await read(
        connection,
        _DIFFERENCES,
        Difference,
        id=reconciliation_id,
        after_id=after[0] if after else None,
        after_link=after[1] if after else None,
        limit=limit,
    )


async def examined(
    connection: Connection, reconciliation_id: UUID, *, after: OrganizationId | None, limit: int
) -> list[CustomerAmounts]:
    """What the customers came to that are stored, in the order of their ids behind `after`."""
    values = {"id": reconciliation_id, "after": after, "limit": limit}
    return await read(connection, _CUSTOMER_AMOUNTS, CustomerAmounts, **values)


async def last_done(connection: Connection, months: Sequence[datetime]) -> list[LastDone]:
    """The last reconciliation that is done of each of these months; a month without one is left out."""
    return await read(connection, _LAST_DONE, LastDone, months=list(months))


async def differing(connection: Connection, reconciliation_id: UUID) -> int:
    """How many customers have a difference."""
    return await read_one(connection, _DIFFERING, int, id=reconciliation_id) or 0
