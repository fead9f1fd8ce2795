"""Requests to read the console of a lease's machine, and what was found."""

from sqlalchemy import Boolean, CheckConstraint, Column, Index, Text, Uuid, text

from control_plane.db.tables.marks import at, known, own, project, table, tenant, work
from control_plane.domain.console import BYTES_MAX, ConsoleSource, MachineAnswer, ProviderAnswer

# Minutes old at most, and unlogged: what machines print is in no write-ahead log and in no backup made from it. After a
# crash of the database, a customer asks again.
consoles = table(
    "consoles",
    Column("id", Uuid, primary_key=True),
    tenant(),
    *project(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    # Whose machine is read; null where the lease had none.
    Column("claim_id", Uuid),
    own("claim_id", "claims"),
    *work(),
    at("requested_at", nullable=False),
    # What a provider said that gets the console first: it is asked again with this.
    Column("ticket", Text),
    at("answered_at"),
    Column("source", Text),
    Column("provider", Text),
    Column("machine", Text),
    Column("printed", Text),
    Column("is_cut", Boolean),
    known("source", ConsoleSource),
    known("provider", ProviderAnswer),
    known("machine", MachineAnswer),
    CheckConstraint(
        "num_nulls(answered_at, source, provider, machine, printed, is_cut) IN (0, 6)",
        name="answered_as_a_whole",
    ),
    CheckConstraint(f"octet_length(printed) <= {BYTES_MAX}", name="printed_bounded"),
    Index("ix_consoles_due", "due_at", postgresql_where=text("answered_at IS NULL")),
    Index("ix_consoles_lease_id", "lease_id", "requested_at"),
    Index("ix_consoles_requested_at", "requested_at"),
    api=("INSERT",),
    unlogged=True,
)
