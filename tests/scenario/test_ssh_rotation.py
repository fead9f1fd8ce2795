"""The SSH authority is replaced while machines run: whoever signs is trusted at every moment, by every machine."""

from datetime import datetime

import pytest
from sqlalchemy import text

from control_plane.domain.ssh_authority import STRAGGLERS_WAITED_FOR
from data_plane.access.authority import CERTIFICATE_LASTS_MAX
from data_plane.access.port import Target, Unreachable
from reconciler.ssh_authority_command import Refused
from tests.support import clusters
from tests.support.rows import rows
from tests.support.ssh_rotation import cast_of
from tests.support.stage import Stage

pytestmark = pytest.mark.database
_SECRETS = text("SELECT id FROM secrets")
_LINES = text("SELECT subject, rule FROM audit_pending WHERE event = 'ssh_authorities.rotate'")


async def test_in_a_rotation_every_certificate_that_is_valid_is_trusted_by_every_machine(
    stage: Stage,
) -> None:
    cast = await cast_of(stage)
    first = (await cast.authorities.signing()).public_key
    await cast.command.rotate(leaked=False)
    with pytest.raises(Refused, match="under way"):
        await cast.command.rotate(leaked=False)
    signed: list[tuple[datetime, str]] = []
    for _ in range(220):
        await cast.turn()
        now = stage.clock.now()
        signed.append((now, (await cast.authorities.signing()).public_key))
        valid = {key for at, key in signed if now - at <= CERTIFICATE_LASTS_MAX}
        for known in cast.trusted():
            assert valid <= known, (now, await cast.states())
    assert await cast.states() == ["removed", "signing"]
    async with stage.db.reading() as connection:
        lines = await rows(connection, _LINES)
    assert [(line.subject, line.rule) for line in lines] == [("administrator", "host")]
    last = signed[-1][1]
    assert last != first
    assert cast.trusted() == [{last}] * 3
    async with stage.db.reading() as connection:
        assert len(await rows(connection, _SECRETS)) == 1, "the private key of the removed one is deleted"
    assert stage.access.machine(cast.addresses[0]).calls.count("trust authorities") == 3, (
        "told once for each change"
    )


async def test_the_next_authority_signs_nothing_while_a_machine_does_not_trust_it(stage: Stage) -> None:
    cast = await cast_of(stage)
    away, near = cast.addresses
    stage.access.script(away, unreachable=1_000_000)
    await cast.command.rotate(leaked=False)
    for _ in range(100):
        await cast.turn()
    assert await cast.states() == ["signing", "next"]
    assert any("1 machines and server hosts" in line for line in await cast.command.listed())
    stage.access.script(away)
    for _ in range(20):
        await cast.turn()
    assert await cast.states() == ["retired", "signing"]
    assert stage.access.machine(away).authorities == stage.access.machine(near).authorities


async def test_a_hub_that_is_away_holds_up_a_rotation_as_well(stage: Stage) -> None:
    cast = await cast_of(stage, leases=1)
    await cast.turn()
    await cast.command.rotate(leaked=False)
    stage.clock.advance(300)
    stage.hub.fail_next = [Unreachable("the hub is away")] * 3
    for _ in range(3):
        await cast.turn()
        assert await cast.states() == ["signing", "next"]
    for _ in range(2):
        await cast.turn()
    assert await cast.states() == ["retired", "signing"]


async def test_an_authority_that_leaked_signs_nothing_and_is_trusted_nowhere_at_once(stage: Stage) -> None:
    cast = await cast_of(stage)
    leaked = (await cast.authorities.signing()).public_key
    await cast.command.rotate(leaked=False)
    await cast.turn()
    await cast.command.rotate(leaked=True)
    stage.clock.advance(1)
    new = (await cast.authorities.signing()).public_key
    assert await cast.states() == ["distrusted", "distrusted", "signing"]
    opening = {authority.public_key for authority in await cast.authorities.usable()}
    assert leaked in opening, "it alone opens a machine that was not told yet"
    await cast.turn()
    assert cast.trusted()[:2] == [{new}] * 2
    for _ in range(15):
        await cast.turn()
    assert await cast.states() == ["removed", "removed", "signing"]
    assert cast.trusted() == [{new}] * 3


