"""GPU proof: what a SKU demands, what machines answered, when each is asked next.

Runs beside older code: columns have defaults, CHECKs only become wider.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIERS = "proof IN ('attested', 'listed', 'proven', 'watched')"
END_REASONS = "end_reason IN ('machine_lost', 'no_capacity', 'proof_failed', 'released', 'unfunded')"
STEPS = (
    "step IN ('booted', 'connected', 'gpus_proven', 'gpus_verified', 'keys_installed', 'launched', 'mesh_joined',"
    " 'placed')"
)
_TENANT = "nullif(current_setting('app.organization_id', true), '')::uuid"


def upgrade() -> None:
    _widen()
    _proofs()
    _proof_records()
    _proof_references()
    _protect("proofs")
    _protect("proof_records")
    _separate_tenants("proofs")


def _widen() -> None:
    for table in ("skus", "leases"):
        op.add_column(
            table, sa.Column("proof", sa.Text(), server_default=sa.text("'listed'"), nullable=False)
        )
        op.create_check_constraint(op.f(f"ck_{table}_proof_known"), table, TIERS)
    for name in ("proof_due_at", "suspect_since", "erasing_until"):
        op.add_column("instances", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_instances_proof_due",
        "instances",
        ["account", "proof_due_at"],
        unique=False,
        postgresql_where=sa.text("state = 'verified' AND proof_due_at IS NOT NULL"),
    )
    for table, name, known in (
        ("leases", "ck_leases_end_reason_known", END_REASONS),
        ("instances", "ck_instances_step_known", STEPS),
    ):
        op.drop_constraint(op.f(name), table, type_="check")
        op.create_check_constraint(op.f(name), table, known)


def _proofs() -> None:
    op.create_table(
        "proofs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("attested", sa.Boolean(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("findings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("hints", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("rates", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("gpu_uuids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("proven_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "occasion IN ('end', 'idle', 'recheck', 'start')", name=op.f("ck_proofs_occasion_known")
        ),
        sa.CheckConstraint(
            "outcome IN ('emulated', 'failed', 'passed', 'unanswered')", name=op.f("ck_proofs_outcome_known")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_proofs_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proofs")),
    )
    op.create_index("ix_proofs_lease_id_at", "proofs", ["lease_id", sa.text("at DESC"), sa.text("id DESC")])
    op.create_index("ix_proofs_instance_id_at", "proofs", ["instance_id", sa.text("at DESC")])
    op.create_index("ix_proofs_gpu_uuids", "proofs", ["gpu_uuids"], postgresql_using="gin")


def _proof_records() -> None:
    op.create_table(
        "proof_records",
        sa.Column("proof_id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_proof_records_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("proof_id", name=op.f("pk_proof_records")),
    )
    op.create_index("ix_proof_records_at", "proof_records", [sa.text("at DESC"), sa.text("proof_id DESC")])
    op.create_index(
        "ix_proof_records_failed",
        "proof_records",
        ["account", "at"],
        postgresql_where=sa.text("outcome = 'failed'"),
    )
    op.create_index("ix_proof_records_ended", "proof_records", ["at"], postgresql_where=sa.text("ended"))


def _proof_references() -> None:
    op.create_table(
        "proof_references",
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("driver_major", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("rate", sa.Double(), nullable=False),
        sa.Column("providers", sa.Integer(), nullable=False),
        sa.Column("learnt_on", sa.Text(), nullable=False),
        sa.CheckConstraint("rate > 0", name=op.f("ck_proof_references_rate_positive")),
        sa.PrimaryKeyConstraint("gpu_model", "driver_major", "phase", name=op.f("pk_proof_references")),
    )
    op.execute("GRANT SELECT ON proof_references TO splitplane_api, splitplane_reconciler")
    op.execute("GRANT INSERT, UPDATE, DELETE ON proof_references TO splitplane_reconciler")


def _protect(table: str) -> None:
    """A fact: written by the reconciler, read by both, edited by nobody."""
    op.execute(f"GRANT SELECT ON {table} TO splitplane_api, splitplane_reconciler")
    op.execute(f"GRANT INSERT ON {table} TO splitplane_reconciler")
    op.execute(
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION refuse_edit()"
    )
    op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table} EXECUTE FUNCTION refuse_edit()")


def _separate_tenants(table: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY tenant ON {table} TO splitplane_api"
        f" USING (organization_id = {_TENANT}) WITH CHECK (organization_id = {_TENANT})"
    )
    op.execute(f"CREATE POLICY system ON {table} TO splitplane_reconciler USING (true) WITH CHECK (true)")
