"""Kinds of rows that were issued to somebody and can be revoked: which columns say so. See db/issued.py."""

from dataclasses import dataclass

from sqlalchemy import TextClause, text


@dataclass(frozen=True, slots=True)
class Revocable:
    """A table with the columns revoked_at and revoked_why, and those of who asked."""

    table: str
    opens: str
    """SQL: the row opens something at `:now`, or may still do so."""
    ends_at: str
    """SQL: when it ends by itself at the latest."""
    sets: str = ""
    """SQL: what a revocation sets besides its time and its reason."""

    def revocation(self, where: str) -> TextClause:
        """Revokes those rows of `:organization_id` that open something. `where` is SQL."""
        also = f", {self.sets}" if self.sets else ""
        return text(
            f"UPDATE {self.table} SET revoked_at = :now, revoked_why = :why{also}"
            f" WHERE organization_id = :organization_id AND {where} AND {self.opens}"
        )
