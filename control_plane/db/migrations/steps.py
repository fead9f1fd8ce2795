"""Steps of a migration besides creating a table: row-level security, grants and append-only triggers.

A migration names its tables and rights itself, so that it never changes later. A test compares the migrated
database with the tables' marks (`db/tables/marks.py`).
"""

from collections.abc import Iterable

from alembic import op

_TENANT = "nullif(current_setting('app.organization_id', true), '')::uuid"
_OWN = f"organization_id = {_TENANT}"
# Organizations are filtered too, so the look-up finds the one that the API acts for and no other.
_PLATFORM = "EXISTS (SELECT FROM organizations WHERE organizations.platform)"

_REFUSE_EDIT = """
CREATE FUNCTION refuse_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: write a correcting row with a reason', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$
"""


def create_refusal_of_edits() -> None:
    op.execute(_REFUSE_EDIT)


def grant(
    table: str,
    *,
    fact: bool,
    api: Iterable[str] = (),
    api_updates: Iterable[str] = (),
    api_reads: Iterable[str] | None = None,
    admin: Iterable[str] = (),
) -> None:
    """The processes' roles may read. The reconciler may write, but only insert facts. The API gets the named rights.

    With `api_reads` the API reads those columns alone. The administrator's commands read only where they may write.
    """
    read = "SELECT" if api_reads is None else f"SELECT ({', '.join(api_reads)})"
    op.execute(f"GRANT SELECT ON {table} TO splitplane_reconciler, splitplane_backup")
    op.execute(f"GRANT {read} ON {table} TO splitplane_api")
    op.execute(f"GRANT {'INSERT' if fact else 'INSERT, UPDATE, DELETE'} ON {table} TO splitplane_reconciler")
    for right in sorted(api):
        op.execute(f"GRANT {right} ON {table} TO splitplane_api")
    columns = ", ".join(api_updates)
    if columns:
        op.execute(f"GRANT UPDATE ({columns}) ON {table} TO splitplane_api")
    administers = sorted(admin)
    if administers:
        op.execute(f"GRANT SELECT, {', '.join(administers)} ON {table} TO splitplane_admin")


def filter_tenants(table: str, *, shown: str = _OWN, written: str = _OWN, admin: bool = False) -> None:
    """The API's role sees and writes only rows of the organization it acts for.

    The reconciler sees all, and so do backups, and with `admin` the administrator's commands. Nobody else sees any row,
    not even the table's owner.
    """
    _force(table)
    op.execute(f"CREATE POLICY tenant ON {table} TO splitplane_api USING ({shown}) WITH CHECK ({written})")
    _let_all_be_seen(table, admin=admin)


def filter_organizations() -> None:
    """The API's role sees the organization it acts for. It cannot make one the platform's."""
    own = f"id = {_TENANT}"
    filter_tenants("organizations", shown=own, written=f"{own} AND NOT platform", admin=True)


def filter_with_ours(table: str, *, admin: bool = False) -> None:
    """As filter_tenants, but the installation's own rows are visible too."""
    filter_tenants(table, shown=f"organization_id IS NULL OR {_OWN}", admin=admin)


def filter_offered(table: str) -> None:
    """The API's role sees rows for everybody and for the organization it acts for.

    While it acts for the platform's organization, it sees and writes all of them.
    """
    shown = f"organization_id IS NULL OR {_OWN} OR {_PLATFORM}"
    filter_tenants(table, shown=shown, written=_PLATFORM)


def filter_claimed(table: str) -> None:
    """The API's role sees machines on which the organization has or had a claim, and can write none.

    Claims are filtered too, so the look-up below finds only those of the organization that the API acts for.
    """
    claimed = f"EXISTS (SELECT FROM claims WHERE claims.machine_id = {table}.id)"
    _force(table)
    op.execute(f"CREATE POLICY tenant ON {table} FOR SELECT TO splitplane_api USING ({claimed})")
    _let_all_be_seen(table, admin=False)


