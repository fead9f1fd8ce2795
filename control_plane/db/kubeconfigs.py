"""Queries on kubeconfigs of customers. What takes away the right to one is in db/issued.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.revocable import Revocable
from control_plane.db.rows import read, read_one, write
from control_plane.db.subjects import subject_of, subject_values
from control_plane.domain.access import Reach
from control_plane.domain.ids import (
    ClusterId,
    KubeconfigId,
    OrganizationId,
    ProjectId,
    ServiceAccountId,
    UserId,
)
from control_plane.domain.kubeconfig import IssuingRefusal, Kubeconfig, KubeconfigRole, Revocation
from control_plane.domain.subject import Subject


@dataclass(frozen=True, slots=True)
class _Row:
    id: KubeconfigId
    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    name: str
    role: KubeconfigRole
    lasts_seconds: int
    recipient: bytes
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    credential: str
    credential_ends_at: datetime | None
    rotates: KubeconfigId | None
    overlap_seconds: int | None
    requested_at: datetime
    issued_at: datetime | None
    expires_at: datetime | None
    sealed: bytes | None
    refused_at: datetime | None
    refused_why: IssuingRefusal | None
    revoked_at: datetime | None
    revoked_why: Revocation | None
    tries: int

    @property
    def value(self) -> Kubeconfig:
        return Kubeconfig(
            id=self.id,
            organization_id=self.organization_id,
            project_id=self.project_id,
            cluster_id=self.cluster_id,
            name=self.name,
            role=self.role,
            lasts_seconds=self.lasts_seconds,
            recipient=self.recipient,
            subject=subject_of(self.user_id, self.service_account_id),
            credential=self.credential,
            credential_ends_at=self.credential_ends_at,
            rotates=self.rotates,
            overlap_seconds=self.overlap_seconds,
            requested_at=self.requested_at,
            issued_at=self.issued_at,
            expires_at=self.expires_at,
            sealed=self.sealed,
            refused_at=self.refused_at,
            refused_why=self.refused_why,
            revoked_at=self.revoked_at,
            revoked_why=self.revoked_why,
            tries=self.tries,
        )


_COLUMNS = ", ".join(_Row.__dataclass_fields__)
_LIVE = "refused_at IS NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
_INSERT = text(f"""
INSERT INTO kubeconfigs (id, organization_id, project_id, cluster_id, name, role, lasts_seconds, recipient, user_id,
                         service_account_id, credential, credential_ends_at, rotates, overlap_seconds, requested_at,
                         due_at)
VALUES (:id, :organization_id, :project_id, :cluster_id, :name, :role, :lasts_seconds, :recipient, :user_id,
        :service_account_id, :credential, :credential_ends_at, :rotates, :overlap_seconds, :now, :now)
