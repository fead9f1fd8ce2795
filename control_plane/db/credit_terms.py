"""Queries on credit terms: how far customers may use capacity before they pay."""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.domain.credit_terms import CreditTerms
from control_plane.domain.ids import OrganizationId

# As `domain.credit_terms.left`; a test holds the two together.
CREDIT_LEFT = """coalesce((
  SELECT greatest(0, t.limit_nano + least(0, s.receivable_nano)) FROM credit_terms t
  WHERE t.organization_id = s.organization_id), 0)"""
"""SQL: what is left of the credit limit of the organization of the row `s` of `standings`."""
_COLUMNS = "limit_nano, payment_days, reason, changed_at, changed_by"
_GET = text(f"SELECT {_COLUMNS} FROM credit_terms WHERE organization_id = :organization_id")
_SET = text(f"""
INSERT INTO credit_terms (organization_id, {_COLUMNS})
VALUES (:organization_id, :limit_nano, :payment_days, :reason, :changed_at, :changed_by)
ON CONFLICT (organization_id) DO UPDATE SET limit_nano = EXCLUDED.limit_nano, payment_days = EXCLUDED.payment_days,
  reason = EXCLUDED.reason, changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by
""")


async def get(connection: Connection, organization_id: OrganizationId) -> CreditTerms | None:
    """None: nobody has set any, so the organization is prepaid."""
    return await read_one(connection, _GET, CreditTerms, organization_id=organization_id)


async def set_(connection: Connection, organization_id: OrganizationId, terms: CreditTerms) -> None:
    """Replace the terms of an organization. The connection acts for the platform's organization."""
    values = {name: getattr(terms, name) for name in CreditTerms.__slots__}
    await write(connection, _SET, organization_id=organization_id, **values)
