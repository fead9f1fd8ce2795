"""Queries on billing details: who is invoiced, and at which rate of tax."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import convert, read_one, write
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import BillingDetails

_COLUMNS = "legal_name, address, country, tax_id, tax_rate, reverse_charge"
_GET = text(
    f"SELECT {_COLUMNS}, changed_at, changed_by FROM billing_details WHERE organization_id = :organization_id"
)
_SET = text(f"""
INSERT INTO billing_details (organization_id, {_COLUMNS}, changed_at, changed_by)
VALUES (:organization_id, :legal_name, :address, :country, :tax_id, :tax_rate, :reverse_charge, :now, :by)
ON CONFLICT (organization_id) DO UPDATE SET
  legal_name = EXCLUDED.legal_name, address = EXCLUDED.address, country = EXCLUDED.country,
  tax_id = EXCLUDED.tax_id, tax_rate = EXCLUDED.tax_rate, reverse_charge = EXCLUDED.reverse_charge,
  changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by
""")


@dataclass(frozen=True, slots=True)
class _Row:
    legal_name: str
    address: tuple[str, ...]
    country: str
    tax_id: str | None
    tax_rate: int
    reverse_charge: bool
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class StoredDetails:
    """Billing details, with who set them."""

    details: BillingDetails
    changed_at: datetime
    changed_by: str
    """The id of the subject."""


async def get(connection: Connection, organization_id: OrganizationId) -> StoredDetails | None:
    row = await read_one(connection, _GET, _Row, organization_id=organization_id)
    if row is None:
        return None
    return StoredDetails(convert(row, BillingDetails), row.changed_at, row.changed_by)


async def set_(
    connection: Connection,
    organization_id: OrganizationId,
    details: BillingDetails,
    *,
    now: datetime,
    by: str,
) -> None:
    """Replace the details of an organization. The connection acts for the platform's organization."""
    await write(
        connection,
        _SET,
        organization_id=organization_id,
        legal_name=details.legal_name,
        address=list(details.address),
        country=details.country,
        tax_id=details.tax_id,
        tax_rate=details.tax_rate,
        reverse_charge=details.reverse_charge,
        now=now,
        by=by,
    )
