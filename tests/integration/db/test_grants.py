"""What each role may do: the public process writes intent, facts are never edited, money balances."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db.engine import Database, Role
from control_plane.db.tables.every import FACTS, metadata
from control_plane.db.tables.marks import Tenancy, marks_of
from tests.integration.db.sample import A, a_row, insert
from tests.support import golden
from tests.support.rows import rows

pytestmark = pytest.mark.database
GRANTS = Path("tests/golden/grants.txt")
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
_MAY = text("""
SELECT table_name AS name, right_name AS "right" FROM unnest(CAST(:tables AS text[])) table_name,
  unnest(CAST(:rights AS text[])) right_name
WHERE has_table_privilege(:role, table_name, right_name)
""")
_MAY_COLUMN = text("""
SELECT c.table_name AS name, c.column_name AS column_name, right_name AS "right"
FROM information_schema.columns c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) right_name
WHERE c.table_schema = 'public' AND c.table_name = ANY(:tables)
  AND has_column_privilege(:role, c.table_name, c.column_name, right_name)
  AND NOT has_table_privilege(:role, c.table_name, right_name)
ORDER BY c.table_name, right_name, c.column_name
""")


async def _rights(owner: Database, role: Role) -> dict[str, set[str]]:
    """What a role may do with whole tables."""
    values = {"role": role.value, "tables": list(metadata.tables), "rights": list(RIGHTS)}
    async with owner.reading() as connection:
        found = await rows(connection, _MAY, **values)
    rights: dict[str, set[str]] = {table: set() for table in metadata.tables}
    for row in found:
        rights[row.name].add(row.right)
    return rights


async def _rights_on_columns(owner: Database, role: Role) -> dict[str, list[tuple[str, str]]]:
    """What a role may do with single columns of tables beyond that: right and column."""
    async with owner.reading() as connection:
        found = await rows(connection, _MAY_COLUMN, role=role.value, tables=list(metadata.tables))
    rights: dict[str, list[tuple[str, str]]] = {table: [] for table in metadata.tables}
    for row in found:
        rights[row.name].append((row.right, row.column_name))
    return rights


async def test_the_rights_of_each_role_are_those_that_were_reviewed(owner: Database) -> None:
    width = max(map(len, metadata.tables))
    lines = ["What each role may do with each table, as the database says."]
    for role in Role:
        rights, on_columns = await _rights(owner, role), await _rights_on_columns(owner, role)
        lines += ["", role.value]
        for table in sorted(metadata.tables):
            words = [right for right in RIGHTS if right in rights[table]]
            words += [f"{right}({column})" for right, column in on_columns[table]]
            lines.append(f"  {table:{width}}  {' '.join(words) or '-'}")
    golden.check(GRANTS, "\n".join(lines) + "\n")


async def test_the_apis_rights_are_those_of_the_tables_marks(owner: Database) -> None:
    rights, on_columns = await _rights(owner, Role.API), await _rights_on_columns(owner, Role.API)
    for table in metadata.tables.values():
        marks = marks_of(table)
        reads_all = marks.api_reads is None
        assert rights[table.name] == {*marks.api, *(("SELECT",) if reads_all else ())}, table.name
        single = [("UPDATE", name) for name in marks.api_updates]
        single += [("SELECT", name) for name in marks.api_reads or ()]
        assert on_columns[table.name] == sorted(single), table.name


async def test_the_administrators_commands_may_read_and_write_what_the_tables_marks_say(
    owner: Database,
) -> None:
    rights = await _rights(owner, Role.ADMIN)
    for table in metadata.tables.values():
        admin = marks_of(table).admin
        assert rights[table.name] == ({"SELECT", *admin} if admin else set()), table.name
    assert not any((await _rights_on_columns(owner, Role.ADMIN)).values())


async def test_the_ingest_process_adds_samples_and_may_do_nothing_else(owner: Database) -> None:
    rights = await _rights(owner, Role.INGEST)
    assert {name: found for name, found in rights.items() if found} == {"samples": {"INSERT"}}
    assert [table.name for table in metadata.tables.values() if marks_of(table).ingest] == ["samples"]
    assert not any((await _rights_on_columns(owner, Role.INGEST)).values())


async def test_the_api_writes_secrets_and_reads_none_of_their_bytes(owner: Database, api: Database) -> None:
    for table, hidden in (("secrets", ("nonce", "ciphertext")), ("data_keys", ("wrapped",))):
        for column in hidden:
            with pytest.raises(DBAPIError, match="permission denied"):
                async with api.transaction(A) as connection:
                    await connection.execute(text(f"SELECT {column} FROM {table}"))
        with pytest.raises(DBAPIError, match="permission denied"):
            async with api.transaction(A) as connection:
                await connection.execute(
                    text(f"INSERT INTO {table} SELECT * FROM {table} RETURNING {hidden[0]}")
                )


async def test_the_reconciler_writes_every_table_and_edits_no_fact(owner: Database) -> None:
    rights, on_columns = (
        await _rights(owner, Role.RECONCILER),
        await _rights_on_columns(owner, Role.RECONCILER),
    )
    for table in metadata.tables.values():
        edits = set() if marks_of(table).fact else {"UPDATE", "DELETE"}
        assert rights[table.name] == {"SELECT", "INSERT"} | edits, table.name
        assert on_columns[table.name] == [], table.name


def test_the_public_process_writes_nothing_about_providers_machines_or_prices() -> None:
    """Marks that no review may loosen: these tables decide what is bought, what is billed, and what is believed."""
    for name in ("provider_accounts", "offers", "orphans", "call_budgets", "skus", "prices", "installation"):
        assert not marks_of(metadata.tables[name]).api, name
    for name in ("intervals", "charges", "unrated", "placements", "proofs", "verification_reports", "peers"):
        assert not marks_of(metadata.tables[name]).api, name
    for table in metadata.tables.values():
        marks = marks_of(table)
        if marks.tenancy is Tenancy.CLAIMED:
            assert (marks.api, marks.api_updates) == (frozenset(), ()), table.name
    assert marks_of(metadata.tables["claims"]).api == frozenset()
    assert marks_of(metadata.tables["claims"]).api_updates == ("ended_at",)


@pytest.mark.parametrize("role", list(Role))
async def test_no_role_may_empty_a_table_or_change_its_rules(owner: Database, role: Role) -> None:
    for table, rights in (await _rights(owner, role)).items():
        assert not rights & {"TRUNCATE", "REFERENCES", "TRIGGER"}, table


async def test_the_tables_that_refuse_edits_are_those_that_are_marked_as_facts(owner: Database) -> None:
    async with owner.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT t.tgrelid::regclass::text AS name, t.tgname AS trigger, t.tgenabled AS enabled, t.tgtype AS type
            FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
            WHERE p.proname = 'refuse_edit' AND NOT c.relispartition
            """),
        )
    row, before, delete, update, truncate = 1, 2, 8, 16, 32  # Bits of pg_trigger.tgtype.
    assert {tuple(one) for one in found} == {
        wanted
        for name in FACTS
        for wanted in (
            (name, "append_only", b"O", row | before | delete | update),
            (name, "never_emptied", b"O", before | truncate),
        )
    }


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
    columns = [column.name for column in metadata.tables[table].columns if column.identity is None]
    statement = text(edit.format(table, columns[0]))
    with pytest.raises(DBAPIError, match="append-only"):
        async with owner.transaction() as connection:
            await connection.execute(statement)
    with pytest.raises(DBAPIError, match="permission denied"):
        async with reconciler.transaction() as connection:
            await connection.execute(statement)


