"""Says which rule that the database enforces is missing, weakened or switched off.

Row-level security, triggers and functions with their owner's rights protect tenants from each other and facts from
everybody, and whoever owns them can change them. A process therefore compares them with what its version needs, whole
and not only by name: the policies with the marks of the tables, functions and triggers with `routines.json`.

A newer schema is fine, so tables, triggers and functions that this version does not know are not looked at, except
where they would show the process more rows. A migration that changes a rule gives it another name for that reason, and
leaves the old one until no process needs it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.roles import LOOKUPS, OWNER
from control_plane.db.rows import from_document, read, read_one
from control_plane.db.tables.every import metadata
from control_plane.db.tables.policies import Policy, policies_of

_PUBLIC = "public"
"""PostgreSQL's word for every role."""


@dataclass(frozen=True, slots=True)
class _TableRules:
    name: str
    owner: str
    enabled: bool
    forced: bool
    rules: int


_TABLES = text("""
SELECT c.relname AS name, pg_get_userbyid(c.relowner) AS owner, c.relrowsecurity AS enabled,
  c.relforcerowsecurity AS forced, (SELECT count(*) FROM pg_rewrite r WHERE r.ev_class = c.oid) AS rules
FROM pg_class c WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relname = ANY(:tables) ORDER BY c.relname
""")


@dataclass(frozen=True, slots=True)
class _FoundPolicy:
    tablename: str
    policyname: str
    permissive: str
    roles: list[str]
    cmd: str
    qual: str | None
    with_check: str | None


_POLICIES = text("""
SELECT tablename, policyname, permissive, CAST(roles AS text[]) AS roles, cmd, qual, with_check FROM pg_policies
WHERE schemaname = 'public' AND tablename = ANY(:tables) ORDER BY tablename, policyname
""")


@dataclass(frozen=True, slots=True)
class _Trigger:
    tablename: str
    name: str
    definition: str
    enabled: bool
    internal: bool


# Foreign keys are triggers, too: those of PostgreSQL's own have no definition of ours, but can be switched off.
_TRIGGERS = text("""
SELECT c.relname AS tablename, t.tgname AS name, pg_get_triggerdef(t.oid) AS definition,
  t.tgenabled IN ('O', 'A') AS enabled, t.tgisinternal AS internal
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relname = ANY(:tables) ORDER BY c.relname, t.tgname
""")


@dataclass(frozen=True, slots=True)
class Function:
    """All of a function that matters to what it may do and does."""

    name: str
    """With the types of its arguments."""
    owner: str
    definer: bool
    """Whether it runs with its owner's rights."""
    settings: list[str]
    body: str
    """The SHA-256 of language, volatility, result and source."""
    everybody: bool
    """Whether every role may call it; of a trigger function, which nobody can call, False."""


_FUNCTIONS = text("""
SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' AS name,
  pg_get_userbyid(p.proowner) AS owner, p.prosecdef AS definer, coalesce(p.proconfig, '{}') AS settings,
  encode(sha256(convert_to(
    concat_ws(E'\\n', l.lanname, p.provolatile, pg_get_function_result(p.oid), p.prosrc), 'UTF8')), 'hex') AS body,
  p.prorettype <> CAST('trigger' AS regtype) AND has_function_privilege('public', p.oid, 'EXECUTE') AS everybody
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = CAST('public' AS regnamespace) ORDER BY 1
""")
_REPLICA = text("SELECT current_setting('session_replication_role')")


async def why_weakened(connection: Connection, role: str) -> str | None:
    """The first rule that is not as this version needs it, as a sentence; None when all are. `role`: the process's."""
    weakened = await _weakened(connection, role)
    if weakened is None:
        return None
    return f"{weakened}: restore it, or migrate an empty database and load a dump of the data into it."


async def _weakened(connection: Connection, role: str) -> str | None:
    names = sorted(metadata.tables)
    tables = await read(connection, _TABLES, _TableRules, tables=names)
    policies = await read(connection, _POLICIES, _FoundPolicy, tables=names)
    triggers = await read(connection, _TRIGGERS, _Trigger, tables=names)
    functions = await read(connection, _FUNCTIONS, Function)
    faults = (
        *(_of_table(table) for table in tables),
        *(_of_policies(table.name, policies, role) for table in tables),
        _of_triggers(triggers),
        _of_functions(functions),
        await _of_session(connection),
    )
    return next((fault for fault in faults if fault is not None), None)


