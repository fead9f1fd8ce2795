"""What we sell, at which price, and what providers offer us."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Tenancy, among, at, known, table, tenant
from control_plane.domain.block import BlockScope
from control_plane.domain.cpu import Architecture
from control_plane.domain.failure import FailReason
from control_plane.domain.firewall import ProviderFirewall
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import COMMITTED_DAYS_MAX, KEPT, PurchaseKind
from control_plane.domain.sla import SlaTier

skus = table(
    "skus",
    Column("name", Text, primary_key=True),
    Column("gpu_model", Text),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("disk_gib", Integer, nullable=False),
    Column("capacity", Text, nullable=False),
    # The proof that the machine of a new lease has to give.
    Column("proof", Text, nullable=False),
    CheckConstraint("gpu_count >= 0", name="gpu_count_not_negative"),
    CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name="gpus_have_a_model"),
    CheckConstraint(f"gpu_count > 0 OR proof = '{Tier.LISTED}'", name="no_gpus_prove_nothing"),
    known("proof", Tier),
    shared="the catalogue is the same for everyone",
    admin=("INSERT", "UPDATE"),
)

# One row for every load that changed a price. A charge names the version that its price is from.
price_books = table(
    "price_books",
    Column("version", Integer, Identity(always=True), primary_key=True),
    at("effective_from", nullable=False),
    shared="the price book is the same for everyone",
    fact=True,
    admin=("INSERT",),
)

# Books that were withdrawn before they were in force, and never are.
price_book_withdrawals = table(
    "price_book_withdrawals",
    Column("version", Integer, ForeignKey("price_books.version"), primary_key=True),
    at("withdrawn_at", nullable=False),
    shared="the price book is the same for everyone",
    fact=True,
    admin=("INSERT",),
)

prices = table(
    "prices",
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    # `anywhere`, or a region with a price of its own.
    Column("region", Text, nullable=False),
    # `any`, or an SLA tier with a price of its own.
    Column("sla", Text, nullable=False),
    at("effective_from", nullable=False),
    Column("price_book", Integer, ForeignKey("price_books.version"), nullable=False),
    # Null in a region or of a tier: it has no price of its own from then on.
    Column("nano_per_unit_hour", BigInteger),
    # While the machine is stopped. Null: the same.
    Column("stopped_nano_per_unit_hour", BigInteger),
    # As spot. Null: it is not sold so.
    Column("spot_nano_per_unit_hour", BigInteger),
    # Of an interruptible lease. Null: it is not sold so.
    Column("interruptible_nano_per_unit_hour", BigInteger),
    # For a term. Null: it is not sold so.
    Column("committed_nano_per_unit_hour", BigInteger),
    # The term, which is the same everywhere and with every tier.
    Column("committed_days", Integer),
    PrimaryKeyConstraint("sku", "region", "sla", "effective_from"),
    CheckConstraint(f"sla = 'any' OR {among('sla', SlaTier)}", name="sla_known"),
    CheckConstraint("nano_per_unit_hour >= 0", name="not_negative"),
    CheckConstraint(
        "nano_per_unit_hour IS NOT NULL OR region <> 'anywhere' OR sla <> 'any'", name="anywhere_has_a_price"
    ),
    CheckConstraint("spot_nano_per_unit_hour IS NULL OR sla = 'any'", name="nothing_is_promised_with_spot"),
    CheckConstraint(
        "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="stopped_costs_no_more"
    ),
    CheckConstraint("spot_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="spot_costs_no_more"),
    CheckConstraint(
        "interruptible_nano_per_unit_hour IS NULL OR sla = 'any'",
        name="nothing_is_promised_when_interruptible",
    ),
    CheckConstraint(
        "interruptible_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour",
        name="interruptible_costs_no_more",
    ),
    CheckConstraint(
        "committed_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="committed_costs_no_more"
    ),
    CheckConstraint(
        "CASE WHEN region = 'anywhere' AND sla = 'any'"
        " THEN (committed_days IS NULL) = (committed_nano_per_unit_hour IS NULL) ELSE committed_days IS NULL END",
        name="committed_for_one_term",
    ),
    CheckConstraint(f"committed_days BETWEEN 1 AND {COMMITTED_DAYS_MAX}", name="term_bounded"),
    shared="the price book is the same for everyone",
    fact=True,
    admin=("INSERT",),
)

# What finance agreed on with customers. A price is never edited; its end may be brought forward.
price_agreements = table(
    "price_agreements",
    Column("id", Uuid, primary_key=True),
    tenant(),
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    # Null: anywhere.
    Column("region", Text),
    # Null: with every tier.
    Column("sla", Text),
    Column("purchase", Text, nullable=False),
    Column("nano_per_unit_hour", BigInteger, nullable=False),
    # Null: that of the price book, or the price itself where it is lower.
    Column("stopped_nano_per_unit_hour", BigInteger),
    at("valid_from", nullable=False),
    # Exclusive; null: until it is ended. The same as `valid_from` when it was ended before that.
    at("valid_until"),
    at("agreed_at", nullable=False),
    Column("agreed_by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    at("ended_at"),
    Column("ended_by", Text),
    known("purchase", PurchaseKind),
    known("sla", SlaTier),
    CheckConstraint(f"sla IS NULL OR {among('purchase', KEPT)}", name="promises_are_for_what_is_kept"),
    CheckConstraint("nano_per_unit_hour >= 0", name="not_negative"),
    CheckConstraint(
        "stopped_nano_per_unit_hour BETWEEN 0 AND nano_per_unit_hour", name="stopped_costs_no_more"
    ),
    CheckConstraint("valid_until >= valid_from", name="ends_after_start"),
    CheckConstraint("(ended_at IS NULL) = (ended_by IS NULL)", name="ended_by_somebody"),
    UniqueConstraint("organization_id", "id"),
    Index("ix_price_agreements_organization_id_sku", "organization_id", "sku", "valid_from"),
    Index("ix_price_agreements_agreed_at", "agreed_at", "id"),
    tenancy=Tenancy.OFFERED,
    api=("INSERT",),
    api_updates=("valid_until", "ended_at", "ended_by"),
)

offers = table(
    "offers",
    Column("key", Text, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("native_region", Text, nullable=False),
    Column("native_type", Text, nullable=False),
    Column("gpu_model", Text),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpus", Integer, nullable=False),
    Column("memory_gib", Integer, nullable=False),
    Column("disk_gib", Integer, nullable=False),
    Column("capacity", Text, nullable=False),
    Column("cost_nano_per_hour", BigInteger, nullable=False),
    Column("available", Boolean, nullable=False),
    Column("confidence", Text, nullable=False),
    at("observed_at", nullable=False),
    Column("architecture", Text, nullable=False),
    Column("spot", Boolean, nullable=False),
    # Whether it can be ordered through us: we order no spot capacity from some who list it.
    Column("orderable", Boolean, nullable=False),
    Column("eviction_notice_seconds", Integer),
    Column("price_source", Text, nullable=False),
    Column("network_gbps", Integer),
    Column("ephemeral_gib", Integer),
    # By these, offers are ranked: how the provider bills, and what became of the machines lately.
    Column("setup_seconds", Integer, nullable=False),
    Column("increment_seconds", Integer, nullable=False),
    Column("minimum_seconds", Integer, nullable=False),
    Column("billed_while_booting", Boolean, nullable=False),
    Column("tried", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    # What can be done with the power of its machines.
    Column("power", JSONB, nullable=False),
    # What the provider filters before them.
    Column("firewall", Text, nullable=False),
    known("firewall", ProviderFirewall),
    # What the provider bills for a machine that is stopped. Null: the same as for one that runs.
    Column("stopped_cost_nano_per_hour", BigInteger),
    known("architecture", Architecture),
    CheckConstraint("(gpu_model IS NULL) = (gpu_count = 0)", name="gpus_have_a_model"),
    Index("ix_offers_gpu_model_gpu_count", "gpu_model", "gpu_count"),
    Index("ix_offers_account", "account"),
    shared="what providers offer us",
)

# What is not ordered for a while, because a provider refused the order of this machine. Deleted when it has ended.
offer_blocks = table(
    "offer_blocks",
    Column("machine_id", Uuid, ForeignKey("machines.id"), primary_key=True),
    Column("scope", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("region", Text, nullable=False),
    Column("native_region", Text, nullable=False),
    Column("native_type", Text, nullable=False),
    Column("spot", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    at("since", nullable=False),
    at("until", nullable=False),
    known("scope", BlockScope),
    known("reason", FailReason),
    Index("ix_offer_blocks_account_until", "account", "until"),
    Index("ix_offer_blocks_until", "until"),
    shared="what providers refused us",
)
