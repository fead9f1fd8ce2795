"""Steps of a migration besides creating a table: row-level security, grants and append-only triggers.

A migration names its tables and rights itself, so that it never changes later. A test compares the migrated
database with the tables' marks (`db/tables/marks.py`).
"""

from collections.abc import Iterable

from alembic import op

ROLES = ("splitplane_api", "splitplane_reconciler")
_TENANT = "nullif(current_setting('app.organization_id', true), '')::uuid"
_OWN = f"organization_id = {_TENANT}"

_ROLE = """
DO $$ BEGIN
  CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- Roles belong to the cluster, not to this database.
END $$
"""
_REFUSE_EDIT = """
CREATE FUNCTION refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: write a correcting row with a reason', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$
"""


def create_roles() -> None:
    for role in ROLES:
        op.execute(_ROLE.format(role=role))


def create_refusal_of_edits() -> None:
    op.execute(_REFUSE_EDIT)


def grant(
    table: str,
    *,
    fact: bool,
    api: Iterable[str] = (),
    api_updates: Iterable[str] = (),
    api_reads: Iterable[str] | None = None,
) -> None:
    """Both roles may read. The reconciler may write, but only insert facts. The API gets the named rights.

    With `api_reads` the API reads those columns alone.
    """
    read = "SELECT" if api_reads is None else f"SELECT ({', '.join(api_reads)})"
    op.execute(f"GRANT SELECT ON {table} TO splitplane_reconciler")
    op.execute(f"GRANT {read} ON {table} TO splitplane_api")
    op.execute(f"GRANT {'INSERT' if fact else 'INSERT, UPDATE, DELETE'} ON {table} TO splitplane_reconciler")
    for right in sorted(api):
        op.execute(f"GRANT {right} ON {table} TO splitplane_api")
    columns = ", ".join(api_updates)
    if columns:
        op.execute(f"GRANT UPDATE ({columns}) ON {table} TO splitplane_api")


def filter_tenants(table: str, shown: str = _OWN) -> None:
    """The API's role sees and writes only rows of the organization it acts for; the reconciler sees all."""
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON {table} TO splitplane_api USING ({shown}) WITH CHECK ({_OWN})")
    op.execute(f"CREATE POLICY system ON {table} TO splitplane_reconciler USING (true) WITH CHECK (true)")


def filter_organizations() -> None:
    """The API's role sees the organization it acts for. It cannot make one the platform's."""
    own = f"id = {_TENANT}"
    op.execute("ALTER TABLE organizations ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY tenant ON organizations TO splitplane_api USING ({own})"
        f" WITH CHECK ({own} AND NOT platform)"
    )
    op.execute(
        "CREATE POLICY system ON organizations TO splitplane_reconciler USING (true) WITH CHECK (true)"
    )


def filter_with_ours(table: str) -> None:
    """As filter_tenants, but the installation's own rows are visible too."""
    filter_tenants(table, f"organization_id IS NULL OR {_OWN}")


def filter_claimed(table: str) -> None:
    """The API's role sees machines on which the organization has or had a claim, and can write none.

    Claims are filtered too, so the look-up below finds only those of the organization that the API acts for.
    """
    claimed = f"EXISTS (SELECT FROM claims WHERE claims.machine_id = {table}.id)"
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY tenant ON {table} FOR SELECT TO splitplane_api USING ({claimed})")
    op.execute(f"CREATE POLICY system ON {table} TO splitplane_reconciler USING (true) WITH CHECK (true)")


def protect_fact(table: str) -> None:
    """Let nobody update or delete rows, or truncate the table, not even its owner."""
    op.execute(
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION refuse_edit()"
    )
    op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table} EXECUTE FUNCTION refuse_edit()")
