"""What the database itself enforces: tenants never meet, facts are never edited, money adds up."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TENANT_TABLES = (
    "api_keys",
    "charges",
    "holds",
    "idempotency_keys",
    "instances",
    "intervals",
    "journal",
    "leases",
    "networks",
    "peers",
    "placements",
    "postings",
    "reports",
    "ssh_keys",
    "standings",
    "transactions",
    "unrated",
)
SHARED_TABLES = (
    "budgets",
    "installation",
    "loop_reports",
    "offers",
    "prices",
    "provider_accounts",
    "skus",
    "strangers",
)
FACT_TABLES = (
    "charges",
    "intervals",
    "journal",
    "placements",
    "postings",
    "prices",
    "reports",
    "transactions",
)

# The public process writes intent and money in; it changes no fact, and no provider row.
API_MAY = {
    "INSERT": (
        "api_keys",
        "holds",
        "idempotency_keys",
        "journal",
        "leases",
        "organizations",
        "postings",
        "ssh_keys",
        "standings",
        "transactions",
    ),
    "UPDATE": ("api_keys", "holds", "instances", "leases", "standings"),
    "DELETE": ("ssh_keys",),
}

ROLE = """
DO $$ BEGIN
  CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- Roles belong to the cluster, not to this database.
END $$
"""

REFUSE_EDIT = """
CREATE FUNCTION refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: write a correcting row with a reason', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$
"""

# With the owner's rights: the sum must not depend on whose rows the writer may see when it commits.
TRANSACTION_BALANCES = """
CREATE FUNCTION transaction_balances() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, public AS $$
DECLARE total numeric;
BEGIN
  SELECT sum(amount_nano) INTO total FROM public.postings WHERE transaction_id = NEW.transaction_id;
  IF total IS DISTINCT FROM 0 THEN
    RAISE EXCEPTION 'transaction % is out of balance by % nano-USD', NEW.transaction_id, total
      USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$
"""

# Before a key is known there is no tenant: this one look-up runs with the owner's rights.
API_KEY_OWNER = """
CREATE FUNCTION api_key_owner(secret bytea)
RETURNS TABLE (organization_id uuid, api_key_id uuid, operator boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT k.organization_id, k.id, k.operator FROM public.api_keys k
  WHERE k.secret_sha256 = secret AND k.revoked_at IS NULL
$$
"""

_TENANT = "nullif(current_setting('app.organization_id', true), '')::uuid"


def upgrade() -> None:
    for role in ("splitplane_api", "splitplane_reconciler"):
        op.execute(ROLE.format(role=role))
    op.execute("INSERT INTO installation (code) VALUES (substr(md5(gen_random_uuid()::text), 1, 8))")
    _grant()
    _separate_tenants()
    _protect_facts()
    op.execute(API_KEY_OWNER)
    op.execute("REVOKE ALL ON FUNCTION api_key_owner(bytea) FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION api_key_owner(bytea) TO splitplane_api")


def _grant() -> None:
    tables = (*TENANT_TABLES, *SHARED_TABLES, "organizations")
    for table in tables:
        op.execute(f"GRANT SELECT ON {table} TO splitplane_api, splitplane_reconciler")
        op.execute(f"GRANT INSERT ON {table} TO splitplane_reconciler")
        if table not in FACT_TABLES:
            op.execute(f"GRANT UPDATE, DELETE ON {table} TO splitplane_reconciler")
    for right, allowed in API_MAY.items():
        for table in allowed:
            op.execute(f"GRANT {right} ON {table} TO splitplane_api")


def _separate_tenants() -> None:
    for table in (*TENANT_TABLES, "organizations"):
        column = "id" if table == "organizations" else "organization_id"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant ON {table} TO splitplane_api"
            f" USING ({column} = {_TENANT}) WITH CHECK ({column} = {_TENANT})"
        )
        op.execute(f"CREATE POLICY system ON {table} TO splitplane_reconciler USING (true) WITH CHECK (true)")


def _protect_facts() -> None:
    op.execute(REFUSE_EDIT)
    for table in FACT_TABLES:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_edit()"
        )
        op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table} EXECUTE FUNCTION refuse_edit()")
    op.execute(TRANSACTION_BALANCES)
    op.execute(
        "CREATE CONSTRAINT TRIGGER balances AFTER INSERT ON postings DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION transaction_balances()"
    )