async def _unbalanced(database: Database) -> None:
    transaction = a_row("transactions", A, 5)
    async with database.transaction(A) as connection:
        await insert(connection, "transactions", transaction)
        await insert(connection, "postings", a_row("postings", A, 5, transaction_id=transaction["id"]))


@pytest.mark.parametrize("role", [None, Role.API, Role.RECONCILER, Role.ADMIN])
async def test_a_transaction_that_does_not_balance_is_refused(filled_url: str, role: Role | None) -> None:
    database = Database(filled_url, role=role, pool_size=1, readers=1)
    try:
        with pytest.raises(DBAPIError, match="out of balance by 5 nano"):
            await _unbalanced(database)
    finally:
        await database.close()


async def _insert_fast(database: Database, *of: tuple[str, dict[str, Any]]) -> None:
    async with database.transaction(A) as connection:
        for table, row in of:
            values = ", ".join(f":{name}" for name in row)
            await connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)


async def test_the_fast_door_weighs_and_is_usable_afterwards(api: Database) -> None:
    transaction = a_row("transactions", A, 6)
    posting = a_row("postings", A, 6, transaction_id=transaction["id"])
    with pytest.raises(DBAPIError, match="out of balance by 6 nano"):
        await _insert_fast(api, ("transactions", transaction), ("postings", posting))
    async with api.transaction(A) as connection:
        kept = text("SELECT id FROM transactions WHERE id = :id")
        assert not await rows(connection, kept, id=transaction["id"])


async def test_postings_that_balance_over_two_lines_commit(own: Database) -> None:
    async with own.transaction() as connection:
        for table in ("organizations", "projects", "ledger_accounts", "transactions"):
            await insert(connection, table, a_row(table, A))
        lines = [a_row("postings", A, line=line, amount_nano=amount) for line, amount in ((1, 7), (2, -7))]
        await insert(connection, "postings", *lines)
    async with own.reading() as connection:
        assert (await rows(connection, text("SELECT sum(amount_nano) AS sum FROM postings")))[0].sum == 0
