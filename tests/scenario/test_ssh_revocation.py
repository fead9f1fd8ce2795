"""A revoked certificate is over on the machine of its lease, and on no other, however that machine is reached."""

import pytest
from sqlalchemy import text

from control_plane.db import ssh_certificates
from control_plane.domain.lease import Lease
from control_plane.world import uuid7
from data_plane.simulation.access import FakeMachine
from tests.support.stage import Stage

pytestmark = pytest.mark.database
LOOP = "revoke_ssh_certificates"
_SIGNED = text("""
INSERT INTO ssh_certificates (id, organization_id, project_id, lease_id, serial, public_key, fingerprint,
                              service_account_id, credential, requested_at, signed_at, valid_after, valid_before,
                              certificate)
SELECT :id, l.organization_id, l.project_id, l.id, :serial, 'a key', 'SHA256:1', :account, :credential, :now, :now, :now,
       CAST(:now AS timestamptz) + interval '10 minutes', 'a certificate'
FROM leases l WHERE l.id = :lease
""")
_ACCOUNT = text("""
INSERT INTO service_accounts (id, organization_id, name, state, created_at)
SELECT :id, organization_id, :name, 'active', :now FROM leases WHERE id = :lease
""")


async def _ready(stage: Stage) -> tuple[Lease, FakeMachine]:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    return lease, stage.access.machine(str(machine.address))


async def _signed(stage: Stage, lease: Lease, *serials: int) -> None:
    """Certificates of a service account of their own, with its credential `key_SERIAL`."""
    for serial in serials:
        account, values = uuid7(), {"lease": lease.id, "now": stage.clock.now()}
        async with stage.db.transaction() as connection:
            await connection.execute(_ACCOUNT, {"id": account, "name": f"robot {serial}", **values})
            await connection.execute(
                _SIGNED,
                {
                    "id": uuid7(),
                    "serial": serial,
                    "account": account,
                    "credential": f"key_{serial}",
                    **values,
                },
            )


async def _revoke(stage: Stage, lease: Lease, *serials: int) -> None:
    async with stage.db.transaction() as connection:
        await ssh_certificates.revoke_of_credentials(
            connection,
            lease.organization_id,
            [f"key_{serial}" for serial in serials],
            now=stage.clock.now(),
        )


async def test_a_machine_is_told_once_of_each_revocation_of_its_own_lease(stage: Stage) -> None:
    (lease, machine), (other, untouched) = await _ready(stage), await _ready(stage)
    await _signed(stage, lease, 1, 2, 3)
    await _signed(stage, other, 4)
    await stage.run(LOOP)
    assert "revoke certificates" not in machine.calls
    await _revoke(stage, lease, 2)
    for _ in range(3):
        await stage.run(LOOP)
    assert list(machine.revoked) == [2]
    await _revoke(stage, lease, 1)
    for _ in range(3):
        await stage.run(LOOP)
    assert list(machine.revoked) == [1, 2]
    assert machine.calls.count("revoke certificates") == 2
    assert "revoke certificates" not in untouched.calls


async def test_a_machine_that_is_away_or_fails_is_told_when_it_is_back(stage: Stage) -> None:
    lease, machine = await _ready(stage)
    (row,) = await stage.machines(lease)
    await _signed(stage, lease, 1)
    await _revoke(stage, lease, 1)
    for script in (
        {"unreachable": 1},
        {"step_fails": {"revoke certificates": 1}},
        {"breaks_in": {"revoke certificates"}},
    ):
        stage.access.script(str(row.address), **script)
        (report,) = await stage.run(LOOP)
        assert (report.acted_on, len(report.notes)) == (0, 1), script
        stage.clock.advance(60)
    (report,) = await stage.run(LOOP)
    assert (report.acted_on, machine.revoked) == (1, (1,))


async def test_the_session_of_a_certificate_that_has_ended_ends_with_the_right_to_log_in(
    stage: Stage,
) -> None:
    lease, machine = await _ready(stage)
    await _signed(stage, lease, 1)
    stage.clock.advance(3 * 3_600)
    await _revoke(stage, lease, 1)
    await stage.run(LOOP)
    assert machine.revoked == (1,)


async def test_a_machine_that_its_provider_does_not_terminate_lets_its_last_customer_in_no_more(
    stage: Stage,
) -> None:
    lease, machine = await _ready(stage)
    await _signed(stage, lease, 1, 2)
    await stage.release(lease)
    for loop in ("release_leases", "release_machines"):
        await stage.run(loop)
    await stage.run(LOOP)
    assert machine.revoked == (1, 2)
