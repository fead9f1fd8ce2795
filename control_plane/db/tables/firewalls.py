"""Firewalls of leases."""

from sqlalchemy import CheckConstraint, Column, Integer, PrimaryKeyConstraint, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import at, known, own, project, table, tenant, work
from control_plane.domain.firewall import FirewallProblem

# A lease without a row has no rules, and had no customer admitted. Its rules are one value, so that a machine never
# gets half of a change. A machine is due when its lease has other rules, and once an hour to look whether it still has
# them.
firewalls = table(
    "firewalls",
    tenant(),
    Column("lease_id", Uuid, nullable=False),
    *project(),
    own("lease_id", "leases"),
    # With the organization, so that nobody learns from a conflict that another one has a lease.
    PrimaryKeyConstraint("organization_id", "lease_id"),
    # How often the rules were changed.
    Column("version", Integer, nullable=False, server_default=text("0")),
    Column("rules", JSONB, nullable=False, server_default=text("'[]'")),
    at("changed_at"),
    *work(),
    # Whose machine got rules last, which, and what its kernel had then, as a digest.
    Column("claim_id", Uuid),
    own("claim_id", "claims"),
    Column("applied_version", Integer),
    at("applied_at"),
    Column("digest", Text),
    # When somebody last saw what the machine has.
    at("looked_at"),
    Column("problem", Text),
    known("problem", FirewallProblem),
    CheckConstraint(
        "num_nulls(applied_version, applied_at, digest, looked_at) IN (0, 4)",
        name="applied_as_a_whole",
    ),
    CheckConstraint("applied_version IS NULL OR claim_id IS NOT NULL", name="applied_on_a_machine"),
    CheckConstraint("applied_version <= version", name="applied_was_wanted"),
    api=("INSERT",),
    api_updates=("version", "rules", "changed_at", "due_at", "tries"),
)

# What the provider of a lease's machine lets in, where its firewall follows the rules. A lease without a row never had
# rules while such a machine was its own: the machine is as it was launched. A row is due when the lease has other rules
# or another machine than were tried last, and at `due_at`.
provider_firewalls = table(
    "provider_firewalls",
    tenant(),
    Column("lease_id", Uuid, nullable=False),
    own("lease_id", "leases"),
    PrimaryKeyConstraint("organization_id", "lease_id"),
    *work(),
    # Whose machine and which rules were tried last, and which of them the provider follows.
    Column("claim_id", Uuid),
    own("claim_id", "claims"),
    Column("tried_version", Integer),
    Column("version", Integer),
    at("applied_at"),
    CheckConstraint("(version IS NULL) = (applied_at IS NULL)", name="applied_has_its_time"),
    CheckConstraint(
        "(tried_version IS NULL) = (claim_id IS NULL) AND (version IS NULL OR tried_version IS NOT NULL)",
        name="tried_for_a_machine",
    ),
)
