"""The installation itself, and the last reports of its loops."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Integer,
    PrimaryKeyConstraint,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from control_plane.db.tables.marks import Lookups, at, table, tenant

installation = table(
    "installation",
    Column("singleton", Boolean, primary_key=True, server_default=text("true")),
    Column("code", Text, nullable=False),
    # The bucket that the audit log is exported to. It is here and not in the settings of processes, which could differ:
    # one would then prune what another one had not exported.
    Column("audit_bucket", Text),
    CheckConstraint("singleton", name="one_row"),
    shared="one row: which installation this database is, and where its audit log is exported to",
)

loop_reports = table(
    "loop_reports",
    Column("loop", Text, nullable=False),
    Column("account", Text, nullable=False, server_default=text("''")),
    Column("replica", Text, nullable=False),
    at("started_at", nullable=False),
    at("finished_at", nullable=False),
    Column("every_seconds", Integer, nullable=False),
    Column("late_after_seconds", Integer, nullable=False),
    Column("looked_at", Integer, nullable=False),
    Column("acted_on", Integer, nullable=False),
    Column("errors", ARRAY(Text), nullable=False),
    Column("notes", ARRAY(Text), nullable=False),
    Column("activations", BigInteger, nullable=False, server_default=text("1")),
    PrimaryKeyConstraint("loop", "account", "replica"),
    shared="what our loops did",
)

# Which loops there are, so that one which no process runs can be seen. Every process stores all of them, repeatedly.
loop_roster = table(
    "loop_roster",
    Column("loop", Text, nullable=False),
    Column("account", Text, nullable=False, server_default=text("''")),
    Column("wing", Text, nullable=False),
    at("stored_at", nullable=False),
    PrimaryKeyConstraint("loop", "account"),
    shared="which loops we have",
)

# How many tokens for requests an organization, or one of its API keys, has left. All API processes share them, through
# the function take_request_tokens() alone. Losing them costs nothing: every bucket is full again.
request_budgets = table(
    "request_budgets",
    # The id of the organization or of the key.
    Column("bucket", Uuid, primary_key=True),
    tenant(),
    Column("level", Double, nullable=False),
    # What was granted by the last call; part of its answer.
    Column("granted", Double, nullable=False),
    at("refilled_at", nullable=False),
    unlogged=True,
    lookups=Lookups.WRITE,
)

# Which API processes there are, so that each knows its share.
api_processes = table(
    "api_processes",
    Column("id", Uuid, primary_key=True),
    at("seen_at", nullable=False),
    shared="which API processes of ours run",
    unlogged=True,
)
