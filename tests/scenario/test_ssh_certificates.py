"""Signing SSH certificates when processes die, race, or have no authority: never a certificate without its row."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import text

from control_plane.db import ssh_certificates
from reconciler.ssh_authorities import NoAuthority
from tests.support.rows import rows
from tests.support.ssh_requests import requested
from tests.support.stage import Stage

pytestmark = pytest.mark.database


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
    await requested(stage, lease)
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
        await requested(stage, lease)
    reports = await asyncio.gather(*(stage.run("sign_ssh_certificates") for _ in range(3)))
    assert sum(report.acted_on for of_replica in reports for report in of_replica) == 8
    assert all(row.certificate is not None for row in await _stored(stage))


async def test_a_key_that_cannot_be_signed_holds_up_no_other_request(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await requested(stage, lease, "ssh-ed25519 AAAA")
    await requested(stage, lease)
    [report] = await stage.run("sign_ssh_certificates")
    assert (report.acted_on, report.errors) == (2, [])
    unusable, signed = await _stored(stage)
    assert (unusable.refused_why, unusable.certificate) == ("key_unusable", None)
    assert signed.certificate is not None


async def test_without_an_authority_requests_wait(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await requested(stage, lease)
    signing = patch.object(
        type(stage.world.ssh_authorities), "signing", side_effect=NoAuthority("there is no key")
    )
    with signing, pytest.raises(NoAuthority):
        await stage.run("sign_ssh_certificates")
    [waiting] = await _stored(stage)
    assert (waiting.certificate, waiting.refused_why) == (None, None)
    await stage.run("sign_ssh_certificates")
    assert (await _stored(stage))[0].certificate is not None
