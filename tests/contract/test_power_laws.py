"""The laws of power, over every provider: what it can do works and is seen, and what it cannot is refused."""

from collections.abc import AsyncIterator

import pytest

from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import (
    ListedState,
    MachineNotFound,
    OutcomeUnknown,
    PowerAction,
    Rejected,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)
from providers.guard import Guard
from providers.optional import HasPower, NeedsPreparing
from tests.contract.clouds import Cloud, EmulatedCloud, clouds

REBOOT, STOP, START = PowerAction.REBOOT, PowerAction.STOP, PowerAction.START


async def every() -> AsyncIterator[Cloud]:
    for make in clouds().values():
        cloud = make()
        yield cloud
        await cloud.provider.close()


async def switched(action: PowerAction) -> AsyncIterator[tuple[Cloud, HasPower, ProviderRef]]:
    """Each cloud whose provider can do this, with a machine that runs."""
    async for cloud in every():
        provider = cloud.provider
        if action in provider.capabilities.power:
            assert isinstance(provider, HasPower), f"{cloud.name} names what it cannot do"
            ref = await launched(cloud)
            cloud.advance(cloud.seconds_to_run)
            assert (await seen(cloud, ref)).state is ListedState.RUNNING, cloud.name
            yield cloud, provider, ref


async def launched(cloud: Cloud) -> ProviderRef:
    provider = cloud.provider
    if isinstance(provider, NeedsPreparing):
        while not provider.prepared(cloud.order()):
            await provider.prepare(cloud.order())
    return await provider.launch(cloud.order())


async def seen(cloud: Cloud, ref: ProviderRef) -> Sighting:
    (found,) = [each for each in await cloud.provider.inventory() if each.provider_ref == ref]
    return found


async def test_what_a_provider_cannot_do_is_refused_without_a_call() -> None:
    for_the_guard, refused = AccountName("any"), 0
    async for cloud in every():
        guard = Guard(cloud.provider, account=for_the_guard, now=cloud.clock.now)
        if isinstance(cloud, EmulatedCloud):
            cloud.network.requests.clear()
        for action in set(PowerAction) - cloud.provider.capabilities.power:
            with pytest.raises(Rejected, match="cannot"):
                await guard.power(action, cloud.absent_ref)
            provider = cloud.provider
            if isinstance(provider, HasPower):
                with pytest.raises(Rejected):
                    await provider.power(action, cloud.absent_ref)
            refused += 1
        if isinstance(cloud, EmulatedCloud):
            assert cloud.network.requests == [], cloud.name
    assert refused > len(PowerAction)


async def test_a_reboot_boots_the_machine_once_and_keeps_its_place() -> None:
    names = set[str]()
    async for cloud, provider, ref in switched(REBOOT):
        before, boots = await seen(cloud, ref), cloud.boots(ref)
        await provider.power(REBOOT, ref)
        cloud.advance(cloud.seconds_to_run)
        after = await seen(cloud, ref)
        assert (after.state, after.launch_key) == (ListedState.RUNNING, before.launch_key), cloud.name
        assert (cloud.boots(ref), cloud.ever(before.launch_key)) == (boots + 1, 1), cloud.name
        names.add(cloud.name)
    assert names >= {"fake", "lambda_cloud", "hyperstack", "aws", "crusoe", "shadeform", "vast"}


async def test_a_stopped_machine_is_listed_as_stopped_and_starts_again() -> None:
    names = set[str]()
    async for cloud, provider, ref in switched(STOP):
        boots = cloud.boots(ref)
        for _ in range(2):
            await provider.power(STOP, ref)
            assert (await seen(cloud, ref)).state is ListedState.STOPPED, cloud.name
        assert cloud.boots(ref) == boots, cloud.name
        await provider.power(START, ref)
        cloud.advance(cloud.seconds_to_run)
        after = await seen(cloud, ref)
        assert after.state is ListedState.RUNNING, cloud.name
        assert after.address, cloud.name
        await provider.power(START, ref)
        assert cloud.ever(after.launch_key) == 1, cloud.name
        names.add(cloud.name)
    assert names >= {"fake", "hyperstack", "aws", "verda", "nebius", "crusoe"}


async def test_an_answer_that_is_lost_is_no_answer_and_nothing_is_sent_twice() -> None:
    for action in (REBOOT, STOP):
        async for cloud, provider, ref in switched(action):
            boots = cloud.boots(ref)
            for lose in (cloud.lose_the_answer, cloud.fail_after_the_effect):
                lose("power")
                with pytest.raises(OutcomeUnknown):
                    await provider.power(action, ref)
                if action is STOP:
                    assert (await seen(cloud, ref)).state is ListedState.STOPPED, cloud.name
                    await provider.power(START, ref)
            if action is REBOOT:
                assert cloud.boots(ref) == boots + 2, cloud.name


async def test_an_absent_machine_and_a_throttle_say_so() -> None:
    for action in (REBOOT, STOP):
        async for cloud, provider, ref in switched(action):
            with pytest.raises(MachineNotFound):
                await provider.power(action, cloud.absent_ref)
            cloud.throttle("power")
            with pytest.raises(Throttled):
                await provider.power(action, ref)


async def test_a_cut_network_and_a_revoked_key_change_nothing() -> None:
    for action in (REBOOT, STOP):
        async for cloud, _, ref in switched(action):
            boots = cloud.boots(ref)
            cloud.revoke_the_key()
            revoked = cloud.provider
            assert isinstance(revoked, HasPower)
            with pytest.raises(Unauthorized):
                await revoked.power(action, ref)
            assert cloud.boots(ref) == boots, cloud.name
        async for cloud, provider, ref in switched(action):
            cloud.cut_the_network()
            with pytest.raises(Unavailable):
                await provider.power(action, ref)
