"""The laws of consoles, over every provider: what a machine printed is read without a trace, and failures hurt nobody."""

from collections.abc import AsyncIterator

import pytest

from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import MachineNotFound, Rejected, Throttled, Unauthorized, Unavailable
from providers.guard import Guard
from providers.optional import ConsoleTicket, HasConsole
from tests.contract.clouds import Cloud, EmulatedCloud
from tests.contract.test_power_laws import every, launched

TICKETS_MAX = 10


async def with_a_machine() -> AsyncIterator[tuple[Cloud, HasConsole, ProviderRef]]:
    """Each cloud whose provider has consoles, with a machine that runs."""
    async for cloud in every():
        provider = cloud.provider
        if provider.capabilities.console:
            assert isinstance(provider, HasConsole), f"{cloud.name} says that it has what it has not"
            ref = await launched(cloud)
            cloud.advance(cloud.seconds_to_run)
            yield cloud, provider, ref


async def printed(cloud: Cloud, provider: HasConsole, ref: ProviderRef) -> tuple[str, int]:
    """What the machine printed, and after how many tickets."""
    ticket = None
    for tickets in range(TICKETS_MAX):
        found = await provider.console(ref, ticket)
        if not isinstance(found, ConsoleTicket):
            return found, tickets
        ticket = found.value
        cloud.advance(1.0)
    raise AssertionError(f"{cloud.name} hands out tickets for ever")


async def test_without_a_console_nothing_is_called() -> None:
    refused = 0
    async for cloud in every():
        if cloud.provider.capabilities.console:
            continue
        assert not isinstance(cloud.provider, HasConsole), f"{cloud.name} has a console and does not say it"
        if isinstance(cloud, EmulatedCloud):
            cloud.network.requests.clear()
        guard = Guard(cloud.provider, account=AccountName("any"), now=cloud.clock.now)
        with pytest.raises(Rejected, match="no console"):
            await guard.console(cloud.absent_ref, None)
        if isinstance(cloud, EmulatedCloud):
            assert cloud.network.requests == [], cloud.name
        refused += 1
    assert refused > 1


async def test_what_a_machine_printed_is_read_and_nothing_changes() -> None:
    tickets = dict[str, int]()
    async for cloud, provider, ref in with_a_machine():
        before, boots = await cloud.provider.inventory(), _boots(cloud, ref)
        for _ in range(2):
            text, tickets[cloud.name] = await printed(cloud, provider, ref)
            assert "Linux version" in text, cloud.name
        assert await cloud.provider.inventory() == before, cloud.name
        assert _boots(cloud, ref) == boots, cloud.name
    assert tickets.keys() >= {"fake", "aws", "hyperstack", "local"}
    assert tickets["hyperstack"] == 2, "asked for, not there yet, there"


def _boots(cloud: Cloud, ref: ProviderRef) -> int:
    return cloud.boots(ref) if cloud.provider.capabilities.power else 1


async def test_an_absent_machine_a_throttle_and_a_lost_answer_say_so() -> None:
    async for cloud, provider, ref in with_a_machine():
        with pytest.raises(MachineNotFound):
            await provider.console(cloud.absent_ref, None)
        cloud.throttle("console")
        with pytest.raises(Throttled):
            await provider.console(ref, None)
        for lose in (cloud.lose_the_answer, cloud.fail_after_the_effect):
            lose("console")
            with pytest.raises(Unavailable):
                await provider.console(ref, None)
        assert "Linux version" in (await printed(cloud, provider, ref))[0], cloud.name


async def test_a_revoked_key_and_a_cut_network_say_so() -> None:
    async for cloud, _, ref in with_a_machine():
        cloud.revoke_the_key()
        revoked = cloud.provider
        assert isinstance(revoked, HasConsole)
        with pytest.raises(Unauthorized):
            await revoked.console(ref, None)
    async for cloud, provider, ref in with_a_machine():
        cloud.cut_the_network()
        with pytest.raises(Unavailable):
            await provider.console(ref, None)


async def test_consoles_that_fail_keep_no_launch_from_the_account() -> None:
    async for cloud, _, ref in with_a_machine():
        guard = Guard(
            cloud.provider, account=AccountName("any"), now=cloud.clock.now, sleep=cloud.clock.sleep
        )
        for _ in range(3 * guard.breaker.failures_max):
            cloud.lose_the_answer("console")
        for _ in range(guard.breaker.failures_max):
            with pytest.raises(Unavailable):
                await guard.console(ref, None)
        assert guard.breaker.open_since is None, cloud.name
