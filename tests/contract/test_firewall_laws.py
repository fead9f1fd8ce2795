"""The laws of providers' firewalls, over every provider that can let in other packets to one machine than to another."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from control_plane.domain.firewall import RULES_MAX, Protocol
from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from control_plane.domain.ingress import KEPT, Ingress
from providers.base import MachineNotFound, ProviderFirewall, Rejected, Throttled, Unauthorized, Unavailable
from providers.guard import Guard
from providers.optional import HasFirewall, NeedsPreparing
from tests.contract.clouds import Cloud, EmulatedCloud, a_key, clouds

WEB = Ingress(Protocol.TCP, 443, 443, "0.0.0.0/0")
GAMES = Ingress(Protocol.UDP, 6000, 6010, "203.0.113.0/24")
FRIEND = Ingress(Protocol.TCP, 443, 443, "198.51.100.7/32")
STEPS_MAX = 8


@dataclass
class Standing:
    """A machine that runs in a cloud."""

    cloud: Cloud
    ref: ProviderRef
    key: LaunchKey

    async def step(self, *wanted: Ingress) -> bool:
        provider = self.cloud.provider
        assert isinstance(provider, HasFirewall)
        return await provider.apply_ingress(self.ref, self.key, frozenset(wanted))

    async def settle(self, *wanted: Ingress) -> int:
        """Step until nothing is left to do; returns how many steps changed something."""
        for steps in range(STEPS_MAX):
            if await self.step(*wanted):
                assert self.open == set(wanted), self.cloud.name
                return steps
        raise AssertionError(f"{self.cloud.name} does not settle at {wanted}")

    @property
    def open(self) -> set[Ingress]:
        """What is let in besides SSH and WireGuard."""
        found = self.cloud.lets_in(self.ref)
        assert set(found) >= KEPT, f"{self.cloud.name} closed SSH or WireGuard"
        assert len(found) == len(set(found)), f"{self.cloud.name} has an entry twice"
        return set(found) - KEPT


async def launched(cloud: Cloud, number: int = 1) -> Standing:
    provider, order = cloud.provider, cloud.order(number)
    if isinstance(provider, NeedsPreparing):
        while not provider.prepared(order):
            await provider.prepare(order)
    return Standing(cloud, await provider.launch(order), a_key(number))


async def filtered() -> AsyncIterator[Standing]:
    """A machine that runs in each cloud whose firewall follows the rules of its customer."""
    for make in clouds().values():
        cloud = make()
        if isinstance(cloud.provider, HasFirewall):
            standing = await launched(cloud)
            cloud.advance(cloud.seconds_to_run)
            yield standing
        await cloud.provider.close()


async def test_a_provider_that_says_that_it_follows_can_and_no_other_one() -> None:
    names = set[str]()
    for make in clouds().values():
        cloud = make()
        provider, follows = cloud.provider, cloud.provider.capabilities.firewall is ProviderFirewall.FOLLOWS
        assert isinstance(provider, HasFirewall) is follows, cloud.name
        assert (provider.capabilities.ingress_max >= RULES_MAX) is follows, cloud.name
        guard = Guard(provider, account=AccountName("any"), now=cloud.clock.now)
        if follows:
            names.add(cloud.name)
        else:
            with pytest.raises(Rejected, match="no firewall"):
                await guard.apply_ingress(cloud.absent_ref, a_key(), frozenset({WEB}))
        await provider.close()
    assert names == {"aws", "fake", "hyperstack"}


async def test_what_is_wanted_is_let_in_and_closed_again_at_this_machine_alone() -> None:
    async for machine in filtered():
        other = await launched(machine.cloud, 2)
        assert await machine.settle() == 0, "it was launched with SSH and WireGuard"
        for wanted in ((WEB, GAMES), (GAMES, FRIEND), (FRIEND,), ()):
            assert await machine.settle(*wanted) > 0, machine.cloud.name
            assert await machine.settle(*wanted) == 0, machine.cloud.name
            assert other.open == set(), f"{machine.cloud.name} opened another machine"


async def test_what_is_to_stay_open_is_open_after_every_step() -> None:
    async for machine in filtered():
        await machine.settle(WEB, FRIEND)
        for _ in range(STEPS_MAX):
            done = await machine.step(FRIEND, GAMES)
            assert FRIEND in machine.open, machine.cloud.name
            if done:
                break


async def test_what_somebody_changed_at_the_provider_is_put_back() -> None:
    async for machine in filtered():
        await machine.settle(WEB)
        machine.cloud.open_by_hand(machine.ref, GAMES)
        assert await machine.settle(WEB) > 0, machine.cloud.name


async def test_a_lost_answer_changes_nothing_twice() -> None:
    async for machine in filtered():
        for lose in (machine.cloud.lose_the_answer, machine.cloud.fail_after_the_effect):
            for wanted in ((WEB, GAMES), (GAMES,), ()):
                for _ in range(STEPS_MAX):
                    lose("firewall")
                    with pytest.raises(Unavailable):
                        await machine.step(*wanted)
                    if machine.open == set(wanted):
                        break
                unlose(machine.cloud)
                await machine.settle(*wanted)


def unlose(cloud: Cloud) -> None:
    """Forget a fault that no call met."""
    if isinstance(cloud, EmulatedCloud):
        cloud.scenario.faults.clear()


async def test_the_most_entries_that_a_provider_takes_are_let_in() -> None:
    async for machine in filtered():
        number = machine.cloud.provider.capabilities.ingress_max
        wanted = [Ingress(Protocol.TCP, 1000 + each, 1000 + each, "0.0.0.0/0") for each in range(number)]
        for _ in range(number + STEPS_MAX):
            if await machine.step(*wanted):
                break
        assert machine.open == set(wanted), machine.cloud.name
        moved = [*wanted[1:], WEB]
        for _ in range(STEPS_MAX):
            if await machine.step(*moved):
                break
        assert machine.open == set(moved), machine.cloud.name


async def test_an_absent_machine_a_throttle_and_a_revoked_key_say_so() -> None:
    async for machine in filtered():
        cloud, provider = machine.cloud, machine.cloud.provider
        assert isinstance(provider, HasFirewall)
        with pytest.raises(MachineNotFound):
            await provider.apply_ingress(cloud.absent_ref, machine.key, frozenset({WEB}))
        cloud.throttle("firewall")
        with pytest.raises(Throttled):
            await machine.step(WEB)
        cloud.revoke_the_key()
        with pytest.raises(Unauthorized):
            await machine.step(WEB)
        assert machine.open == set(), cloud.name
