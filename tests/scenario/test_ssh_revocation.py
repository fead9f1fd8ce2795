"""A revoked certificate is over on the machine of its lease, and on no other, however that machine is reached."""

from unittest.mock import patch

import pytest

from control_plane.domain.lease import Lease
from data_plane.simulation.access import FakeMachine
from reconciler.loops.leases import revoke_ssh_certificates
from tests.support.ssh_requests import revoke, signed
from tests.support.stage import Stage

pytestmark = pytest.mark.database
LOOP = "revoke_ssh_certificates"


async def _ready(stage: Stage) -> tuple[Lease, FakeMachine]:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    return lease, stage.access.machine(str(machine.address))


async def test_a_machine_is_told_once_of_each_revocation_of_its_own_lease(stage: Stage) -> None:
    (lease, machine), (other, untouched) = await _ready(stage), await _ready(stage)
    await signed(stage, lease, 1, 2, 3)
    await signed(stage, other, 4)
    await stage.run(LOOP)
    assert "revoke certificates" not in machine.calls
    await revoke(stage, lease, 2)
    for _ in range(3):
        await stage.run(LOOP)
    assert list(machine.revoked) == [2]
    await revoke(stage, lease, 1)
    for _ in range(3):
        await stage.run(LOOP)
    assert list(machine.revoked) == [1, 2]
    assert machine.calls.count("revoke certificates") == 2
    assert "revoke certificates" not in untouched.calls


async def test_a_machine_that_is_away_or_fails_is_told_when_it_is_back(stage: Stage) -> None:
    lease, machine = await _ready(stage)
    (row,) = await stage.machines(lease)
    await signed(stage, lease, 1)
    await revoke(stage, lease, 1)
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
    await signed(stage, lease, 1)
    stage.clock.advance(3 * 3_600)
    await revoke(stage, lease, 1)
    await stage.run(LOOP)
    assert machine.revoked == (1,)


async def test_who_revokes_all_the_time_holds_up_nobody_else(stage: Stage) -> None:
    (noisy, its_machine), (other, machine) = await _ready(stage), await _ready(stage)
    await signed(stage, noisy, *range(1, 9))
    await signed(stage, other, 11, 12)
    with patch.object(revoke_ssh_certificates, "MACHINES_PER_ACTIVATION_MAX", 1):
        await revoke(stage, noisy, 1)
        await stage.run(LOOP)
        for serial in (11, 12):
            await revoke(stage, other, serial)
            told = 0
            while serial not in machine.revoked:
                told += 1
                assert told <= 2, "at most one other machine is told before it"
                await revoke(stage, noisy, serial - 9 + 3 * told)
                stage.clock.advance(1)
                await stage.run(LOOP)
    assert len(its_machine.revoked) > 1


async def test_with_more_revoked_certificates_than_a_machine_is_sent_every_session_ends(stage: Stage) -> None:
    lease, machine = await _ready(stage)
    with patch.object(revoke_ssh_certificates, "SERIALS_MAX", 2):
        for serial in (4, 3, 2):
            await signed(stage, lease, serial)
            stage.clock.advance(1)
        for serial, sent, ended in ((4, (4,), "revoked"), (3, (3, 4), "revoked"), (2, (2, 3), "every")):
            await revoke(stage, lease, serial)
            stage.clock.advance(1)
            await stage.run(LOOP)
            assert (machine.revoked, machine.ended_sessions) == (sent, ended), (
                "those that are valid the longest are refused in any case"
            )


async def test_a_machine_that_its_provider_does_not_terminate_lets_its_last_customer_in_no_more(
    stage: Stage,
) -> None:
    lease, machine = await _ready(stage)
    await signed(stage, lease, 1, 2)
    await stage.release(lease)
    for loop in ("release_leases", "release_machines"):
        await stage.run(loop)
    await stage.run(LOOP)
    assert machine.revoked == (1, 2)
