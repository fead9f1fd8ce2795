"""Erases what the people of an organization wrote: names, addresses, keys, labels and stored answers.

Facts are append-only and stay. They name ids, but sentences in the journal may repeat labels of the customer.
"""

from collections.abc import Mapping

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import write
from control_plane.domain import environment, network, project
from control_plane.domain.ids import OrganizationId
from control_plane.domain.subject import SubjectState

DELETED = (
    "charge_names",
    "consoles",
    "firewalls",
    "provider_firewalls",
    "kubeconfigs",
    "scaled_pools",
    "ssh_certificates",
    "ssh_keys",
    "idempotency_keys",
)
"""Tables whose rows of the organization are deleted."""
_TERMINALS = text("DELETE FROM device_authorizations WHERE approved_organization = :organization_id")
"""Terminals that were confirmed for it, with their names and addresses. The table is no tenant's."""
_UNIQUE = "'deleted-' || replace(CAST(id AS text), '-', '')"
_UNLESS = "CASE WHEN name = '{name}' THEN name ELSE {unique} END"
_REMOVED = f"'{SubjectState.REMOVED}'"
ERASED: Mapping[str, Mapping[str, str]] = {
    "api_keys": {"name": "''", "hint": "''"},
    "environments": {"name": _UNLESS.format(name=environment.DEFAULT_NAME, unique=_UNIQUE)},
    "hand_backs": {"why": "''"},
    "leases": {"name": "''", "labels": "'{}'", "ssh_keys": "'[]'"},
    "networks": {"name": _UNLESS.format(name=network.DEFAULT_NAME, unique=_UNIQUE), "labels": "'{}'"},
    "node_pools": {"name": _UNIQUE, "node_labels": "'{}'", "node_taints": "'[]'"},
    "projects": {"name": _UNLESS.format(name=project.DEFAULT_NAME, unique=_UNIQUE)},
    "quota_requests": {"reason": "''", "answer": "NULL"},
    "sessions": {"client": "''", "address": "''"},
    "service_accounts": {"name": "''", "state": _REMOVED},
    "users": {"email": "''", "name": "''", "issuer": "NULL", "subject": "NULL", "state": _REMOVED},
}
"""Columns that get another value, as SQL, by table. A test holds it against the tables."""
_STATEMENTS = [
    _TERMINALS,
    *(text(f"DELETE FROM {table} WHERE organization_id = :organization_id") for table in DELETED),
    *(
        text(
            f"UPDATE {table} SET {', '.join(f'{column} = {value}' for column, value in columns.items())}"
            " WHERE organization_id = :organization_id"
        )
        for table, columns in ERASED.items()
    ),
]


async def erase(connection: Connection, organization_id: OrganizationId) -> None:
    """Erase the words of a deleted organization. May be repeated. It needs the reconciler's role."""
    for statement in _STATEMENTS:
        await write(connection, statement, organization_id=organization_id)
