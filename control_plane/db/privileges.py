"""Says why a process must not work under its login: because that could go around row-level security.

PostgreSQL applies no policy to a superuser and to a role with BYPASSRLS, and lets an owner change the rules. A login
that may take such a role is no better, because one injected statement is enough to take it. A process therefore asks
this before its first work, and ends when there is an answer. It also asks whether the rules of the database itself are
what its version needs (`defences.py`).
"""

from dataclasses import dataclass

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.defences import why_weakened
from control_plane.db.engine import Role
from control_plane.db.roles import ALL
from control_plane.db.rows import read_one

_DEFAULT_ROLES = (
    "pg_execute_server_program",
    "pg_maintain",
    "pg_read_all_data",
    "pg_read_server_files",
    "pg_write_all_data",
    "pg_write_server_files",
)
"""PostgreSQL's own roles that read or write what no grant and no policy of ours allows."""


class LoginRefused(Exception):  # noqa: N818 - it says what is the case
    """The process must not work under its login. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class _Login:
    name: str
    superuser: bool
    bypasses: bool
    role: str
    """The role that it acts in."""
    takes: str | None
    """A role that it may take and should not."""
    owns: str | None
    """What it owns, or may take the owner of."""


# PostgreSQL counts a superuser as a member of every role, so that is asked first. A member with no option but ADMIN
# counts too: it could grant itself the others.
_LOGIN = text("""
SELECT l.rolname AS name, l.rolsuper AS superuser, l.rolbypassrls AS bypasses, CAST(current_user AS text) AS role,
  (SELECT r.rolname FROM pg_roles r
   WHERE pg_has_role(l.oid, r.oid, 'MEMBER')
     AND (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolreplication OR r.rolname = ANY(:refused))
   ORDER BY r.rolname LIMIT 1) AS takes,
  (SELECT owned.what FROM (
     SELECT 'the database' AS what, datdba AS owner FROM pg_database WHERE datname = current_database()
     UNION ALL SELECT 'the schema public', nspowner FROM pg_namespace WHERE nspname = 'public'
     UNION ALL (SELECT 'the table ' || relname, relowner FROM pg_class
                WHERE relnamespace = CAST('public' AS regnamespace) AND relkind IN ('r', 'p', 'v', 'm')
                ORDER BY relname)
     UNION ALL (SELECT 'the function ' || proname, proowner FROM pg_proc
                WHERE pronamespace = CAST('public' AS regnamespace) ORDER BY proname)
   ) owned WHERE pg_has_role(l.oid, owned.owner, 'MEMBER') LIMIT 1) AS owns
FROM pg_roles l WHERE l.rolname = session_user
""")


async def why_refused(connection: Connection, role: Role) -> str | None:
    """Why a process of this role must not work on this connection, as a sentence; None when it may."""
    refused = [name for name in (*ALL, *_DEFAULT_ROLES) if name != role]
    login = await read_one(connection, _LOGIN, _Login, refused=refused)
    if login is None:
        raise LookupError("the login of an open connection has no row in pg_roles")
    fault = _fault(login, role)
    if fault is not None:
        return (
            f"The database login {login.name} {fault}. Use a login that is a member of {role} and of no other role"
            " (docs/operating.md, Logins of the database)."
        )
    return await why_weakened(connection, role)


def _fault(login: _Login, role: Role) -> str | None:
    if login.superuser:
        return "is a superuser, to whom PostgreSQL applies no row-level security"
    if login.bypasses:
        return "has BYPASSRLS, so PostgreSQL applies no row-level security to it"
    if login.owns is not None:
        return f"owns {login.owns}, or may take the role that does, and could change its rules"
    if login.takes == login.name:
        return "has CREATEROLE or REPLICATION, with which it could reach every row"
    if login.takes is not None:
        return f"may take the role {login.takes}, and could so go around row-level security"
    if login.role != role:
        return f"acts as {login.role} instead of {role}"
    return None