def filter_of_machine(table: str) -> None:
    """The API's role sees what belongs to machines on which the organization has or had a claim, and can write none.

    While it acts for the platform's organization, it reads all of it.
    """
    claimed = f"EXISTS (SELECT FROM claims WHERE claims.machine_id = {table}.machine_id)"
    _force(table)
    op.execute(
        f"CREATE POLICY tenant ON {table} FOR SELECT TO splitplane_api USING ({claimed} OR {_PLATFORM})"
    )
    _let_all_be_seen(table, admin=False)


def filter_watched(table: str) -> None:
    """The API's role reads the rows of the organization it acts for, and can write none.

    While it acts for the platform's organization, it reads all of them.
    """
    _force(table)
    op.execute(f"CREATE POLICY tenant ON {table} FOR SELECT TO splitplane_api USING ({_OWN} OR {_PLATFORM})")
    _let_all_be_seen(table, admin=False)


def filter_platform(table: str) -> None:
    """The API's role sees and writes rows only while it acts for the platform's organization."""
    filter_tenants(table, shown=_PLATFORM, written=_PLATFORM)


def _force(table: str) -> None:
    op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def _let_all_be_seen(table: str, *, admin: bool) -> None:
    op.execute(f"CREATE POLICY system ON {table} TO splitplane_reconciler USING (true) WITH CHECK (true)")
    op.execute(f"CREATE POLICY backup ON {table} FOR SELECT TO splitplane_backup USING (true)")
    if admin:
        op.execute(
            f"CREATE POLICY administration ON {table} TO splitplane_admin USING (true) WITH CHECK (true)"
        )


def let_ingest(table: str) -> None:
    """The ingest process adds rows of any tenant, and reads none."""
    op.execute(f"GRANT INSERT ON {table} TO splitplane_ingest")
    op.execute(f"CREATE POLICY ingest ON {table} FOR INSERT TO splitplane_ingest WITH CHECK (true)")


def let_look_up(table: str, *columns: str) -> None:
    """Functions that run with the rights of `splitplane_lookups` see these columns of all rows."""
    op.execute(f"GRANT SELECT ({', '.join(columns)}) ON {table} TO splitplane_lookups")
    op.execute(f"CREATE POLICY lookups ON {table} FOR SELECT TO splitplane_lookups USING (true)")


def let_lookups_add(table: str) -> None:
    """Functions that run with the rights of `splitplane_lookups` add rows of any tenant, and read none."""
    op.execute(f"GRANT INSERT ON {table} TO splitplane_lookups")
    op.execute(f"CREATE POLICY lookups ON {table} FOR INSERT TO splitplane_lookups WITH CHECK (true)")


def let_lookups_write(table: str) -> None:
    """Functions that run with the rights of `splitplane_lookups` read and write all rows of the table."""
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO splitplane_lookups")
    op.execute(f"CREATE POLICY lookups ON {table} TO splitplane_lookups USING (true) WITH CHECK (true)")


_GIVE_AWAY = """
DO $$ DECLARE function regprocedure;
BEGIN
  FOR function IN SELECT oid FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO splitplane_lookups', function);
  END LOOP;
END $$
"""


def give_definers_to_lookups() -> None:
    """Functions that run with their owner's rights belong to `splitplane_lookups`: the tables' owner sees no row."""
    op.execute(_GIVE_AWAY)


def let_be_backed_up() -> None:
    """A dump has more than tables with marks: the schema's version, and where sequences stand."""
    op.execute("GRANT SELECT ON alembic_version TO splitplane_backup")
    op.execute("GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO splitplane_backup")


def protect_fact(table: str) -> None:
    """Let nobody update or delete rows, or truncate the table, not even its owner."""
    op.execute(
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION refuse_edit()"
    )
    op.execute(f"CREATE TRIGGER never_emptied BEFORE TRUNCATE ON {table} EXECUTE FUNCTION refuse_edit()")
