"""What each role may do: the public process writes intent, facts are never edited, money balances."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db.engine import Database, Role
from control_plane.db.tables import FACTS, metadata
from tests.integration.db.sample import A, B, a_row, insert
from tests.support import golden
from tests.support.rows import rows

pytestmark = pytest.mark.database
GRANTS = Path("tests/golden/grants.txt")
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


async def _rights(owner: Database, role: Role) -> dict[str, set[str]]:
    may = text("SELECT has_table_privilege(:role, CAST(:table AS text), :right) AS may")
    found: dict[str, set[str]] = {}
    async with owner.reading() as connection:
        for table in metadata.tables:
            found[table] = set()
            for right in RIGHTS:
                if (await rows(connection, may, role=role.value, table=table, right=right))[0].may:
                    found[table].add(right)
    return found


async def test_the_rights_of_each_role_are_those_that_were_reviewed(owner: Database) -> None:
    rights = {role: await _rights(owner, role) for role in Role}
    width = max(map(len, metadata.tables))
    lines = ["What each role may do with each table, as the database says."]
    for role in Role:
        lines += ["", role.value]
        lines += [
            f"  {table:{width}}  {' '.join(right for right in RIGHTS if right in rights[role][table]) or '-'}"
            for table in sorted(metadata.tables)
        ]
    golden.check(GRANTS, "\n".join(lines) + "\n")


async def test_the_public_process_writes_nothing_about_providers_machines_or_prices(owner: Database) -> None:
    rights = await _rights(owner, Role.API)
    for table in ("provider_accounts", "offers", "strangers", "budgets", "skus", "prices", "installation"):
        assert rights[table] == {"SELECT"}, table
    for table in ("intervals", "charges", "unrated", "placements", "reports", "peers", "networks"):
        assert rights[table] == {"SELECT"}, table
    assert rights["machines"] == {"SELECT", "UPDATE"}


@pytest.mark.parametrize("role", list(Role))
async def test_no_role_may_edit_a_fact_empty_a_table_or_change_its_rules(owner: Database, role: Role) -> None:
    for table, rights in (await _rights(owner, role)).items():
        assert not rights & {"TRUNCATE", "REFERENCES", "TRIGGER"}, table
        if table in FACTS:
            assert not rights & {"UPDATE", "DELETE"}, table


@pytest.mark.parametrize("role", list(Role))
async def test_no_role_owns_anything_or_can_take_another_one(owner: Database, role: Role) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolcanlogin AS mighty,
                   EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid) AS member,
                   EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid) AS owner
            FROM pg_roles r WHERE rolname = :role
            """),
            role=role.value,
        )
    assert [tuple(row) for row in found] == [(False, False, False)]


@pytest.mark.parametrize("table", sorted(FACTS))
@pytest.mark.parametrize("edit", ["UPDATE {0} SET {1} = {1}", "DELETE FROM {0}", "TRUNCATE {0} CASCADE"])
async def test_a_fact_cannot_be_edited_even_by_its_owner(
    owner: Database, reconciler: Database, table: str, edit: str
) -> None:
    statement = text(edit.format(table, next(iter(metadata.tables[table].columns)).name))
    if table == "journal" and edit.startswith("UPDATE"):
        statement = text("UPDATE journal SET actor = actor")  # Its number is the database's own.
    with pytest.raises(DBAPIError, match="append-only"):
        async with owner.transaction() as connection:
            await connection.execute(statement)
    with pytest.raises(DBAPIError, match="permission denied"):
        async with reconciler.transaction() as connection:
            await connection.execute(statement)


async def _unbalanced(database: Database, *, then: UUID | None = None) -> None:
    transaction = a_row("transactions", A, 5)
    async with database.transaction(A) as connection:
        await insert(connection, "transactions", transaction)
        await insert(connection, "postings", a_row("postings", A, 5, transaction_id=transaction["id"]))
        if then is not None:
            await connection.execute(
                text("SELECT set_config('app.organization_id', :tenant, true)"), {"tenant": str(then)}
            )


@pytest.mark.parametrize("role", [None, *Role])
async def test_a_transaction_that_does_not_balance_is_refused_at_its_commit(
    filled_url: str, role: Role | None
) -> None:
    database = Database(filled_url, role=role, pool_size=1, readers=1)
    try:
        with pytest.raises(DBAPIError, match="out of balance by 5 nano"):
            await _unbalanced(database)
    finally:
        await database.close()


async def _insert_fast(database: Database, *of: tuple[str, dict[str, Any]]) -> None:
    async with database.fast_transaction(A) as connection:
        for table, row in of:
            values = ", ".join(f":{name}" for name in row)
            await connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)


async def test_the_fast_door_weighs_at_its_commit_and_is_usable_afterwards(api: Database) -> None:
    transaction = a_row("transactions", A, 6)
    posting = a_row("postings", A, 6, transaction_id=transaction["id"])
    with pytest.raises(DBAPIError, match="out of balance by 6 nano"):
        await _insert_fast(api, ("transactions", transaction), ("postings", posting))
    async with api.fast_transaction(A) as connection:
        kept = text("SELECT id FROM transactions WHERE id = :id")
        assert not await rows(connection, kept, id=transaction["id"])


async def test_postings_that_balance_over_two_lines_commit(own: Database) -> None:
    async with own.transaction() as connection:
        await insert(connection, "organizations", a_row("organizations", A))
        await insert(connection, "transactions", a_row("transactions", A))
        for line, amount in ((1, 7), (2, -7)):
            await insert(connection, "postings", a_row("postings", A, line=line, amount_nano=amount))
    async with own.reading() as connection:
        assert (await rows(connection, text("SELECT sum(amount_nano) AS sum FROM postings")))[0].sum == 0


async def test_a_transaction_that_changes_its_tenant_is_still_weighed(api: Database) -> None:
    with pytest.raises(DBAPIError, match="out of balance"):
        await _unbalanced(api, then=B)
