"""Queries on the invoices and credit notes of an export, with everything that their rows say."""

from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reconciliations import accrued_sql
from control_plane.db.rows import read
from control_plane.domain.focus_documents import DocumentFacts, DocumentLine
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import LineKind
from control_plane.domain.money import NANO_PER_CENT

_LIST_TOTAL = accrued_sql("c.list_nano_per_unit_hour", "i.unit_seconds_before + c.unit_seconds")
_LIST_BEFORE = accrued_sql("c.list_nano_per_unit_hour", "i.unit_seconds_before")
# Most charges are at the list price. Only the others are priced anew, with their intervals.
_INVOICES = text(f"""
SELECT v.id, v.number, v.organization_id, o.name AS organization, v.period, NULL::text AS corrects,
       NULL::timestamptz AS corrected_period, v.tax_rate, v.tax_cents, v.subtotal_cents + v.tax_cents AS total_cents,
       v.usage_nano, (v.usage_nano + more.nano)::bigint AS list_nano, 0::bigint AS credits_nano, NULL::text AS reason,
       '[]'::jsonb AS lines
FROM invoices v JOIN organizations o ON o.id = v.organization_id
CROSS JOIN LATERAL (
  SELECT coalesce(sum({_LIST_TOTAL} - {_LIST_BEFORE} - c.amount_nano), 0) AS nano
  FROM charges c JOIN intervals i ON i.lease_id = c.lease_id AND i.number = c.number
  WHERE c.organization_id = v.organization_id AND c.period = v.period
    AND c.list_nano_per_unit_hour <> c.nano_per_unit_hour
) more
WHERE v.organization_id = :organization_id AND v.period = :month AND v.issued_at <= :issued_until
""")
# A credit note is booked with its transaction.
_CREDIT_NOTES = text("""
SELECT n.id, n.number, n.organization_id, o.name AS organization, t.period, v.number AS corrects,
       v.period AS corrected_period, v.tax_rate, -n.tax_cents AS tax_cents, -n.net_cents - n.tax_cents AS total_cents,
       0::bigint AS usage_nano, 0::bigint AS list_nano, n.credits_nano, n.reason, '[]'::jsonb AS lines
FROM credit_notes n JOIN organizations o ON o.id = n.organization_id
JOIN invoices v ON v.id = n.invoice_id AND v.organization_id = n.organization_id
JOIN transactions t ON t.organization_id = n.organization_id
  AND t.key = 'credit_note:' || replace(n.id::text, '-', '')
WHERE n.organization_id = :organization_id AND t.period = :month AND n.issued_at <= :issued_until
ORDER BY n.issued_at, n.id
""")
_LINE = """
p.project_id, p.project, p.sku, p.purchase, p.sla, p.stopped, p.unit, p.used_in, p.lease_id, e.name AS lease,
s.gpu_count, s.capacity, p.reason
"""
_OF_LINE = """
LEFT JOIN leases e ON e.id = p.lease_id AND e.organization_id = p.organization_id
LEFT JOIN skus s ON s.name = coalesce(e.sku, p.sku)
"""
_INVOICE_LINES = text(f"""
SELECT p.invoice_id AS document_id, p.number, p.kind, p.amount_nano, {_LINE}, NULL::int AS invoice_line
FROM invoice_lines p {_OF_LINE}
WHERE p.invoice_id = ANY(:ids) AND p.organization_id = :organization_id AND p.kind <> '{LineKind.USAGE}'
ORDER BY p.invoice_id, p.number
""")
_CREDIT_NOTE_LINES = text(f"""
SELECT l.credit_note_id AS document_id, l.number, p.kind, -l.cents * {NANO_PER_CENT} AS amount_nano, {_LINE},
       l.invoice_line
FROM credit_note_lines l
JOIN invoice_lines p ON p.invoice_id = l.invoice_id AND p.number = l.invoice_line
  AND p.organization_id = l.organization_id {_OF_LINE}
WHERE l.credit_note_id = ANY(:ids) AND l.organization_id = :organization_id
ORDER BY l.credit_note_id, l.number
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line(DocumentLine):
    document_id: UUID


async def documents(
    connection: Connection, organization_id: OrganizationId, *, month: datetime, issued_until: datetime
) -> list[DocumentFacts]:
    """The invoice of an organization for the month and the credit notes that are booked in it, issued until then."""
    values = {"organization_id": organization_id, "month": month, "issued_until": issued_until}
    found: list[DocumentFacts] = []
    for heads, lines in ((_INVOICES, _INVOICE_LINES), (_CREDIT_NOTES, _CREDIT_NOTE_LINES)):
        issued = await read(connection, heads, DocumentFacts, **values)
        ids = [document.id for document in issued]
        all_lines = (
            await read(connection, lines, _Line, ids=ids, organization_id=organization_id) if ids else []
        )
        by_document = {
            document_id: tuple(some)
            for document_id, some in groupby(all_lines, lambda line: line.document_id)
        }
        found += [replace(document, lines=by_document.get(document.id, ())) for document in issued]
    return found
