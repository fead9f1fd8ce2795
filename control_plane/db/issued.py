"""What was issued to somebody with an API key or a session, and ends when the right to it does.

SSH certificates and kubeconfigs are issued. Whoever takes a right away calls a revocation here, in the same
transaction, and so forgets no kind. What ends only one kind is in the file of that kind.
"""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import TextClause

from control_plane.db import kubeconfigs, ssh_certificates
from control_plane.db.connection import Connection
from control_plane.db.revocable import Revocable
from control_plane.db.rows import write
from control_plane.db.subjects import subject_values
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ssh_certificate import Revocation
from control_plane.domain.subject import Subject

_KINDS = (ssh_certificates.REVOCABLE, kubeconfigs.REVOCABLE)
_OF_CREDENTIALS = [kind.revocation("credential = ANY(CAST(:credentials AS text[]))") for kind in _KINDS]
_BEYOND = [
    kind.revocation(f"credential = :credential AND {kind.ends_at} > CAST(:ends_at AS timestamptz)")
    for kind in _KINDS
]
_OF_SUBJECT = [
    kind.revocation("(user_id = :user_id OR service_account_id = :service_account_id)") for kind in _KINDS
]
_OF_ORGANIZATION = [kind.revocation("true") for kind in _KINDS]


async def revoke_of_credentials(
    connection: Connection, organization_id: OrganizationId, credentials: Collection[str], *, now: datetime
) -> None:
    """Revoke what API keys or sessions asked for, which have their ids of the wire here."""
    values = {"credentials": list(credentials), "why": Revocation.CREDENTIAL_ENDED, "now": now}
    await _revoke(connection, _OF_CREDENTIALS, organization_id, **values)


async def revoke_beyond(
    connection: Connection,
    organization_id: OrganizationId,
    credential: str,
    *,
    ends_at: datetime,
    now: datetime,
) -> None:
    """Revoke what a credential asked for and what would outlive it, because it ends earlier than it was to."""
    values = {"credential": credential, "ends_at": ends_at, "why": Revocation.CREDENTIAL_ENDED, "now": now}
    await _revoke(connection, _BEYOND, organization_id, **values)


async def revoke_of_subject(
    connection: Connection, organization_id: OrganizationId, subject: Subject, *, now: datetime
) -> None:
    """Revoke what a user or a service account has that is suspended or removed."""
    values = {**subject_values(subject), "why": Revocation.SUBJECT_ENDED, "now": now}
    await _revoke(connection, _OF_SUBJECT, organization_id, **values)


async def revoke_all(
    connection: Connection, organization_id: OrganizationId, why: Revocation, *, now: datetime
) -> None:
    """Revoke what an organization has that is suspended or closed."""
    await _revoke(connection, _OF_ORGANIZATION, organization_id, why=why, now=now)


async def revoke_these(
    connection: Connection,
    kind: Revocable,
    organization_id: OrganizationId,
    ids: Collection[UUID],
    why: StrEnum,
    *,
    now: datetime,
) -> None:
    """Revoke those of these rows of a kind that may still open something."""
    statement = kind.revocation("id = ANY(CAST(:ids AS uuid[]))")
    await _revoke(connection, [statement], organization_id, ids=list(ids), why=why, now=now)


async def _revoke(
    connection: Connection,
    statements: Collection[TextClause],
    organization_id: OrganizationId,
    **values: object,
) -> None:
    for statement in statements:
        await write(connection, statement, organization_id=organization_id, **values)
