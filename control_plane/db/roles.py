"""The roles of the database, and how `migrate` makes them.

A process or a command takes the one role that it needs (`engine.Role`). Nobody takes these three while Splitplane
runs:

- `splitplane_owner` owns the tables and the functions. Only migrations take it. Row-level security is forced, so even
  this role sees no row of a tenant.
- `splitplane_lookups` owns the functions that run with their owner's rights (SECURITY DEFINER). It can read the few
  columns that they need.
- `splitplane_backup` reads all rows, for `pg_dump --enable-row-security`, and writes nothing.

Roles belong to the PostgreSQL cluster, so several databases share them, and databases that are migrated at the same
time make them at the same time.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import Role

OWNER = "splitplane_owner"
LOOKUPS = "splitplane_lookups"
BACKUP = "splitplane_backup"
ALL = (*(role.value for role in Role), OWNER, LOOKUPS, BACKUP)

_CREATE = """
DO $$ BEGIN
  CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- Another database of this cluster made it.
END $$
"""
_LET_TAKE = """
DO $$ BEGIN
  IF NOT pg_has_role('{member}'::regrole, '{role}', 'SET') THEN
    GRANT {role} TO {member} WITH INHERIT FALSE, SET TRUE;
  END IF;
EXCEPTION WHEN unique_violation THEN NULL;  -- As above.
END $$
"""
_LET_CREATE = """
DO $$ BEGIN
  IF NOT has_schema_privilege('{role}', 'public', 'CREATE') THEN
    GRANT USAGE, CREATE ON SCHEMA public TO {role};
  END IF;
END $$
"""
_TAKE = f"SET ROLE {OWNER}"
_GIVE_BACK = "RESET ROLE"


async def take_ownership(connection: AsyncConnection) -> None:
    """Have the connection act as the owner of the tables. Makes roles that are missing.

    The login must be a member of `splitplane_owner`, or have made the roles itself, for which it needs CREATEROLE and
    to be the database's owner.
    """
    for role in ALL:
        await _run_unless(
            connection, f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'", _CREATE.format(role=role)
        )
    whoami = (await connection.execute(text("SELECT quote_ident(session_user)"))).scalar_one()
    for member, role in ((whoami, OWNER), (OWNER, LOOKUPS)):
        await connection.execute(text(_LET_TAKE.format(member=member, role=role)))
    for role in (OWNER, LOOKUPS):
        await connection.execute(text(_LET_CREATE.format(role=role)))
    await connection.execute(text(_TAKE))


async def give_ownership_back(connection: AsyncConnection) -> None:
    """Have the connection act as its login again."""
    await connection.execute(text(_GIVE_BACK))


async def _run_unless(connection: AsyncConnection, is_there: str, statement: str) -> None:
    if not (await connection.execute(text(is_there))).all():
        await connection.execute(text(statement))
