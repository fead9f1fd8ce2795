"""Our accounts at providers, what operators ask for there, their call budgets, and the orphans there."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from control_plane.db.tables.marks import Lookups, Tenancy, at, known, table, work
from control_plane.domain.account_request import AccountOutcome, AccountVerb
from control_plane.domain.actor import ActorKind
from control_plane.domain.orphan import Choice, Origin

provider_accounts = table(
    "provider_accounts",
    Column("name", Text, primary_key=True),
    Column("provider", Text, nullable=False),
    # One replica at a time lists or refreshes an account: the one that moves the due time forward.
    at("listing_due_at", nullable=False),
    at("offers_due_at", nullable=False),
    # The same for what launches made beside their machines; null before the first time.
    at("children_due_at"),
    # When they were listed last, and how many there were: an account with children is not removed.
    at("children_listed_at"),
    Column("children_listed", Integer, nullable=False, server_default=text("0")),
    # While its lists of children look wrong (domain/freeze.py).
    at("children_frozen_since"),
    Column("children_frozen_lists", Integer, nullable=False, server_default=text("0")),
    Column("children_frozen_why", Text),
    Column("children_frozen_missing", Integer, nullable=False, server_default=text("0")),
    # The same for the work that it plans on machines.
    at("work_due_at"),
    # The same for terminating its orphans.
    at("orphans_due_at"),
    # When the last list was asked for that is stored, and the last one that is evidence.
    at("listed_at"),
    at("listing_asked_at"),
    Column("listing_size", Integer, nullable=False, server_default=text("0")),
    Column("listing_foreign", Integer, nullable=False, server_default=text("0")),
    at("offers_at"),
    at("frozen_since"),
    Column("frozen_lists", Integer, nullable=False, server_default=text("0")),
    Column("frozen_why", Text),
    Column("frozen_missing", Integer, nullable=False, server_default=text("0")),
    at("failing_since"),
    Column("failing_why", Text),
    # The same for its offers, which are listed apart: that says nothing about its machines.
    at("offers_failing_since"),
    Column("offers_failing_why", Text),
    Column("offers_left_out", JSONB, nullable=False, server_default=text("'[]'")),
    # Credentials that operators gave us; null for an account that is configured in the reconciler's environment.
    Column("secret_id", Uuid, ForeignKey("secrets.id")),
    # Counts the credentials, so that every replica notices new ones.
    Column("credentials_version", Integer, nullable=False, server_default=text("0")),
    at("credentials_since"),
    # Nothing is ordered there from this time on.
    at("drained_at"),
    # Orphans are terminated there from this time on; before that they are only reported.
    at("armed_at"),
    # Why a loop disarmed it; null when it is armed, or when no loop did.
    Column("disarmed_why", Text),
    Column("drained_why", Text),
    at("removed_at"),
    CheckConstraint("removed_at IS NULL OR secret_id IS NULL", name="removed_has_no_credentials"),
    shared="ours",
)

# What operators ask for concerning an account. The API stores it, and the reconciler does it and stores the outcome.
account_requests = table(
    "account_requests",
    Column("id", Uuid, primary_key=True),
    Column("account", Text, nullable=False),
    Column("verb", Text, nullable=False),
    # The credentials of an addition or a rotation; null again once they were put in force or discarded.
    Column("secret_id", Uuid, ForeignKey("secrets.id")),
    Column("why", Text),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    at("asked_at", nullable=False),
    Column("outcome", Text),
    Column("code", Text),
    Column("said", Text),
    at("finished_at"),
    *work(),
    known("verb", AccountVerb),
    known("outcome", AccountOutcome),
    known("actor_kind", ActorKind),
    CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="outcome_when_finished"),
    Index("ix_account_requests_open", "due_at", postgresql_where=text("finished_at IS NULL")),
    Index("ix_account_requests_account_asked_at", "account", "asked_at"),
    tenancy=Tenancy.PLATFORM,
    api=("INSERT",),
)

# Machines with our launch keys that no open record matches. One that a record adopts is removed again; one that the
# provider no longer lists is kept for a while, with `gone_at`.
orphans = table(
    "orphans",
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider_ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    Column("native_status", Text, nullable=False),
    # How it became an orphan, and what it costs; null where neither a record nor an offer of its
    # type tells the price.
    Column("origin", Text, nullable=False),
    Column("cost_nano_per_hour", BigInteger),
    at("first_seen_at", nullable=False),
    at("last_seen_at", nullable=False),
    Column("lists_seen", Integer, nullable=False, server_default=text("1")),
    at("terminate_asked_at"),
    # Why the record of its launch key cannot take it; null when it can.
    Column("not_adopted_why", Text),
    Column("note", Text),
    Column("held_code", Text),
    Column("held_why", Text),
    at("gone_at"),
    known("origin", Origin),
    PrimaryKeyConstraint("account", "provider_ref"),
    Index("ix_orphans_gone", "gone_at", postgresql_where=text("gone_at IS NOT NULL")),
    shared="machines that no record matches",
)

# An operator's decision on one orphan. The last one counts, for the orphan that was listed at the time.
orphan_decisions = table(
    "orphan_decisions",
    Column("id", Uuid, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider_ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    Column("choice", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    at("at", nullable=False),
    known("choice", Choice),
    known("actor_kind", ActorKind),
    Index("ix_orphan_decisions_account_provider_ref", "account", "provider_ref"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# An operator's permit to terminate machines of an account although many of them fail their proof; or, with
# `frozen_since` and `missing`, to give up so many machines that lists have missed since then.
termination_permits = table(
    "termination_permits",
    Column("id", Uuid, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("why", Text, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    at("at", nullable=False),
    at("until", nullable=False),
    at("frozen_since"),
    Column("missing", Integer),
    known("actor_kind", ActorKind),
    CheckConstraint("until > at", name="until_after_at"),
    CheckConstraint("(frozen_since IS NULL) = (missing IS NULL)", name="missing_since"),
    Index("ix_termination_permits_account_until", "account", "until"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

# What launches made beside their machines, such as volumes, and nobody needs any more, as the last list showed it.
leftovers = table(
    "leftovers",
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    Column("machine_id", Uuid, ForeignKey("machines.id")),
    Column("cost_nano_per_hour", BigInteger),
    at("since", nullable=False),
    Column("why", Text, nullable=False),
    # How often its deletion failed, and what the provider said last.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("failed_why", Text),
    # When the provider accepted its deletion last: a list need not show it any more.
    at("accepted_at"),
    PrimaryKeyConstraint("account", "kind", "ref"),
    shared="what launches left at our accounts",
)

# What launches made beside their machines and providers charge for by themselves once the machine is gone, with what
# it costs. Kept, because finance reads what it has cost.
priced_children = table(
    "priced_children",
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("provider", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    # What it cost when it was first seen, of an hour.
    Column("nano_per_hour", BigInteger, nullable=False),
    # The first list that showed it; the last one, once one lacks it; and that one.
    at("first_seen_at", nullable=False),
    at("last_seen_at"),
    at("gone_at"),
    # Since when it serves nobody, and the machine that it served; null while its machine may need it.
    at("left_at"),
    Column("machine_id", Uuid, ForeignKey("machines.id")),
    UniqueConstraint("account", "kind", "ref", "launch_key"),
    CheckConstraint("(last_seen_at IS NULL) = (gone_at IS NULL)", name="last_seen_when_gone"),
    Index("ix_priced_children_listed", "account", postgresql_where=text("gone_at IS NULL")),
    Index("ix_priced_children_left_at", "left_at", postgresql_where=text("left_at IS NOT NULL")),
    tenancy=Tenancy.PLATFORM,
    lookups=Lookups.READ,
)

# An operator's decision that something in `leftovers` is deleted, whatever holds it back.
leftover_decisions = table(
    "leftover_decisions",
    Column("id", Uuid, primary_key=True),
    Column("account", Text, ForeignKey("provider_accounts.name"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("ref", Text, nullable=False),
    Column("launch_key", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text),
    at("at", nullable=False),
    known("actor_kind", ActorKind),
    Index("ix_leftover_decisions_account_kind_ref", "account", "kind", "ref"),
    tenancy=Tenancy.PLATFORM,
    fact=True,
    api=("INSERT",),
)

call_budgets = table(
    "call_budgets",
    Column("account", Text, nullable=False),
    Column("bucket", Text, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("burst", Integer),
    at("free_at", nullable=False),
    at("closed_until"),
    Column("share", Double, server_default=text("1"), nullable=False),
    at("share_at"),
    Column("ceiling", Double, server_default=text("1"), nullable=False),
    at("minute"),
    Column("this_minute", Integer, server_default=text("0"), nullable=False),
    Column("last_minute", Integer, server_default=text("0"), nullable=False),
    PrimaryKeyConstraint("account", "bucket"),
    shared="our pace towards providers",
)
