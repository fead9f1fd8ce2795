"""Queries on reconciliations: who asked for one, and what each source says about a month."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.export_run import FileName, invoiced_until
from control_plane.domain.focus import DECIMAL_PLACES, parse_decimal
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.invoice import LineKind
from control_plane.domain.lease import LeaseEvent, LeaseState
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import NANO_PER_CENT, NANO_PER_USD, Nano
from control_plane.domain.reconciliation import Amounts, InvoiceFacts, LeaseFacts
from control_plane.domain.reconciliation_schedule import LastAsked


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Somebody asked for a month to be reconciled."""

    id: UUID
    period: datetime
    """The first instant of the month."""
    closed: bool
    """Whether the month was closed then."""
    export_id: UUID | None
    """The last complete export of all customers at that time."""
    asked_at: datetime
    asked_by: str
    all_customers: bool
    """Whether customers that agree are stored as well, and not only those that differ."""


@dataclass(frozen=True, slots=True)
class ExportedSum:
    """What a complete export of the month states."""

    organization_id: OrganizationId
    """Who exported."""
    cut_at: datetime
    created_at: datetime
    billed_cost: str

    @property
    def issued_until(self) -> datetime:
        """Until when documents are in it."""
        return invoiced_until(self.created_at)

    @property
    def amount_nano(self) -> Nano:
        """Raises ValueError for a sum of less than a nano-dollar, which no export states."""
        amount, rest = divmod(parse_decimal(self.billed_cost), 10**DECIMAL_PLACES // NANO_PER_USD)
        if rest:
            raise ValueError(f"not a whole number of nano-dollars: {self.billed_cost}")
        return Nano(amount)


_COLUMNS = "id, period, closed, export_id, asked_at, asked_by, all_customers"
_INSERT = text(f"""
INSERT INTO reconciliations ({_COLUMNS})
VALUES (:id, :period, :closed, :export_id, :asked_at, :asked_by, :all_customers)
""")
_GET = text(f"SELECT {_COLUMNS} FROM reconciliations WHERE id = :id")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM reconciliations
WHERE CAST(:before_at AS timestamptz) IS NULL OR (asked_at, id) < (:before_at, CAST(:before_id AS uuid))
ORDER BY asked_at DESC, id DESC LIMIT :limit
""")
_UNFINISHED = text(f"""
SELECT {_COLUMNS} FROM reconciliations r
WHERE NOT EXISTS (SELECT FROM reconciliation_batches b WHERE b.reconciliation_id = r.id AND b.remaining = 0)
ORDER BY asked_at, id LIMIT 1
""")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane reconciliations'))")
_LAST_ASKED = text("""
SELECT DISTINCT ON (period) period, asked_at,
       EXISTS (SELECT FROM reconciliation_batches b WHERE b.reconciliation_id = r.id AND b.remaining = 0) AS is_done
FROM reconciliations r WHERE period = ANY(:months) ORDER BY period, asked_at DESC, id DESC
""")
_CUSTOMERS = text("""
SELECT id FROM organizations WHERE CAST(:after AS uuid) IS NULL OR id > :after ORDER BY id LIMIT :limit
""")
_REMAINING = text("SELECT count(*) FROM organizations WHERE CAST(:after AS uuid) IS NULL OR id > :after")
# Those that were billed in the month, and those that have a charge in it although they were not.
_LEASES = text("""
SELECT id FROM leases
WHERE organization_id = ANY(:ids) AND ready_at < :until AND (billed_until IS NULL OR billed_until >= :since)
UNION
SELECT lease_id FROM charges WHERE organization_id = ANY(:ids) AND started_at >= :since AND started_at < :until
ORDER BY 1
""")


def accrued_sql(price: str, seconds: str) -> str:
    """SQL: what so many unit-seconds cost in total at a price for a unit and an hour, rounded half to even.

    It is computed apart from `money.accrued`, by which charges were rated, so that a mistake there does not hide
    itself. A test holds the two together.
    """
    product = f"({price})::numeric * ({seconds})"
    whole, rest = f"div({product}, 3600)", f"mod({product}, 3600)"
    return f"({whole} + CASE WHEN {rest} + mod({whole}, 2) > 1800 THEN 1 ELSE 0 END)"


def _cost(price: str, before: str, seconds: str) -> str:
    """SQL: what time costs that follows `before` unit-seconds at the same price."""
    return f"({accrued_sql(price, f'{before} + {seconds}')} - {accrued_sql(price, before)})"


_CHARGED_TIME = _cost("c.nano_per_unit_hour", "coalesce(i.unit_seconds_before, 0)", "c.unit_seconds")
_AGREED = "CASE WHEN i.stopped THEN l.stopped_nano_per_unit_hour ELSE l.nano_per_unit_hour END"
# One statement, so that all sources are read at the same moment.
_FACTS = text(f"""
SELECT l.id AS lease_id, l.organization_id, l.units, l.nano_per_unit_hour, l.stopped_nano_per_unit_hour, l.switched_at,
       l.paused_at, l.committed_days, l.unused_unit_seconds, l.billed_until, l.metered_until, l.meter_closed,
       (SELECT min(j.at) FROM journal j WHERE j.lease_id = l.id AND j.machine_id IS NULL
          AND j.state_after = '{LeaseState.ENDING}' AND j.event = '{LeaseEvent.RELEASED}') AS released_at,
       (SELECT min(j.at) FROM journal j WHERE j.lease_id = l.id AND j.machine_id IS NULL
          AND j.state_after = '{LeaseState.READY}') AS became_ready_at,
       (SELECT min(j.at) FROM journal j WHERE j.lease_id = l.id AND j.machine_id IS NULL
          AND j.state_after = '{LeaseState.ENDING}') AS began_to_end_at,
       metered.amount AS metered, metered.unrated, charged.rated, charged.amount AS charged
FROM leases l
CROSS JOIN LATERAL (
  SELECT coalesce(sum(cost), 0)::bigint AS amount, coalesce(sum(cost) FILTER (WHERE waits), 0)::bigint AS unrated
  FROM (
    SELECT {_cost(_AGREED, "i.unit_seconds_before", "i.unit_seconds")} AS cost,
           EXISTS (SELECT FROM unrated u WHERE u.organization_id = i.organization_id AND u.lease_id = i.lease_id
                   AND u.number = i.number) AS waits
    FROM intervals i WHERE i.lease_id = l.id AND i.started_at >= :since AND i.started_at < :until
  ) interval_costs
) metered
CROSS JOIN LATERAL (
  SELECT coalesce(sum({_CHARGED_TIME}), 0)::bigint AS rated, coalesce(sum(c.amount_nano), 0)::bigint AS amount
  FROM charges c LEFT JOIN intervals i ON i.lease_id = c.lease_id AND i.number = c.number
  WHERE c.lease_id = l.id AND c.started_at >= :since AND c.started_at < :until
) charged
WHERE l.id = ANY(:ids) ORDER BY l.id
""")
_COMPLETE = f"""
  r.period_start = :period AND (SELECT count(*) FROM export_files f WHERE f.run_id = r.id) = {len(FileName)}
"""
_OWN_EXPORTS = text(f"""
SELECT DISTINCT ON (r.organization_id) r.organization_id, r.cut_at, r.created_at, f.sums ->> 'BilledCost' AS billed_cost
FROM export_runs r JOIN export_files f ON f.run_id = r.id AND f.name = '{FileName.CSV}'
WHERE r.organization_id = ANY(:ids) AND NOT r.covers_all AND r.created_at <= :asked_at AND {_COMPLETE}
ORDER BY r.organization_id, r.created_at DESC, r.id DESC
""")
_EXPORT = text(f"""
SELECT r.organization_id, r.cut_at, r.created_at, f.sums ->> 'BilledCost' AS billed_cost
FROM export_runs r JOIN export_files f ON f.run_id = r.id AND f.name = '{FileName.CSV}' WHERE r.id = :id
""")


@dataclass(frozen=True, slots=True)
class Cut:
    """Until when the charges and the documents of a customer are in an export; None where there is none."""

    organization_id: OrganizationId
    own_cut_at: datetime | None
    own_issued_until: datetime | None
    cut_at: datetime | None
    issued_until: datetime | None


@dataclass(frozen=True, slots=True)
class Booked:
    """What is booked in a part of a month for a customer."""

    organization_id: OrganizationId
    booked: Nano
    charged_before_own_export: Nano
    charged_before_export: Nano
    posted: Nano

    @property
    def amounts(self) -> Amounts:
        return Amounts(
            booked=self.booked,
            posted=self.posted,
            billed_before_own_export=self.charged_before_own_export,
            billed_before_export=self.charged_before_export,
        )


@dataclass(frozen=True, slots=True)
class DocumentSums:
    """What the invoice and the credit notes of a customer add to its charges, by their printed totals."""

    organization_id: OrganizationId
    before_own_export: Nano
    before_export: Nano


_REVENUE = f"""
SELECT coalesce(sum(p.amount_nano), 0)::bigint AS amount
FROM transactions t JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
JOIN ledger_accounts a ON a.id = p.account_id AND a.kind = '{AccountKind.REVENUE}'
WHERE t.kind = '{TransactionKind.USAGE}'
"""
_BOOKED = text(f"""
SELECT cuts.organization_id, charged.booked, charged.charged_before_own_export, charged.charged_before_export,
       posted.amount AS posted
FROM {Recordset(Cut, "cuts")}
CROSS JOIN LATERAL (
  SELECT coalesce(sum(c.amount_nano), 0)::bigint AS booked,
         coalesce(sum(c.amount_nano) FILTER (WHERE c.rated_at <= cuts.own_cut_at), 0)::bigint
           AS charged_before_own_export,
         coalesce(sum(c.amount_nano) FILTER (WHERE c.rated_at <= cuts.cut_at), 0)::bigint AS charged_before_export
  FROM charges c
  WHERE c.organization_id = cuts.organization_id AND c.period = :period AND c.started_at >= :since
    AND c.started_at < :until
) charged
CROSS JOIN LATERAL (
  {_REVENUE} AND t.organization_id = cuts.organization_id AND t.period = :period AND t.effective_at >= :since
    AND t.effective_at < :until
) posted
""")
# By the totals that were printed, and not by the lines that an export reads.
_DOCUMENTS = text(f"""
SELECT cuts.organization_id, coalesce(sum(d.amount) FILTER (WHERE d.issued_at <= cuts.own_issued_until), 0)::bigint
         AS before_own_export,
       coalesce(sum(d.amount) FILTER (WHERE d.issued_at <= cuts.issued_until), 0)::bigint AS before_export
FROM {Recordset(Cut, "cuts")}
CROSS JOIN LATERAL (
  SELECT i.issued_at, (i.subtotal_cents + i.tax_cents) * {NANO_PER_CENT} - i.usage_nano AS amount
  FROM invoices i WHERE i.organization_id = cuts.organization_id AND i.period = :period
  UNION ALL
  SELECT n.issued_at, -(n.net_cents + n.tax_cents) * {NANO_PER_CENT}
  FROM credit_notes n JOIN transactions t ON t.organization_id = n.organization_id
    AND t.key = 'credit_note:' || replace(n.id::text, '-', '')
  WHERE n.organization_id = cuts.organization_id AND t.period = :period
) d GROUP BY cuts.organization_id
""")
_INVOICES = text(f"""
SELECT i.organization_id, lines.usage, lines.credits, (i.subtotal_cents + i.tax_cents) * {NANO_PER_CENT} AS total,
       posted.wallet, posted.receivable
FROM invoices i
CROSS JOIN LATERAL (
  SELECT coalesce(sum(l.amount_nano) FILTER (WHERE l.kind = '{LineKind.USAGE}'), 0)::bigint AS usage,
         coalesce(sum(l.amount_nano) FILTER (WHERE l.kind = '{LineKind.CREDIT}'), 0)::bigint AS credits
  FROM invoice_lines l WHERE l.invoice_id = i.id
) lines
CROSS JOIN LATERAL (
  SELECT coalesce(sum(p.amount_nano) FILTER (WHERE a.kind = '{AccountKind.WALLET}'), 0)::bigint AS wallet,
         coalesce(sum(p.amount_nano) FILTER (WHERE a.kind = '{AccountKind.RECEIVABLE}'), 0)::bigint AS receivable
  FROM transactions t JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
  JOIN ledger_accounts a ON a.id = p.account_id
  WHERE t.organization_id = i.organization_id AND t.kind = '{TransactionKind.INVOICE}'
    AND t.key = 'invoice:' || replace(i.id::text, '-', '')
) posted
WHERE i.organization_id = ANY(:ids) AND i.period = :period
""")
_NOT_POSTED = text(f"""
SELECT c.id FROM charges c CROSS JOIN LATERAL (
  {_REVENUE} AND t.organization_id = c.organization_id AND t.key = 'charge:' || replace(c.id::text, '-', '')
) posted
WHERE c.organization_id = :organization_id AND c.period = :period AND c.started_at >= :since AND c.started_at < :until
  AND posted.amount <> c.amount_nano
ORDER BY c.started_at, c.id LIMIT :limit
""")


async def insert(connection: Connection, asked: Reconciliation) -> None:
    await write(connection, _INSERT, **{name: getattr(asked, name) for name in Reconciliation.__slots__})


async def get(connection: Connection, reconciliation_id: UUID) -> Reconciliation | None:
    return await read_one(connection, _GET, Reconciliation, id=reconciliation_id)


async def page(
    connection: Connection, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[Reconciliation]:
    """Newest first; `before` is time and id of the previous page's last one."""
    return await read(
        connection,
        _PAGE,
        Reconciliation,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


async def unfinished(connection: Connection) -> Reconciliation | None:
    """The oldest one of which customers have yet to be examined."""
    return await read_one(connection, _UNFINISHED, Reconciliation)


async def lock(connection: Connection) -> None:
    """Let nobody else ask once a day before this transaction ends."""
    await connection.execute(_LOCK)


async def last_asked(connection: Connection, months: Sequence[datetime]) -> dict[datetime, LastAsked]:
    """When somebody last asked for each of these months, whoever it was."""
    found = await read(connection, _LAST_ASKED, LastAsked, months=list(months))
    return {last.period: last for last in found}


async def customers(
    connection: Connection, *, after: OrganizationId | None, limit: int
) -> list[OrganizationId]:
    """The organizations in the order of their ids, behind `after`."""
    return await read(connection, _CUSTOMERS, OrganizationId, after=after, limit=limit)


async def remaining(connection: Connection, *, after: OrganizationId | None) -> int:
    """How many organizations there are behind `after`."""
    return await read_one(connection, _REMAINING, int, after=after) or 0


async def leases(
    connection: Connection, customer_ids: Sequence[OrganizationId], *, since: datetime, until: datetime
) -> list[LeaseId]:
    """The leases of these customers that were used in a month, or have a charge in it."""
    return await read(connection, _LEASES, LeaseId, ids=list(customer_ids), since=since, until=until)


async def facts(
    connection: Connection, lease_ids: Sequence[LeaseId], *, since: datetime, until: datetime
) -> list[LeaseFacts]:
    """What the journal, the meter and the charges say about the use of these leases in a month."""
    return await read(connection, _FACTS, LeaseFacts, ids=list(lease_ids), since=since, until=until)


async def own_exports(
    connection: Connection,
    customer_ids: Sequence[OrganizationId],
    *,
    period: datetime,
    asked_at: datetime,
) -> list[ExportedSum]:
    """The last complete export that each of these customers made of its own charges until `asked_at`."""
    values = {"ids": list(customer_ids), "period": period, "asked_at": asked_at}
    return await read(connection, _OWN_EXPORTS, ExportedSum, **values)


async def export(connection: Connection, export_id: UUID) -> ExportedSum | None:
    """What an export of all customers states."""
    return await read_one(connection, _EXPORT, ExportedSum, id=export_id)


async def booked(
    connection: Connection, cuts: Sequence[Cut], *, period: datetime, since: datetime, until: datetime
) -> list[Booked]:
    """What is booked in the month `period` for customers, of the time from `since` to `until`."""
    values = {"cuts": Recordset.document(cuts), "period": period, "since": since, "until": until}
    return await read(connection, _BOOKED, Booked, **values)


async def documents(connection: Connection, cuts: Sequence[Cut], *, period: datetime) -> list[DocumentSums]:
    """What invoices of the month and credit notes that are booked in it add to the charges of customers."""
    return await read(connection, _DOCUMENTS, DocumentSums, cuts=Recordset.document(cuts), period=period)


async def invoices(
    connection: Connection, customer_ids: Sequence[OrganizationId], *, period: datetime
) -> list[InvoiceFacts]:
    """The invoices of these customers for the month, with what the ledger has of them."""
    return await read(connection, _INVOICES, InvoiceFacts, ids=list(customer_ids), period=period)


async def not_posted(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    period: datetime,
    since: datetime,
    until: datetime,
    limit: int,
) -> list[UUID]:
    """Charges of a customer, of the time from `since` to `until`, that the ledger has with another amount or not."""
    values = {"organization_id": organization_id, "period": period, "since": since, "until": until}
    return await read(connection, _NOT_POSTED, UUID, **values, limit=limit)
