"""Queries on prices that finance agreed on with customers."""

from dataclasses import fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId, PriceAgreementId
from control_plane.domain.price_agreement import PriceAgreement

_COLUMNS = tuple(field.name for field in fields(PriceAgreement))
_NAMED = ", ".join(_COLUMNS)
_INSERT = text(
    f"INSERT INTO price_agreements ({_NAMED}) VALUES ({', '.join(f':{column}' for column in _COLUMNS)})"
)
_IN_FORCE = text(f"""
SELECT {_NAMED} FROM price_agreements
WHERE organization_id = :organization_id AND (CAST(:sku AS text) IS NULL OR sku = :sku)
  AND valid_from <= :now AND (valid_until IS NULL OR valid_until > :now)
ORDER BY sku, id
""")
_OF = text(f"""
SELECT {_NAMED} FROM price_agreements WHERE organization_id = :organization_id AND sku = :sku ORDER BY id
""")
_GET = text(f"SELECT {_NAMED} FROM price_agreements WHERE id = :id FOR UPDATE")
_PAGE = text(f"""
SELECT {_NAMED} FROM price_agreements
WHERE (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (agreed_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY agreed_at DESC, id DESC LIMIT :limit
""")
_END = text("""
UPDATE price_agreements SET valid_until = :valid_until, ended_at = :now, ended_by = :by WHERE id = :id
""")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('price agreements of ' || :organization_id, 0))")


async def lock(connection: Connection, organization_id: OrganizationId) -> None:
    """Let one transaction at a time agree on prices with an organization."""
    await connection.execute(_LOCK, {"organization_id": organization_id.hex})


async def in_force(
    connection: Connection, organization_id: OrganizationId, *, now: datetime, sku: str | None = None
) -> list[PriceAgreement]:
    """The agreements with an organization that are in force at a moment, for every SKU or for one."""
    return await read(
        connection, _IN_FORCE, PriceAgreement, organization_id=organization_id, now=now, sku=sku
    )


async def of(connection: Connection, organization_id: OrganizationId, sku: str) -> list[PriceAgreement]:
    """All agreements with an organization for a SKU, also those that ended."""
    return await read(connection, _OF, PriceAgreement, organization_id=organization_id, sku=sku)


async def locked(connection: Connection, agreement_id: PriceAgreementId) -> PriceAgreement | None:
    """An agreement, which nobody else ends until the transaction does. The connection acts for the platform."""
    return await read_one(connection, _GET, PriceAgreement, id=agreement_id)


async def page(
    connection: Connection,
    *,
    organization_id: OrganizationId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[PriceAgreement]:
    """Newest first, with one organization or with all; `before` is time and id of the previous page's last one."""
    at, id_ = before or (None, None)
    return await read(
        connection,
        _PAGE,
        PriceAgreement,
        organization_id=organization_id,
        before_at=at,
        before_id=id_,
        limit=limit,
    )


async def insert(connection: Connection, agreement: PriceAgreement) -> None:
    """Store an agreement. The connection acts for the platform's organization."""
    await write(connection, _INSERT, **{column: getattr(agreement, column) for column in _COLUMNS})


async def end(
    connection: Connection, agreement_id: PriceAgreementId, valid_until: datetime, *, by: str, now: datetime
) -> None:
    """Bring the end of a locked agreement forward."""
    await write(connection, _END, id=agreement_id, valid_until=valid_until, by=by, now=now)
