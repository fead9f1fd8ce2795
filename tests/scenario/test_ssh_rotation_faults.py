"""A rotation of the SSH authority, and revocations, while processes stop, the key manager or the hub are away."""

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.db import ssh_revocations
from control_plane.domain.secret import Plain, WrappedKey
from control_plane.vault.errors import KeyManagerError, KeyManagerUnavailable
from control_plane.vault.unsealing.local_file import LocalKeyManager
from data_plane.access.authority import Authority
from data_plane.access.port import Unreachable
from data_plane.mesh.port import ReadAuthorities
from tests.support.keys import AFTER, NEW, OLD
from tests.support.rows import rows
from tests.support.ssh_requests import requested, revoke, signed
from tests.support.ssh_rotation import cast_of
from tests.support.stage import Stage

pytestmark = pytest.mark.database


class _Manager(LocalKeyManager):
    """Opens nothing while it is away."""

    away = False

    async def unwrap(self, key: WrappedKey) -> Plain:
        if self.away:
            raise KeyManagerUnavailable("the key manager does not answer")
        return await super().unwrap(key)


async def test_while_the_key_manager_is_away_a_rotation_neither_stops_logins_nor_goes_on(
    stage: Stage,
) -> None:
    cast = await cast_of(stage)
    manager = _Manager([OLD, NEW])
    cast.restart(manager)
    first = await cast.authorities.signing()
    await cast.command.rotate(leaked=False)
    manager.away = True
    stage.clock.advance(2)
    assert [each.public_key for each in await cast.authorities.usable()] == [first.public_key]
    for _ in range(20):
        await cast.turn()
    assert await cast.states() == ["signing", "next"], "nobody here could sign with the next one"
    assert (await cast.authorities.signing()).public_key == first.public_key
    manager.away = False
    for _ in range(4):
        await cast.turn()
    assert await cast.states() == ["retired", "signing"]


async def test_an_authority_whose_key_is_lost_is_replaced_like_one_that_leaked(stage: Stage) -> None:
    cast = await cast_of(stage, leases=1)
    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE secrets SET ciphertext = ciphertext || '\\x00'"))
    cast.restart(AFTER)
    with pytest.raises(KeyManagerError):
        await cast.authorities.usable()
    await cast.command.rotate(leaked=True)
    stage.clock.advance(60)
    assert len(await cast.authorities.usable()) == 1, (
        "the new one logs us in to the machines that are ordered now"
    )
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")


async def test_a_hub_that_somebody_told_otherwise_is_told_again_before_any_step(stage: Stage) -> None:
    """Another process was slower, or the hub was restored from a backup: what we told it once proves nothing."""
    cast = await cast_of(stage, leases=1)
    await cast.turn()
    before = stage.hub.authorities
    await cast.command.rotate(leaked=True)
    for _ in range(3):
        await cast.turn()
    stage.hub.authorities = before
    stage.hub.fail_next = [Unreachable("the hub is away")] * 40
    for _ in range(40):
        await cast.stage.run("rotate_ssh_authorities")
        stage.clock.advance(3_600)
    assert await cast.states() == ["distrusted", "signing"], "its key alone opens the hub, for however long"
    for _ in range(3):
        await cast.turn()
    assert await cast.states() == ["removed", "signing"]
    assert set(stage.hub.authorities) == set(await cast.authorities.trusted())


async def test_a_process_that_was_stopped_after_it_told_the_hub_takes_no_step_by_what_it_remembers(
    stage: Stage,
) -> None:
    cast = await cast_of(stage, leases=1)
    told = stage.hub.trust

    async def then_it_stops(read: ReadAuthorities) -> Sequence[str]:
        answer = await told(read)
        await cast.command.rotate(leaked=True)
        await stage.run("trust_ssh_authorities")
        stage.clock.advance(600)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.hub, "trust", then_it_stops)
        await stage.run("rotate_ssh_authorities")
    assert await cast.states() == ["distrusted", "signing"]


async def test_a_machine_that_boots_for_longer_than_a_rotation_lasts_is_waited_for(stage: Stage) -> None:
    cast = await cast_of(stage, leases=0)
    lease = await stage.lease(await stage.organization())
    for loop in ("observe_machines", "refresh_offers", "place_leases", "launch_machines"):
        await stage.run(loop)
    await cast.command.rotate(leaked=False)
    for _ in range(30):
        await stage.run("rotate_ssh_authorities")
        stage.clock.advance(60)
    assert await cast.states() == ["signing", "next"], "its user data trusts the first one alone"
    await stage.play_until(lease, "ready")


async def test_an_authority_that_was_replaced_while_its_process_was_stopped_signs_nothing(
    stage: Stage,
) -> None:
    cast = await cast_of(stage, leases=1)
    (lease,) = cast.leases
    await requested(stage, lease)
    signing = cast.authorities.signing

    async def then_it_stops() -> Authority:
        authority = await signing()
        await cast.command.rotate(leaked=True)
        return authority

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cast.authorities, "signing", then_it_stops)
        (report,) = await stage.run("sign_ssh_certificates")
    assert report.acted_on == 0
    stage.clock.advance(1)
    (report,) = await stage.run("sign_ssh_certificates")
    assert report.acted_on == 1
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT certificate FROM ssh_certificates"))
    new = (await cast.authorities.signing()).public_key
    assert base64.b64decode(new.split()[1]) in base64.b64decode(row.certificate.split()[1])


async def test_a_revocation_that_comes_while_a_worker_is_slow_is_not_written_over_by_it(stage: Stage) -> None:
    cast = await cast_of(stage, leases=1)
    (lease,) = cast.leases
    machine = stage.access.machine(cast.addresses[0])
    await signed(stage, lease, 1, 2)
    await revoke(stage, lease, 1)
    take = ssh_revocations.take

    async def then_it_stops(*args: Any, **values: Any) -> Any:
        taken = await take(*args, **values)
        if taken and not machine.revoked:
            await revoke(stage, lease, 2)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh_revocations, "take", then_it_stops)
        await stage.run("revoke_ssh_certificates")
    assert machine.revoked == (1, 2), "what was revoked when it logged in"
    (report,) = await stage.run("revoke_ssh_certificates")
    assert report.looked_at == 0
