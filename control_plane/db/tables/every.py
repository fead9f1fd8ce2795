"""All tables, and lists of them by their marks.

The wings hold no methods and no queries; CHECKs come from the domain's enums.

A table's marks (`marks.py`) say who owns its rows, whether it is append-only, and what the API may write.
"""

from control_plane.db.tables import (
    catalogue,
    leases,
    machines,
    mesh,
    money,
    operation,
    proof,
    providers,
    tenancy,
)
from control_plane.db.tables.marks import Tenancy, marks_of, metadata

__all__ = ["FACTS", "SHARED", "WINGS", "metadata"]

WINGS = (tenancy, catalogue, providers, leases, machines, proof, mesh, money, operation)

FACTS = frozenset(name for name, found in metadata.tables.items() if marks_of(found).fact)
"""Append-only tables."""
SHARED = frozenset(
    name for name, found in metadata.tables.items() if marks_of(found).tenancy is Tenancy.SHARED
)
"""Tables whose rows belong to no customer."""
