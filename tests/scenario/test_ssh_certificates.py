"""Signing SSH certificates when processes die, race, or have no authority: never a certificate without its row."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import text

from control_plane.db import ssh_certificates
from control_plane.db.ssh_certificates import Requested
from control_plane.domain.ids import LeaseId, ServiceAccountId, SshCertificateId
from control_plane.domain.lease import Lease
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.world import uuid7
from reconciler.ssh_authorities import NoAuthority
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

_OWNER = text("""
INSERT INTO service_accounts (id, organization_id, name, state, created_at)
VALUES (:id, :organization, :name, 'active', now())
""")


async def _requested(stage: Stage, lease: Lease, key: str = KEY) -> SshCertificateId:
    """A request for a certificate, as the API stores it, by the organization's owner."""
    async with stage.db.transaction() as connection:
        owner = ServiceAccountId(uuid7())
        values = {"id": owner, "organization": lease.organization_id, "name": owner.hex}
        await connection.execute(_OWNER, values)
        requested = Requested(
            id=SshCertificateId(uuid7()),
            project_id=lease.project_id,
            lease_id=LeaseId(lease.id),
            public_key=key,
            fingerprint="SHA256:1",
            subject=Subject(SubjectKind.SERVICE_ACCOUNT, owner),
            credential="key_1",
            credential_ends_at=None,
        )
        await ssh_certificates.insert(connection, lease.organization_id, requested, now=stage.clock.now())
    return requested.id


async def _stored(stage: Stage) -> list[Any]:
    async with stage.db.reading() as connection:
        found = await rows(
            connection,
            text(
                "SELECT id, serial, certificate, refused_why FROM ssh_certificates ORDER BY requested_at, id"
            ),
        )
    return list(found)


async def test_a_crash_before_the_row_is_committed_leaves_a_request_that_is_signed_with_the_same_serial(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await _requested(stage, lease)
    with (
        patch.object(ssh_certificates, "refuse", side_effect=ConnectionResetError),
        pytest.raises(ConnectionResetError),
    ):
        await stage.run("sign_ssh_certificates")
    [waiting] = await _stored(stage)
    assert waiting.certificate is None
    await stage.run("sign_ssh_certificates")
    [signed] = await _stored(stage)
    assert signed.serial == waiting.serial
    assert signed.certificate.startswith("ssh-ed25519-cert-v01@openssh.com ")


async def test_replicas_that_sign_at_once_sign_each_request_once(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    for _ in range(8):
        await _requested(stage, lease)
    reports = await asyncio.gather(*(stage.run("sign_ssh_certificates") for _ in range(3)))
    assert sum(report.acted_on for of_replica in reports for report in of_replica) == 8
    assert all(row.certificate is not None for row in await _stored(stage))


async def test_a_key_that_cannot_be_signed_holds_up_no_other_request(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await _requested(stage, lease, "ssh-ed25519 AAAA")
    await _requested(stage, lease)
    [report] = await stage.run("sign_ssh_certificates")
    assert (report.acted_on, report.errors) == (2, [])
    unusable, signed = await _stored(stage)
    assert (unusable.refused_why, unusable.certificate) == ("key_unusable", None)
    assert signed.certificate is not None


async def test_without_an_authority_requests_wait(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await _requested(stage, lease)
    signing = patch.object(
        type(stage.world.ssh_authorities), "signing", side_effect=NoAuthority("there is no key")
    )
    with signing, pytest.raises(NoAuthority):
        await stage.run("sign_ssh_certificates")
    [waiting] = await _stored(stage)
    assert (waiting.certificate, waiting.refused_why) == (None, None)
    await stage.run("sign_ssh_certificates")
    assert (await _stored(stage))[0].certificate is not None
