"""The spine: organizations, offers, leases, instances, the journal, usage and the ledger."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("free_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("account", "bucket", name=op.f("pk_budgets")),
    )
    op.create_table(
        "installation",
        sa.Column("singleton", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.CheckConstraint("singleton", name=op.f("ck_installation_one_row")),
        sa.PrimaryKeyConstraint("singleton", name=op.f("pk_installation")),
    )
    op.create_table(
        "loop_reports",
        sa.Column("loop", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("every_seconds", sa.Integer(), nullable=False),
        sa.Column("looked_at", sa.Integer(), nullable=False),
        sa.Column("acted_on", sa.Integer(), nullable=False),
        sa.Column("errors", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("notes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("activations", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("loop", "account", "replica", name=op.f("pk_loop_reports")),
    )
    op.create_table(
        "organizations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("suspended", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
        sa.UniqueConstraint("name", name=op.f("uq_organizations_name")),
    )
    op.create_table(
        "provider_accounts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("listing_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("offers_due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("listing_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listing_size", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("listing_foreign", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("offers_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_lists", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("frozen_why", sa.Text(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_why", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_provider_accounts")),
    )
    op.create_table(
        "skus",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.CheckConstraint("gpu_count > 0", name=op.f("ck_skus_gpu_count_positive")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_skus")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("operator", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_api_keys_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_api_keys_secret_sha256")),
    )
    op.create_index("ix_api_keys_organization_id", "api_keys", ["organization_id"], unique=False)
    op.create_table(
        "charges",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("nano_per_gpu_hour", sa.BigInteger(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("rated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("amount_nano >= 0", name=op.f("ck_charges_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_charges_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charges")),
        sa.UniqueConstraint("lease_id", "number", name=op.f("uq_charges_lease_id_number")),
    )
    op.create_index(
        "ix_charges_organization_id_started_at", "charges", ["organization_id", "started_at"], unique=False
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_idempotency_keys_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("organization_id", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "journal",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state_before", sa.Text(), nullable=True),
        sa.Column("state_after", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_journal_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_journal")),
    )
    op.create_index("ix_journal_lease_id_number", "journal", ["lease_id", "number"], unique=False)
    op.create_table(
        "leases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("nano_per_gpu_hour", sa.BigInteger(), nullable=False),
        sa.Column("regions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("providers", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("price_nano_per_hour_max", sa.BigInteger(), nullable=True),
        sa.Column("authorized_keys", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_why", sa.Text(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("billed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("funding_warned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("metered_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("intervals", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("meter_closed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "(state = 'ready') <= (ready_at IS NOT NULL)", name=op.f("ck_leases_ready_has_its_time")
        ),
        sa.CheckConstraint(
            "end_reason IN ('machine_lost', 'no_capacity', 'released', 'unfunded')",
            name=op.f("ck_leases_end_reason_known"),
        ),
        sa.CheckConstraint(
            "state IN ('ended', 'ending', 'placing', 'ready', 'starting')", name=op.f("ck_leases_state_known")
        ),
        sa.CheckConstraint(
            "NOT meter_closed OR billed_until IS NOT NULL", name=op.f("ck_leases_meter_closes_after_the_end")
        ),
        sa.CheckConstraint(
            "billed_until IS NULL OR ready_at IS NOT NULL", name=op.f("ck_leases_billed_only_after_ready")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_leases_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(
        "ix_leases_ending", "leases", ["id"], unique=False, postgresql_where=sa.text("state = 'ending'")
    )
    op.create_index(
        "ix_leases_live",
        "leases",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('placing', 'ready', 'starting')"),
    )
    op.create_index(
        "ix_leases_metered",
        "leases",
        ["metered_until"],
        unique=False,
        postgresql_where=sa.text("ready_at IS NOT NULL AND NOT meter_closed"),
    )
    op.create_index(
        "ix_leases_organization_id_created_at",
        "leases",
        ["organization_id", sa.literal_column("created_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_leases_placing", "leases", ["due_at"], unique=False, postgresql_where=sa.text("state = 'placing'")
    )
    op.create_table(
        "networks",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("synced_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("number > 0", name=op.f("ck_networks_number_positive")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_networks_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_networks")),
        sa.UniqueConstraint("number", name=op.f("uq_networks_number")),
    )
    op.create_table(
        "offers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("native_region", sa.Text(), nullable=False),
        sa.Column("native_type", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Text(), nullable=False),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("available", sa.Boolean(), nullable=False),
        sa.Column("confidence", sa.Text(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_offers_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_offers")),
    )
    op.create_index("ix_offers_account", "offers", ["account"], unique=False)
    op.create_index("ix_offers_gpu_model_gpu_count", "offers", ["gpu_model", "gpu_count"], unique=False)
    op.create_table(
        "prices",
        sa.Column("sku", sa.Text(), nullable=False),
        sa.Column("effective_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("nano_per_gpu_hour", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("nano_per_gpu_hour >= 0", name=op.f("ck_prices_not_negative")),
        sa.ForeignKeyConstraint(["sku"], ["skus.name"], name=op.f("fk_prices_sku_skus")),
        sa.PrimaryKeyConstraint("sku", "effective_from", name=op.f("pk_prices")),
    )
    op.create_table(
        "reports",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reading", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_reports_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
    )
    op.create_index("ix_reports_instance_id", "reports", ["instance_id"], unique=False)
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_ssh_keys_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_ssh_keys_organization_id_name")),
    )
    op.create_table(
        "standings",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("gpu_quota", sa.Integer(), nullable=False),
        sa.Column("gpus_held", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("posted_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("held_nano", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("gpus_held >= 0", name=op.f("ck_standings_gpus_held_not_negative")),
        sa.CheckConstraint("held_nano >= 0", name=op.f("ck_standings_held_not_negative")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_standings_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_standings")),
    )
    op.create_table(
        "strangers",
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("native_status", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lists_seen", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("terminate_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_strangers_account_provider_accounts")
        ),
        sa.PrimaryKeyConstraint("account", "provider_ref", name=op.f("pk_strangers")),
    )
    op.create_table(
        "transactions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('top_up', 'usage')", name=op.f("ck_transactions_kind_known")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_transactions_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transactions")),
        sa.UniqueConstraint("key", name=op.f("uq_transactions_key")),
    )
    op.create_index("ix_transactions_organization_id", "transactions", ["organization_id"], unique=False)
    op.create_table(
        "unrated",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_unrated_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_unrated")),
    )
    op.create_table(
        "holds",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("amount_nano >= 0", name=op.f("ck_holds_not_negative")),
        sa.CheckConstraint(
            "released_at IS NULL OR amount_nano = 0", name=op.f("ck_holds_released_holds_nothing")
        ),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name=op.f("fk_holds_lease_id_leases")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_holds_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("pk_holds")),
    )
    op.create_index(
        "ix_holds_open",
        "holds",
        ["organization_id"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("native_region", sa.Text(), nullable=False),
        sa.Column("native_type", sa.Text(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("cost_nano_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("launch_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claim_token", sa.Uuid(), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("host_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("terminate_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fail_reason", sa.Text(), nullable=True),
        sa.Column("fail_why", sa.Text(), nullable=True),
        sa.Column("gone_evidence", sa.Text(), nullable=True),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("provider_state", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("ssh_port", sa.Integer(), server_default=sa.text("22"), nullable=False),
        sa.Column("sighted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("missed_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("missed_lists", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("step_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state <> 'gone' OR asked_at IS NULL OR gone_evidence IS NOT NULL",
            name=op.f("ck_instances_gone_needs_evidence"),
        ),
        sa.CheckConstraint(
            "state IN ('booting', 'bootstrapping', 'ending', 'gone', 'intended', 'launching', 'verified')",
            name=op.f("ck_instances_state_known"),
        ),
        sa.CheckConstraint(
            "state IN ('intended', 'gone') OR asked_at IS NOT NULL",
            name=op.f("ck_instances_asked_before_effect"),
        ),
        sa.CheckConstraint(
            "step IN ('booted', 'connected', 'gpus_verified', 'keys_installed', 'launched', 'mesh_joined', 'placed')",
            name=op.f("ck_instances_step_known"),
        ),
        sa.ForeignKeyConstraint(
            ["account"], ["provider_accounts.name"], name=op.f("fk_instances_account_provider_accounts")
        ),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name=op.f("fk_instances_lease_id_leases")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_instances_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("launch_key", name=op.f("uq_instances_launch_key")),
    )
    op.create_index("ix_instances_lease_id", "instances", ["lease_id"], unique=False)
    op.create_index(
        "ix_instances_open",
        "instances",
        ["account", "state", "due_at"],
        unique=False,
        postgresql_where=sa.text("state <> 'gone'"),
    )
    op.create_index(
        "uq_instances_provider_ref",
        "instances",
        ["account", "provider_ref"],
        unique=True,
        postgresql_where=sa.text(
            "provider_ref IS NOT NULL AND state IN ('booting', 'bootstrapping', 'ending', 'launching', 'verified')"
        ),
    )
    op.create_index(
        "uq_instances_wanted",
        "instances",
        ["lease_id"],
        unique=True,
        postgresql_where=sa.text(
            "state IN ('intended', 'launching', 'booting', 'bootstrapping', 'verified')"
        ),
    )
    op.create_table(
        "intervals",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gpu_seconds_before", sa.BigInteger(), nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("ended_at >= started_at", name=op.f("ck_intervals_ends_after_start")),
        sa.CheckConstraint(
            "gpu_seconds >= 0 AND gpu_seconds_before >= 0", name=op.f("ck_intervals_not_negative")
        ),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name=op.f("fk_intervals_lease_id_leases")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_intervals_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_intervals")),
    )
    op.create_table(
        "placements",
        sa.Column("lease_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("chosen", sa.Text(), nullable=True),
        sa.Column("ranking", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["lease_id"], ["leases.id"], name=op.f("fk_placements_lease_id_leases")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_placements_organization_id_organizations"),
        ),
        sa.PrimaryKeyConstraint("lease_id", "number", name=op.f("pk_placements")),
    )
    op.create_table(
        "postings",
        sa.Column("transaction_id", sa.Uuid(), nullable=False),
        sa.Column("line", sa.SmallInteger(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("account_kind", sa.Text(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "account_kind IN ('cash', 'revenue', 'wallet')", name=op.f("ck_postings_account_kind_known")
        ),
        sa.CheckConstraint("amount_nano <> 0", name=op.f("ck_postings_not_zero")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_postings_organization_id_organizations")
        ),
        sa.ForeignKeyConstraint(
            ["transaction_id"], ["transactions.id"], name=op.f("fk_postings_transaction_id_transactions")
        ),
        sa.PrimaryKeyConstraint("transaction_id", "line", name=op.f("pk_postings")),
    )
    op.create_index(
        "ix_postings_organization_id_account_kind",
        "postings",
        ["organization_id", "account_kind"],
        unique=False,
    )
    op.create_table(
        "peers",
        sa.Column("instance_id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_peers_instance_id_instances")
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_peers_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_peers")),
        sa.UniqueConstraint("organization_id", "slot", name=op.f("uq_peers_organization_id_slot")),
    )
