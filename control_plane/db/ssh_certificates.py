"""Queries on SSH certificates of customers. What takes away the right to log in is here, or, where it ends other issued
things as well, in db/issued.py.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.revocable import Revocable
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.db.subjects import subject_of, subject_values
from control_plane.domain.ids import (
    EnvironmentId,
    LeaseId,
    OrganizationId,
    ProjectId,
    ServiceAccountId,
    SshCertificateId,
    UserId,
)
from control_plane.domain.lease import LeaseState
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.ssh_certificate import (
    LASTS,
    WAITS_MAX,
    Revocation,
    SigningRefusal,
    SshCertificate,
    serial_of,
)
from control_plane.domain.subject import Subject

REQUESTS = "splitplane_ssh_certificates"
"""The channel on which PostgreSQL notifies of requests, when they are committed."""
REVOCATIONS = "splitplane_ssh_revocations"
"""Likewise of revocations of certificates that were signed."""


@dataclass(frozen=True, slots=True)
class _Row:
    id: SshCertificateId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    serial: int
    public_key: str
    fingerprint: str
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    credential: str
    credential_ends_at: datetime | None
    requested_at: datetime
    signed_at: datetime | None
    valid_after: datetime | None
    valid_before: datetime | None
    certificate: str | None
    refused_at: datetime | None
    refused_why: SigningRefusal | None
    revoked_at: datetime | None
    revoked_why: Revocation | None

    @property
    def value(self) -> SshCertificate:
        return SshCertificate(
            id=self.id,
            organization_id=self.organization_id,
            project_id=self.project_id,
            lease_id=self.lease_id,
            serial=self.serial,
            public_key=self.public_key,
            fingerprint=self.fingerprint,
            subject=subject_of(self.user_id, self.service_account_id),
            credential=self.credential,
            credential_ends_at=self.credential_ends_at,
            requested_at=self.requested_at,
            signed_at=self.signed_at,
            valid_after=self.valid_after,
            valid_before=self.valid_before,
            certificate=self.certificate,
            refused_at=self.refused_at,
            refused_why=self.refused_why,
            revoked_at=self.revoked_at,
            revoked_why=self.revoked_why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What is stored of a request."""

    id: SshCertificateId
    project_id: ProjectId
    lease_id: LeaseId
    public_key: str
    fingerprint: str
    subject: Subject
    credential: str
    credential_ends_at: datetime | None


_COLUMNS = ", ".join(_Row.__dataclass_fields__)
_LIVE = "refused_at IS NULL AND revoked_at IS NULL AND (valid_before IS NULL OR valid_before > :now)"
# A connection outlives the certificate that opened it, so one that has ended still counts while its lease runs.
_MAY_BE_IN_USE = f"""
refused_at IS NULL AND revoked_at IS NULL AND (valid_before IS NULL OR valid_before > :now
  OR EXISTS (SELECT FROM leases used WHERE used.id = lease_id AND used.state <> '{LeaseState.ENDED}'))
"""
_WANTED = "signed_at IS NULL AND refused_at IS NULL AND revoked_at IS NULL"
_INSERT = text(f"""
INSERT INTO ssh_certificates (id, organization_id, project_id, lease_id, serial, public_key, fingerprint, user_id,
                              service_account_id, credential, credential_ends_at, requested_at)
VALUES (:id, :organization_id, :project_id, :lease_id, :serial, :public_key, :fingerprint, :user_id,
        :service_account_id, :credential, :credential_ends_at, :now)
RETURNING {_COLUMNS}
""")
_GET = text(f"""
SELECT {_COLUMNS} FROM ssh_certificates
WHERE organization_id = :organization_id AND lease_id = :lease_id AND id = :id
""")
# What was requested before `since` is over, so only the end of the index is read.
_COUNT_RECENT = text(f"""
SELECT count(*) FROM ssh_certificates WHERE lease_id = :lease_id AND requested_at > :since AND (({_LIVE})
  OR requested_at > :recently AND (user_id = :user_id OR service_account_id = :service_account_id))
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM ssh_certificates
WHERE organization_id = :organization_id AND lease_id = :lease_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (requested_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY requested_at DESC, id DESC LIMIT :limit
""")


async def insert(
    connection: Connection, organization_id: OrganizationId, requested: Requested, *, now: datetime
) -> SshCertificate:
    """Store a request. The caller holds the lease's lock, so that the lease does not end without its revocation."""
    row = await read_one(
        connection,
        _INSERT,
        _Row,
        id=requested.id,
        organization_id=organization_id,
        project_id=requested.project_id,
        lease_id=requested.lease_id,
        serial=serial_of(requested.id),
        public_key=requested.public_key,
        fingerprint=requested.fingerprint,
        **subject_values(requested.subject),
        credential=requested.credential,
        credential_ends_at=requested.credential_ends_at,
        now=now,
    )
    if row is None:
        raise LookupError(f"certificate {requested.id} was not stored")
    return row.value


async def get(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, certificate_id: UUID
) -> SshCertificate | None:
    row = await read_one(
        connection, _GET, _Row, organization_id=organization_id, lease_id=lease_id, id=certificate_id
    )
    return row.value if row else None


async def count_recent(connection: Connection, lease_id: LeaseId, subject: Subject, *, now: datetime) -> int:
    """Certificates of a lease that are not over, and those that this subject requested within LASTS."""
    times = {"now": now, "since": now - WAITS_MAX - LASTS, "recently": now - LASTS}
    values = {"lease_id": lease_id, **subject_values(subject), **times}
    return await read_one(connection, _COUNT_RECENT, int, **values) or 0


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[SshCertificate]:
    """Certificates of a lease, newest first; `before` is time and id of the last one of the previous page."""
    rows = await read(
        connection,
        _PAGE,
        _Row,
        organization_id=organization_id,
        lease_id=lease_id,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )
    return [row.value for row in rows]


