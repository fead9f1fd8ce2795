"""All tables of all wings. Import `metadata` from here when it has to be complete."""

from control_plane.db.tables import (
    access,
    audit,
    balance_alerts,
    catalogue,
    clusters,
    consoles,
    enforcement,
    envelopes,
    exports,
    firewalls,
    health,
    invoices,
    kubeconfigs,
    leases,
    machines,
    mesh,
    money,
    operation,
    pools,
    preemptions,
    proof,
    providers,
    reconciliations,
    secrets,
    sign_in,
    sla,
    subjects,
    supplier_invoices,
    telemetry,
    tenancy,
)
from control_plane.db.tables.marks import Tenancy, marks_of, metadata

__all__ = ["FACTS", "SHARED", "WINGS", "metadata"]

WINGS = (
    audit,
    tenancy,
    subjects,
    supplier_invoices,
    sign_in,
    secrets,
    catalogue,
    sla,
    providers,
    leases,
    firewalls,
    consoles,
    access,
    pools,
    machines,
    health,
    preemptions,
    proof,
    telemetry,
    enforcement,
    mesh,
    clusters,
    kubeconfigs,
    money,
    invoices,
    balance_alerts,
    exports,
    reconciliations,
    envelopes,
    operation,
)

FACTS = frozenset(name for name, found in metadata.tables.items() if marks_of(found).fact)
"""Append-only tables."""
SHARED = frozenset(
    name for name, found in metadata.tables.items() if marks_of(found).tenancy is Tenancy.SHARED
)
"""Tables whose rows belong to no customer."""