async def test_a_machine_that_is_ordered_during_a_rotation_trusts_what_the_others_trust(stage: Stage) -> None:
    cast = await cast_of(stage, leases=1)
    await cast.command.rotate(leaked=False)
    await cast.turn()
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready")
    (machine,) = await stage.machines(lease)
    order = next(each.order for each in stage.cloud.machines.values() if each.address == machine.address)
    assert all(key in order.user_data for key in await cast.authorities.trusted())
    assert set(stage.access.machine(str(machine.address)).authorities) == cast.trusted()[0]


async def test_a_server_host_learns_each_authority_before_it_signs_and_forgets_it_afterwards(
    stage: Stage,
) -> None:
    cast = await cast_of(stage, leases=0)
    await clusters.created(stage, "eu")
    host = stage.access.machine("eu.internal")
    await cast.turn()
    assert set(host.authorities) == set(await cast.authorities.trusted()), "told soon after it was added"
    await cast.command.rotate(leaked=False)
    for _ in range(220):
        signing = (await cast.authorities.signing()).public_key
        assert signing in host.authorities
        await cast.turn()
    assert await cast.states() == ["removed", "signing"]
    assert host.authorities == ((await cast.authorities.signing()).public_key,)
    assert host.calls.count("trust authorities") == 3, "when it was added, and once for each change"


async def test_a_server_host_that_cannot_be_reached_holds_up_a_rotation_for_a_day(stage: Stage) -> None:
    cast = await cast_of(stage, leases=0)
    await clusters.created(stage, "eu")
    await cast.turn()
    stage.access.script("eu.internal", unreachable=1_000_000)
    await cast.command.rotate(leaked=False)
    for _ in range(30):
        await cast.turn()
    assert await cast.states() == ["signing", "next"]
    assert any("1 machines and server hosts" in line for line in await cast.command.listed())
    stage.clock.advance(STRAGGLERS_WAITED_FOR.total_seconds())
    await cast.turn()
    assert await cast.states() == ["retired", "signing"]


async def test_a_slow_login_does_not_tell_a_server_host_what_was_replaced_meanwhile(stage: Stage) -> None:
    cast = await cast_of(stage, leases=0)
    await clusters.created(stage, "eu")

    async def rotate_meanwhile(_: Target, step: str) -> None:
        if step == "connect" and await cast.states() == ["signing"]:
            await cast.command.rotate(leaked=False)
            stage.clock.advance(2)  # This process reads them again.

    stage.access.before = rotate_meanwhile
    await stage.run("trust_server_hosts")
    assert set(stage.access.machine("eu.internal").authorities) == set(await cast.authorities.trusted())
    assert len(stage.access.machine("eu.internal").authorities) == 2


async def test_no_machine_is_ordered_with_an_authority_that_leaked_and_its_provider_is_told_to_forget_it(
    stage: Stage,
) -> None:
    cast = await cast_of(stage, leases=0)
    lease = await stage.lease(await stage.organization())
    for loop in ("refresh_offers", "place_leases"):
        await stage.run(loop)
    (leaked,) = await cast.authorities.trusted()
    await cast.command.rotate(leaked=True)
    await stage.run("launch_machines")
    assert (await stage.machines(lease))[0].state == "intended"
    assert stage.cloud.calls_of("launch") == 0, "this process has not read the new authority yet"
    stage.clock.advance(2)
    await stage.run("launch_machines")
    (order,) = [machine.order for machine in stage.cloud.machines.values()]
    assert (order.ssh_public_key == leaked, order.withdrawn_ssh_keys) == (False, (leaked,))
    assert leaked not in order.user_data