# What the reconciler does with them


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate that was signed."""

    id: SshCertificateId
    certificate: str
    valid_after: datetime
    valid_before: datetime


@dataclass(frozen=True, slots=True)
class NotSigned:
    """A request that will not be signed."""

    id: SshCertificateId
    why: SigningRefusal


_LOCK_WANTED = text(f"""
SELECT {_COLUMNS} FROM ssh_certificates WHERE {_WANTED} ORDER BY requested_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_ANY_WANTED = text(f"SELECT EXISTS (SELECT FROM ssh_certificates WHERE {_WANTED})")
_SIGN = text(f"""
UPDATE ssh_certificates c SET certificate = signed.certificate, valid_after = signed.valid_after,
                              valid_before = signed.valid_before, signed_at = :now
FROM {Recordset(Signed, "signed")} WHERE c.id = signed.id
""")
_REFUSE = text(f"""
UPDATE ssh_certificates c SET refused_at = :now, refused_why = refused.why
FROM {Recordset(NotSigned, "refused")} WHERE c.id = refused.id
""")
_FORGET = text(f"""
DELETE FROM ssh_certificates WHERE id IN (
  SELECT c.id FROM ssh_certificates c JOIN leases l ON l.id = c.lease_id
  WHERE c.requested_at < :before AND l.state = '{LeaseState.ENDED}' ORDER BY c.requested_at LIMIT :limit
)
""")


async def any_wanted(connection: Connection) -> bool:
    """Whether a request waits for its signature."""
    return bool(await read_one(connection, _ANY_WANTED, bool))


async def lock_wanted(connection: Connection, *, limit: int) -> list[SshCertificate]:
    """Requests that wait for their signature, oldest first, locked for this transaction; not those of another one."""
    return [row.value for row in await read(connection, _LOCK_WANTED, _Row, limit=limit)]


async def sign(connection: Connection, signed: Sequence[Signed], *, now: datetime) -> int:
    """Store certificates of requests that this transaction has locked. Returns how many."""
    return await write(connection, _SIGN, signed=Recordset.document(signed), now=now)


async def refuse(connection: Connection, refused: Sequence[NotSigned], *, now: datetime) -> int:
    """Store that requests which this transaction has locked are not signed. Returns how many."""
    return await write(connection, _REFUSE, refused=Recordset.document(refused), now=now)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete certificates of ended leases that were requested before a moment. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)


# Revocations. Each is part of the transaction that takes the right away.

_LONGEST = int((WAITS_MAX + LASTS).total_seconds())
_ENDS_AT = f"coalesce(valid_before, CAST(:now AS timestamptz) + make_interval(secs => {_LONGEST}))"
REVOCABLE = Revocable("ssh_certificates", f"({_MAY_BE_IN_USE})", _ENDS_AT)
_REVOKE_ONE = REVOCABLE.revocation("lease_id = :lease_id AND id = :id")
# Machines of ended leases refuse every certificate of theirs by themselves: see db/ssh_revocations.py.
_REVOKE_OF_LEASES = text(f"""
UPDATE ssh_certificates SET revoked_at = :now, revoked_why = :why
WHERE lease_id = ANY(CAST(:lease_ids AS uuid[])) AND {_LIVE}
""")
_REVOKE_OF_KEY = REVOCABLE.revocation(
    "fingerprint = :fingerprint AND (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)"
)
_LIVE_OF_SUBJECT = text(f"""
SELECT c.id, c.project_id, l.environment_id, c.lease_id FROM ssh_certificates c JOIN leases l ON l.id = c.lease_id
WHERE c.organization_id = :organization_id AND (user_id = :user_id OR service_account_id = :service_account_id)
  AND {_MAY_BE_IN_USE}
""")


async def revoke(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    certificate_id: UUID,
    *,
    now: datetime,
) -> bool:
    """Revoke one, because somebody asks for it. False when there is no such certificate, or it is over."""
    values = {"organization_id": organization_id, "lease_id": lease_id, "id": certificate_id}
    return bool(await write(connection, _REVOKE_ONE, **values, why=Revocation.REQUESTED, now=now))


async def revoke_of_leases(connection: Connection, lease_ids: Collection[LeaseId], *, now: datetime) -> None:
    """Revoke those of leases to whose machines nobody may log in any more."""
    await write(connection, _REVOKE_OF_LEASES, lease_ids=list(lease_ids), why=Revocation.LEASE_ENDED, now=now)


async def revoke_of_key(
    connection: Connection,
    organization_id: OrganizationId,
    fingerprint: str,
    project_id: ProjectId | None,
    *,
    now: datetime,
) -> None:
    """Revoke those of an SSH key that was deleted: in its project, or in the whole organization (None)."""
    values = {"organization_id": organization_id, "fingerprint": fingerprint, "project_id": project_id}
    await write(connection, _REVOKE_OF_KEY, **values, why=Revocation.SSH_KEY_DELETED, now=now)


@dataclass(frozen=True, slots=True)
class Opening:
    """A certificate of a subject that opens a lease, or has opened a session that may still run."""

    id: SshCertificateId
    project_id: ProjectId
    environment_id: EnvironmentId
    lease_id: LeaseId

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind.LEASE, self.project_id, self.environment_id, self.lease_id)


async def live_of_subject(
    connection: Connection, organization_id: OrganizationId, subject: Subject, *, now: datetime
) -> list[Opening]:
    values = {"organization_id": organization_id, **subject_values(subject), "now": now}
    return await read(connection, _LIVE_OF_SUBJECT, Opening, **values)
