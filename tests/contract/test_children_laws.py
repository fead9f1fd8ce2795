"""The laws of children, over every provider whose launches make any."""

from collections.abc import AsyncIterator

import pytest

from control_plane.domain.firewall import Protocol
from control_plane.domain.ids import LaunchKey, ProviderRef
from control_plane.domain.ingress import Ingress
from providers.base import Child, Needed, OutcomeUnknown, Rejected, Unavailable
from providers.optional import HasChildren, HasFirewall, NeedsPreparing
from tests.contract.clouds import Cloud, CloudWithChildren, EmulatedCloud, a_key, clouds

OPENED = frozenset({Ingress(Protocol.TCP, 8080, 8080, "203.0.113.0/24")})


async def with_children() -> AsyncIterator[CloudWithChildren]:
    for make in clouds().values():
        cloud = make()
        if isinstance(cloud.provider, HasChildren):
            assert isinstance(cloud, CloudWithChildren), f"{cloud.name} can show no foreign child"
            yield cloud
        await cloud.provider.close()


def of(cloud: CloudWithChildren) -> HasChildren:
    assert isinstance(cloud.provider, HasChildren)
    return cloud.provider


async def launch(cloud: Cloud, number: int = 1) -> ProviderRef:
    """As the guard does."""
    order = cloud.order(number)
    provider = cloud.provider
    if isinstance(provider, NeedsPreparing):
        while not provider.prepared(order):
            await provider.prepare(order)
    ref = await provider.launch(order)
    if isinstance(cloud, CloudWithChildren) and not cloud.children_of_launches:
        assert isinstance(provider, HasFirewall)
        while not await provider.apply_ingress(ref, order.launch_key, OPENED):
            pass
    return ref


async def listed(cloud: CloudWithChildren) -> dict[LaunchKey, list[Child]]:
    found: dict[LaunchKey, list[Child]] = {}
    for child in await of(cloud).children():
        found.setdefault(child.launch_key, []).append(child)
    return found


async def test_what_a_launch_makes_beside_its_machine_is_listed_under_its_launch_key() -> None:
    names = []
    async for cloud in with_children():
        await launch(cloud, 1)
        await launch(cloud, 2)
        found = await listed(cloud)
        assert set(found) == {a_key(1), a_key(2)}, cloud.name
        refs = [(child.kind, child.ref) for children in found.values() for child in children]
        assert len(set(refs)) == len(refs), f"{cloud.name}: launches share a child, or one is listed twice"
        names.append(cloud.name)
    assert {"aws", "fake"} <= set(names)


async def test_a_launch_of_any_other_provider_makes_its_machine_and_nothing_that_could_be_left() -> None:
    """What the first launch prepares is one for the installation, and what a later one creates, it creates by one call."""
    names = set()
    for make in clouds().values():
        cloud = make()
        if isinstance(cloud, EmulatedCloud) and not isinstance(cloud.provider, HasChildren):
            await launch(cloud, 1)
            before = len(cloud.network.requests)
            await launch(cloud, 2)
            written = [each for each in cloud.network.requests[before:] if each[0] != "GET"]
            assert len(written) == 1, f"{cloud.name}: {written}"
            names.add(cloud.name)
        await cloud.provider.close()
    assert {"crusoe", "hyperstack", "lambda_cloud", "shadeform", "vast"} <= names


async def test_a_lost_launch_leaves_children_that_are_listed() -> None:
    async for cloud in with_children():
        if not cloud.children_of_launches:
            continue
        cloud.lose_the_answer("launch")
        with pytest.raises(OutcomeUnknown):
            await launch(cloud)
        assert (await listed(cloud))[a_key()], cloud.name


async def test_a_deleted_child_is_gone_the_others_stay_and_deleting_it_twice_hurts_nobody() -> None:
    async for cloud in with_children():
        ref = await launch(cloud, 1)
        await launch(cloud, 2)
        before = await listed(cloud)
        (first, *others) = before[a_key(1)]
        if not cloud.children_of_launches:
            with pytest.raises(Unavailable):
                await of(cloud).delete_child(first)
            await cloud.provider.terminate(ref)
            cloud.advance(cloud.seconds_to_be_gone)
        await of(cloud).delete_child(first)
        with pytest.raises(Rejected):
            await of(cloud).delete_child(first)
        after = await listed(cloud)
        assert after.get(a_key(1), []) == others, cloud.name
        assert after[a_key(2)] == before[a_key(2)], cloud.name


async def test_children_without_a_launch_key_of_ours_are_not_listed() -> None:
    async for cloud in with_children():
        await cloud.add_foreign_child()
        assert await listed(cloud) == {}, cloud.name
        await launch(cloud)
        assert set(await listed(cloud)) == {a_key()}, cloud.name


async def test_what_is_needed_only_until_boot_can_be_deleted_beside_a_running_machine() -> None:
    async for cloud in with_children():
        ref = await launch(cloud)
        cloud.advance(cloud.seconds_to_run)
        for child in (await listed(cloud))[a_key()]:
            if child.needed is Needed.UNTIL_BOOT:
                await of(cloud).delete_child(child)
        assert ref in {sighting.provider_ref for sighting in await cloud.provider.inventory()}, cloud.name
        assert cloud.alive(a_key()) == 1, cloud.name
