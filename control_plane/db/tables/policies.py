"""The policies of row-level security that follow from the marks of a table, as PostgreSQL prints them.

Migrations create them (`migrations/steps.py`), tests hold a migrated database against them, and a process refuses to
start on a database that has others (`db/defences.py`).
"""

from dataclasses import dataclass

from sqlalchemy import Table

from control_plane.db.engine import Role
from control_plane.db.roles import BACKUP, LOOKUPS
from control_plane.db.tables.marks import Lookups, Tenancy, marks_of

_TENANT = "NULLIF(current_setting('app.organization_id'::text, true), ''::text)"
_OWN = f"(organization_id = ({_TENANT})::uuid)"
_OWN_ID = f"(id = ({_TENANT})::uuid)"
_OURS_OR_OWN = f"((organization_id IS NULL) OR {_OWN})"
# Organizations are filtered too, so the look-up finds the one that the API acts for and no other.
_PLATFORM = "(EXISTS ( SELECT FROM organizations WHERE organizations.platform))"
# Claims are filtered too.
_CLAIMED = "(EXISTS ( SELECT FROM claims WHERE (claims.machine_id = machines.id)))"
_OF_MACHINE = (
    f"((EXISTS ( SELECT FROM claims WHERE (claims.machine_id = {{table}}.machine_id))) OR {_PLATFORM})"
)
_ALL_ROWS = "true"


@dataclass(frozen=True, slots=True)
class Policy:
    """A permissive policy for one role."""

    name: str
    role: str
    command: str
    """ALL, SELECT or INSERT."""
    shown: str | None
    """Which rows the role sees; None where the policy is for adding alone."""
    written: str | None
    """Which rows it may leave behind; None where the policy is for reading alone."""


def policies_of(table: Table) -> tuple[Policy, ...]:
    """All policies that a table has. None: the table has no row-level security."""
    marks = marks_of(table)
    if marks.tenancy is Tenancy.SHARED:
        return ()
    found = [
        _tenant(table),
        Policy("system", Role.RECONCILER, "ALL", _ALL_ROWS, _ALL_ROWS),
        Policy("backup", BACKUP, "SELECT", _ALL_ROWS, None),
    ]
    if marks.admin:
        found.append(Policy("administration", Role.ADMIN, "ALL", _ALL_ROWS, _ALL_ROWS))
    if marks.ingest:
        found.append(Policy("ingest", Role.INGEST, "INSERT", None, _ALL_ROWS))
    if marks.lookups is Lookups.READ:
        found.append(Policy("lookups", LOOKUPS, "SELECT", _ALL_ROWS, None))
    if marks.lookups is Lookups.ADD:
        found.append(Policy("lookups", LOOKUPS, "INSERT", None, _ALL_ROWS))
    if marks.lookups is Lookups.WRITE:
        found.append(Policy("lookups", LOOKUPS, "ALL", _ALL_ROWS, _ALL_ROWS))
    return tuple(found)


def _tenant(table: Table) -> Policy:
    """The policy of the API's role, which filters."""
    if table.name == "organizations":  # Its id is the tenant, and the API makes none the platform's.
        return Policy("tenant", Role.API, "ALL", _OWN_ID, f"({_OWN_ID} AND (NOT platform))")
    match marks_of(table).tenancy:
        case Tenancy.CLAIMED:
            return Policy("tenant", Role.API, "SELECT", _CLAIMED, None)
        case Tenancy.OF_MACHINE:
            return Policy("tenant", Role.API, "SELECT", _OF_MACHINE.format(table=table.name), None)
        case Tenancy.WATCHED:
            return Policy("tenant", Role.API, "SELECT", f"({_OWN} OR {_PLATFORM})", None)
        case Tenancy.PLATFORM:
            return Policy("tenant", Role.API, "ALL", _PLATFORM, _PLATFORM)
        case Tenancy.OFFERED:
            return Policy("tenant", Role.API, "ALL", f"({_OURS_OR_OWN[1:-1]} OR {_PLATFORM})", _PLATFORM)
        case Tenancy.OURS_VISIBLE:
            return Policy("tenant", Role.API, "ALL", _OURS_OR_OWN, _OWN)
        case _:
            return Policy("tenant", Role.API, "ALL", _OWN, _OWN)
