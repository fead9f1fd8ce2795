"""SSH certificates as the API stores requests for them, and as they are when they were signed."""

from sqlalchemy import text

from control_plane.db import issued, ssh_certificates
from control_plane.db.ssh_certificates import Requested
from control_plane.domain.ids import LeaseId, ServiceAccountId, SshCertificateId
from control_plane.domain.lease import Lease
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.world import uuid7
from tests.support.stage import Stage

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

_ACCOUNT = text("""
INSERT INTO service_accounts (id, organization_id, name, state, created_at)
VALUES (:id, :organization_id, :name, 'active', :now)
""")
_SIGNED = text("""
INSERT INTO ssh_certificates (id, organization_id, project_id, lease_id, serial, public_key, fingerprint,
                              service_account_id, credential, requested_at, signed_at, valid_after, valid_before,
                              certificate)
SELECT :id, l.organization_id, l.project_id, l.id, :serial, 'a key', 'SHA256:1', :account, :credential, :now, :now, :now,
       CAST(:now AS timestamptz) + interval '10 minutes', 'a certificate'
FROM leases l WHERE l.id = :lease
""")


async def requested(stage: Stage, lease: Lease, key: str = KEY) -> SshCertificateId:
    """A request that waits to be signed, by a service account of its own."""
    owner = await _account(stage, lease)
    wanted = Requested(
        id=SshCertificateId(uuid7()),
        project_id=lease.project_id,
        lease_id=LeaseId(lease.id),
        public_key=key,
        fingerprint="SHA256:1",
        subject=Subject(SubjectKind.SERVICE_ACCOUNT, owner),
        credential="key_1",
        credential_ends_at=None,
    )
    async with stage.db.transaction() as connection:
        await ssh_certificates.insert(connection, lease.organization_id, wanted, now=stage.clock.now())
    return wanted.id


async def signed(stage: Stage, lease: Lease, *serials: int) -> None:
    """Certificates of a service account of their own each, with its credential `key_SERIAL`."""
    for serial in serials:
        values = {
            "id": uuid7(),
            "serial": serial,
            "account": await _account(stage, lease),
            "credential": f"key_{serial}",
            "lease": lease.id,
            "now": stage.clock.now(),
        }
        async with stage.db.transaction() as connection:
            await connection.execute(_SIGNED, values)


async def revoke(stage: Stage, lease: Lease, *serials: int) -> None:
    """Revoke them as the end of their credentials does."""
    credentials = [f"key_{serial}" for serial in serials]
    async with stage.db.transaction() as connection:
        await issued.revoke_of_credentials(
            connection, lease.organization_id, credentials, now=stage.clock.now()
        )


async def _account(stage: Stage, lease: Lease) -> ServiceAccountId:
    account = ServiceAccountId(uuid7())
    values = {"id": account, "organization_id": lease.organization_id, "name": f"robot {account.hex}"}
    async with stage.db.transaction() as connection:
        await connection.execute(_ACCOUNT, {**values, "now": stage.clock.now()})
    return account
