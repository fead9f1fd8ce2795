"""A process refuses to start on a database whose own rules are missing, weakened or switched off, and says which."""

from contextlib import suppress
from pathlib import Path

import asyncpg
import msgspec
import pytest
from sqlalchemy import text

from control_plane.db import defences, privileges
from control_plane.db.engine import Database, Role
from control_plane.db.tables.every import FACTS, metadata
from tests.support import golden
from tests.support.database import login_url

pytestmark = pytest.mark.database
ROUTINES = Path("control_plane/db/routines.json")


class _RolledBackError(Exception):
    pass


async def _fault_with(database: Database, role: Role, change: str) -> str | None:
    """What a process finds while a change is in force, in a transaction that is rolled back."""
    found: str | None = None
    with suppress(_RolledBackError):
        async with database.transaction() as connection:
            for statement in change.split(" ;; "):
                await connection.execute(text(statement))
            found = await defences.why_weakened(connection, role)
            raise _RolledBackError
    return found


async def _refusal(url: str, role: Role) -> str | None:
    db = Database(login_url(url, role), role=role, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            return await privileges.why_refused(connection, role)
    finally:
        await db.close()


async def test_functions_and_triggers_are_those_that_were_reviewed(database_url: str) -> None:
    """Also the check of the check: a database that nobody has touched has no fault."""
    db = Database(database_url, role=None, pool_size=1, readers=1)
    try:
        async with db.reading() as connection:
            found = await defences.routines_of(connection)
    finally:
        await db.close()
    golden.check(ROUTINES, msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n")
    for role in (Role.API, Role.RECONCILER):
        assert await _refusal(database_url, role) is None


def test_every_fact_is_among_the_tables_whose_triggers_are_looked_at() -> None:
    triggers = defences.expected_routines().triggers
    for table in FACTS:
        assert {f"{table}.append_only", f"{table}.never_emptied"} <= triggers.keys(), table
    assert {place.partition(".")[0] for place in triggers} <= metadata.tables.keys()


_ORGANIZATION = "nullif(current_setting('app.organization_id', true), '')::uuid"
WEAKENED: dict[str, str] = {
    # Row-level security of a table.
    "ALTER TABLE leases DISABLE ROW LEVEL SECURITY": "row-level security of the table leases is disabled",
    "ALTER TABLE leases NO FORCE ROW LEVEL SECURITY": "row-level security of the table leases is not forced",
    "ALTER TABLE leases OWNER TO postgres": "table leases belongs to postgres instead of splitplane_owner",
    "CREATE RULE r AS ON DELETE TO charges DO INSTEAD NOTHING": "table charges has a rewrite rule",
    # Its policies.
    "DROP POLICY tenant ON leases": "table leases lacks the policy tenant",
    "ALTER POLICY tenant ON leases USING (true)": "policy tenant of the table leases shows other rows",
    "ALTER POLICY tenant ON leases USING (organization_id IS NOT NULL)": "policy tenant of the table leases shows",
    f"ALTER POLICY tenant ON leases USING (organization_id = {_ORGANIZATION} OR name = 'x')": "leases shows other",
    "ALTER POLICY tenant ON leases WITH CHECK (true)": "policy tenant of the table leases lets other rows be written",
    "ALTER POLICY tenant ON leases TO splitplane_api, splitplane_backup": "policy tenant of the table leases is for",
    "ALTER POLICY tenant ON leases TO PUBLIC": "policy tenant of the table leases is for public instead of",
    "ALTER POLICY backup ON leases TO splitplane_api": "policy backup of the table leases is for splitplane_api",
    "ALTER POLICY system ON leases USING (false)": "policy system of the table leases shows other rows",
    "ALTER POLICY tenant ON leases RENAME TO other": "table leases lacks the policy tenant",
    "CREATE POLICY wide ON leases TO splitplane_api, splitplane_reconciler USING (true)": "leases has a policy wide",
    "CREATE POLICY wide ON machines USING (true)": "table machines has a policy wide",
    "ALTER POLICY tenant ON machines USING (true)": "policy tenant of the table machines shows other rows",
    "ALTER POLICY tenant ON termination_permits WITH CHECK (true)": "the table termination_permits lets other rows",
    "DROP POLICY lookups ON request_budgets ;; CREATE POLICY lookups ON request_budgets FOR SELECT TO splitplane_lookups"
    " USING (true)": "policy lookups of the table request_budgets is for SELECT instead of ALL",
    "DROP POLICY tenant ON leases ;; CREATE POLICY tenant ON leases AS RESTRICTIVE TO splitplane_api USING"
    f" (organization_id = {_ORGANIZATION}) WITH CHECK (organization_id = {_ORGANIZATION})": "leases is restrictive",
    # What keeps facts.
    "ALTER TABLE charges DISABLE TRIGGER append_only": "On the table charges, the trigger append_only is disabled",
    "ALTER TABLE charges ENABLE REPLICA TRIGGER append_only": "On the table charges, the trigger append_only is dis",
    "ALTER TABLE leases DISABLE TRIGGER ALL": "On the table leases, a foreign key is disabled",
    "DROP TRIGGER append_only ON journal": "table journal lacks the trigger append_only",
    "DROP TRIGGER never_emptied ON postings": "table postings lacks the trigger never_emptied",
    "DROP TRIGGER balances ON postings": "table postings lacks the trigger balances",
    "DROP TRIGGER audited ON journal": "table journal lacks the trigger audited",
    "DROP TRIGGER append_only ON charges ;; CREATE TRIGGER append_only BEFORE UPDATE ON charges FOR EACH ROW EXECUTE"
    " FUNCTION refuse_edit()": "trigger append_only of the table charges is another one",
    "CREATE OR REPLACE FUNCTION refuse_edit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'": (
        "function refuse_edit() has another body"
    ),
    # Functions with their owner's rights.
    "ALTER FUNCTION api_key_principal(bytea, timestamptz) OWNER TO postgres": "belongs to postgres instead of",
    "ALTER FUNCTION api_key_principal(bytea, timestamptz) RESET search_path": "runs with other settings than it",
    "ALTER FUNCTION organization_ids(timestamptz, uuid, text[], text, integer) SET search_path = public": "settings",
    "GRANT EXECUTE ON FUNCTION session_principals(uuid[], timestamptz) TO PUBLIC": "may be called by every role",
    "ALTER FUNCTION audit_loop() SECURITY DEFINER": "function audit_loop() runs with the rights of its owner",
    "DROP FUNCTION sign_in_users(text, text, text)": "database lacks the function sign_in_users",
    "CREATE OR REPLACE FUNCTION organization_ids(after_at timestamptz, after_id uuid, states text[], part text,"
    " size integer) RETURNS TABLE (id uuid, created_at timestamptz) LANGUAGE sql STABLE SECURITY DEFINER"
    " SET search_path = pg_catalog, public AS 'SELECT o.id, o.created_at FROM public.organizations o'": (
        "text[], part text, size integer) has another body than it should"
    ),
    "CREATE FUNCTION every_lease() RETURNS SETOF leases LANGUAGE sql SECURITY DEFINER AS 'SELECT * FROM leases'": (
        "function every_lease(), which this version does not know, runs with the rights of its owner"
    ),
    # The login itself.
    "SET LOCAL session_replication_role = replica": "session_replication_role of the login is",
}
"""What somebody who may do it could change, and the words in which a process names it."""


@pytest.mark.parametrize("role", [Role.API, Role.RECONCILER])
async def test_each_rule_that_is_weakened_is_named_with_its_table_in_one_sentence(
    own: Database, role: Role
) -> None:
    for change, words in WEAKENED.items():
        fault = await _fault_with(own, role, change)
        assert fault is not None, change
        assert words in fault, (change, fault)
        assert fault.endswith(
            ": restore it, or migrate an empty database and load a dump of the data into it."
        )
        assert fault.count(". ") == 0, fault


HARMLESS = (
    "CREATE TABLE newer (id integer) ;; ALTER TABLE newer OWNER TO splitplane_owner",
    "CREATE FUNCTION newer() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE TRIGGER newer AFTER INSERT ON leases FOR EACH ROW EXECUTE FUNCTION refuse_edit()",
    "CREATE POLICY newer ON leases FOR SELECT TO splitplane_backup USING (true)",
    "ALTER TABLE leases ADD COLUMN newer integer",
)


async def test_what_a_newer_version_adds_is_no_fault(own: Database) -> None:
    for role in (Role.API, Role.RECONCILER):
        for addition in HARMLESS:
            assert await _fault_with(own, role, addition) is None, addition


async def test_a_process_is_refused_for_such_a_fault_by_the_login_that_it_has(database_url: str) -> None:
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute("ALTER TABLE machines NO FORCE ROW LEVEL SECURITY")
    finally:
        await owner.close()
    for role in (Role.API, Role.RECONCILER):
        refusal = await _refusal(database_url, role)
        assert refusal is not None
        assert refusal.startswith("The row-level security of the table machines is not forced")