def _of_table(table: _TableRules) -> str | None:
    if table.owner != OWNER:
        return f"The table {table.name} belongs to {table.owner} instead of {OWNER}"
    if table.rules:
        return f"The table {table.name} has a rewrite rule, and so may do something else than it is asked for"
    if not policies_of(metadata.tables[table.name]):
        return None
    if not table.enabled:
        return f"The row-level security of the table {table.name} is disabled"
    if not table.forced:
        return (
            f"The row-level security of the table {table.name} is not forced, so it does not bind its owner"
        )
    return None


def _of_policies(table: str, found: Sequence[_FoundPolicy], role: str) -> str | None:
    present = {policy.policyname: policy for policy in found if policy.tablename == table}
    for wanted in policies_of(metadata.tables[table]):
        policy = present.pop(wanted.name, None)
        if policy is None:
            return f"The table {table} lacks the policy {wanted.name}"
        difference = _difference(policy, wanted)
        if difference is not None:
            return f"The policy {wanted.name} of the table {table} {difference}"
    for policy in present.values():
        if {role, _PUBLIC} & set(policy.roles):
            return f"The table {table} has a policy {policy.policyname}, which this version does not know"
    return None


def _difference(found: _FoundPolicy, wanted: Policy) -> str | None:
    compared = (
        (found.permissive == "PERMISSIVE", "is restrictive"),
        (found.roles == [wanted.role], f"is for {', '.join(found.roles)} instead of {wanted.role}"),
        (found.cmd == wanted.command, f"is for {found.cmd} instead of {wanted.command}"),
        (_spaced(found.qual) == _spaced(wanted.shown), "shows other rows than it should"),
        (_spaced(found.with_check) == _spaced(wanted.written), "lets other rows be written than it should"),
    )
    return next((words for is_same, words in compared if not is_same), None)


def _spaced(expression: str | None) -> str | None:
    """An expression without the line breaks that PostgreSQL prints."""
    return None if expression is None else " ".join(expression.split())


def _of_triggers(found: Iterable[_Trigger]) -> str | None:
    present = {}
    for trigger in found:
        if not trigger.enabled:
            what = "a foreign key" if trigger.internal else f"the trigger {trigger.name}"
            return f"On the table {trigger.tablename}, {what} is disabled"
        present[f"{trigger.tablename}.{trigger.name}"] = trigger.definition
    for place, definition in expected_routines().triggers.items():
        table, _, name = place.partition(".")
        if place not in present:
            return f"The table {table} lacks the trigger {name}"
        if _spaced(present[place]) != _spaced(definition):
            return f"The trigger {name} of the table {table} is another one than it should be"
    return None


def _of_functions(found: Iterable[Function]) -> str | None:
    present = {function.name: function for function in found}
    for wanted in expected_routines().functions:
        function = present.pop(wanted.name, None)
        if function is None:
            return f"The database lacks the function {wanted.name}"
        if function != wanted:
            return f"The function {wanted.name} {_changed(function, wanted)}"
    for function in present.values():
        if function.definer and (function.owner != LOOKUPS or function.everybody):
            return f"The function {function.name}, which this version does not know, runs with the rights of its owner"
    return None


def _changed(found: Function, wanted: Function) -> str:
    compared = (
        (found.owner == wanted.owner, f"belongs to {found.owner} instead of {wanted.owner}"),
        (not found.definer or wanted.definer, "runs with the rights of its owner"),
        (found.definer or not wanted.definer, "does not run with the rights of its owner"),
        (
            found.settings == wanted.settings,
            "runs with other settings than it should, such as its search_path",
        ),
        (found.everybody == wanted.everybody, "may be called by every role"),
    )
    return next((words for is_same, words in compared if not is_same), "has another body than it should")


async def _of_session(connection: Connection) -> str | None:
    mode = await read_one(connection, _REPLICA, str)
    if mode == "origin":
        return None
    return f"The setting session_replication_role of the login is {mode!r}, which switches triggers off"


@dataclass(frozen=True, slots=True)
class Routines:
    """The functions of the database, and its triggers by table and name."""

    functions: list[Function]
    triggers: dict[str, str]


@cache
def expected_routines() -> Routines:
    """What `routines.json` says."""
    return from_document((resources.files("control_plane.db") / "routines.json").read_bytes(), Routines)


async def routines_of(connection: Connection) -> Routines:
    """What the database has."""
    triggers = await read(connection, _TRIGGERS, _Trigger, tables=sorted(metadata.tables))
    return Routines(
        functions=await read(connection, _FUNCTIONS, Function),
        triggers={
            f"{trigger.tablename}.{trigger.name}": trigger.definition
            for trigger in triggers
            if not trigger.internal
        },
    )
