"""An operator's word that machines of an account may be ended although many fail their proof.

Runs beside older code: nothing that was there changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ending_permits",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("until > at", name=op.f("ck_ending_permits_until_after_at")),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_ending_permits_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ending_permits")),
    )
    op.create_index("ix_ending_permits_account_until", "ending_permits", ["account", "until"])
    op.execute("GRANT SELECT ON ending_permits TO splitplane_api, splitplane_reconciler")
    op.execute("GRANT INSERT ON ending_permits TO splitplane_api")
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ending_permits"
        " FOR EACH ROW EXECUTE FUNCTION refuse_edit()"
    )
    op.execute(
        "CREATE TRIGGER never_emptied BEFORE TRUNCATE ON ending_permits EXECUTE FUNCTION refuse_edit()"
    )
