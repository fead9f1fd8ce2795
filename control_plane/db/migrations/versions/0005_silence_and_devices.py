"""What GPUs attested, silence as a failed proof, passes by their time, and how long a loop may be silent.

Runs beside older code: the new columns have defaults, and older code reads none of the indexes by name.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SUSPECT = "state = 'verified' AND suspect_since IS NOT NULL"
SPEAKS_AGAINST = "ended OR outcome IN ('failed', 'emulated')"


def upgrade() -> None:
    op.add_column(
        "loop_reports",
        sa.Column("late_after_seconds", sa.Integer(), server_default=sa.text("60"), nullable=False),
    )
    op.add_column(
        "proofs",
        sa.Column("devices", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
    )
    op.create_index("ix_proofs_devices", "proofs", ["devices"], postgresql_using="gin")
    op.create_index("ix_instances_suspect", "instances", ["account"], postgresql_where=sa.text(SUSPECT))
    op.create_index("ix_proofs_passed", "proofs", ["at"], postgresql_where=sa.text("outcome = 'passed'"))
    op.drop_index("ix_proof_records_failed", "proof_records")
    op.create_index(
        "ix_proof_records_failed",
        "proof_records",
        ["account", "at"],
        postgresql_where=sa.text(SPEAKS_AGAINST),
    )