RETURNING {_COLUMNS}
""")
_GET = text(f"SELECT {_COLUMNS} FROM kubeconfigs WHERE organization_id = :organization_id AND id = :id")
_LOCK = text(f"{_GET.text} FOR NO KEY UPDATE")
_COUNT = text(f"""
SELECT count(*) FROM kubeconfigs
WHERE organization_id = :organization_id AND project_id = :project_id AND cluster_id = :cluster_id
  AND removed_at IS NULL AND {_LIVE}
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM kubeconfigs
WHERE organization_id = :organization_id
  AND (CAST(:everywhere AS boolean) OR project_id = ANY(CAST(:projects AS uuid[])))
  AND (CAST(:before_at AS timestamptz) IS NULL OR (requested_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY requested_at DESC, id DESC LIMIT :limit
""")
_EXPIRE = text("""
UPDATE kubeconfigs SET expires_at = :at, due_at = :at WHERE organization_id = :organization_id AND id = :id
""")


async def insert(connection: Connection, wanted: Kubeconfig, *, now: datetime) -> Kubeconfig:
    """Store a request."""
    row = await read_one(
        connection,
        _INSERT,
        _Row,
        id=wanted.id,
        organization_id=wanted.organization_id,
        project_id=wanted.project_id,
        cluster_id=wanted.cluster_id,
        name=wanted.name,
        role=wanted.role,
        lasts_seconds=wanted.lasts_seconds,
        recipient=wanted.recipient,
        **subject_values(wanted.subject),
        credential=wanted.credential,
        credential_ends_at=wanted.credential_ends_at,
        rotates=wanted.rotates,
        overlap_seconds=wanted.overlap_seconds,
        now=now,
    )
    if row is None:
        raise LookupError(f"kubeconfig {wanted.id} was not stored")
    return row.value


async def get(
    connection: Connection, organization_id: OrganizationId, kubeconfig_id: UUID, *, lock: bool = False
) -> Kubeconfig | None:
    """One kubeconfig; with `lock`, nobody else changes it before the end of the transaction."""
    statement = _LOCK if lock else _GET
    row = await read_one(connection, statement, _Row, organization_id=organization_id, id=kubeconfig_id)
    return row.value if row else None


async def count_live(
    connection: Connection,
    organization_id: OrganizationId,
    project_id: ProjectId,
    cluster_id: ClusterId,
    *,
    now: datetime,
) -> int:
    """How many kubeconfigs of a project in a cluster are wanted, or issued and not over."""
    values = {"organization_id": organization_id, "project_id": project_id, "cluster_id": cluster_id}
    return await read_one(connection, _COUNT, int, **values, now=now) or 0


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Kubeconfig]:
    """Kubeconfigs of projects within reach, newest first; `before` is time and id of the previous page's last one."""
    rows = await read(
        connection,
        _PAGE,
        _Row,
        organization_id=organization_id,
        everywhere=reach.organization,
        projects=list(reach.projects),
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )
    return [row.value for row in rows]


async def expire(
    connection: Connection, organization_id: OrganizationId, kubeconfig_id: KubeconfigId, *, at: datetime
) -> None:
    """Let an issued kubeconfig end at a moment."""
    await write(connection, _EXPIRE, organization_id=organization_id, id=kubeconfig_id, at=at)


# What the reconciler does with them

_TAKE = work.take("kubeconfigs", "removed_at IS NULL AND due_at <= :now", order="due_at, id")
_TAKEN = text(f"SELECT {_COLUMNS} FROM kubeconfigs WHERE id = ANY(:ids) ORDER BY due_at, id")
_ISSUE = text(f"""
UPDATE kubeconfigs SET issued_at = :now, expires_at = :expires_at, sealed = :sealed, due_at = :expires_at, tries = 0,
  {work.GIVE_BACK}
WHERE id = :id AND {work.HELD} AND revoked_at IS NULL
""")
_REFUSE = text(f"""
UPDATE kubeconfigs SET refused_at = :now, refused_why = :why, due_at = :now, tries = 0, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD} AND revoked_at IS NULL
""")
_REMOVE = text(f"""
UPDATE kubeconfigs SET removed_at = :now, sealed = NULL, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}
""")
_GIVE_BACK = text(f"UPDATE kubeconfigs SET {work.GIVE_BACK} WHERE id = :id AND {work.HELD}")
_WAIT = text(f"""
UPDATE kubeconfigs SET due_at = :until, {work.GIVE_BACK} WHERE id = :id AND {work.HELD} AND revoked_at IS NULL
""")
_RETRY = work.retry("kubeconfigs")
_FORGET = text("""
DELETE FROM kubeconfigs WHERE id IN (
  SELECT id FROM kubeconfigs WHERE requested_at < :before AND removed_at IS NOT NULL ORDER BY requested_at LIMIT :limit)
""")


async def take(
    connection: Connection, *, token: UUID, now: datetime, until: datetime, limit: int
) -> list[Kubeconfig]:
    """Hold kubeconfigs for which there is something to do."""
    ids = await read(connection, _TAKE, UUID, token=token, now=now, until=until, limit=limit)
    return [row.value for row in await read(connection, _TAKEN, _Row, ids=ids)]


async def issue(
    connection: Connection,
    kubeconfig_id: KubeconfigId,
    sealed: bytes,
    *,
    expires_at: datetime,
    token: UUID,
    now: datetime,
) -> bool:
    """Store an issued kubeconfig. False when it was revoked meanwhile, or another worker holds it."""
    values = {"id": kubeconfig_id, "sealed": sealed, "expires_at": expires_at, "token": token}
    return bool(await write(connection, _ISSUE, **values, now=now))


async def refuse(
    connection: Connection, kubeconfig_id: KubeconfigId, why: IssuingRefusal, *, token: UUID, now: datetime
) -> bool:
    """Store that a kubeconfig is not issued. What a try may have left in the cluster is due for removal."""
    return bool(await write(connection, _REFUSE, id=kubeconfig_id, why=why, token=token, now=now))


async def removed(connection: Connection, kubeconfig_id: KubeconfigId, *, token: UUID, now: datetime) -> bool:
    """Store that nothing of a kubeconfig is left in its cluster, and erase its file."""
    return bool(await write(connection, _REMOVE, id=kubeconfig_id, token=token, now=now))


async def give_back(connection: Connection, kubeconfig_id: KubeconfigId, *, token: UUID) -> None:
    """Hold it no longer. When it is due is not changed: a revocation may have come meanwhile."""
    await write(connection, _GIVE_BACK, id=kubeconfig_id, token=token)


async def wait(connection: Connection, kubeconfig_id: KubeconfigId, *, token: UUID, until: datetime) -> None:
    """Give it back until a moment, unless it was revoked meanwhile."""
    await write(connection, _WAIT, id=kubeconfig_id, token=token, until=until)


async def retry(
    connection: Connection, kubeconfig_id: KubeconfigId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give it back after a try that failed."""
    await write(connection, _RETRY, id=kubeconfig_id, token=token, now=now, due_at=due_at)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete those that were requested before a moment and have nothing in a cluster. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)


# Revocations. Each is part of the transaction that takes the right away.

REVOCABLE = Revocable("kubeconfigs", _LIVE, "coalesce(expires_at, 'infinity')", sets="due_at = :now")
_LIVE_OF_SUBJECT = text(f"""
SELECT {_COLUMNS} FROM kubeconfigs
WHERE organization_id = :organization_id AND (user_id = :user_id OR service_account_id = :service_account_id)
  AND {_LIVE}
""")


async def live_of_subject(
    connection: Connection, organization_id: OrganizationId, subject: Subject, *, now: datetime
) -> Sequence[Kubeconfig]:
    values = {"organization_id": organization_id, **subject_values(subject), "now": now}
    return [row.value for row in await read(connection, _LIVE_OF_SUBJECT, _Row, **values)]
