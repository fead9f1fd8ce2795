"""Fifty machines that join a cluster at once, on real tunnels. How long each takes is measured elsewhere:
`python -m benchmarks peer_map`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from control_plane.domain.ids import OrganizationId
from control_plane.domain.overlay import SERVER_NUMBER, address_of
from control_plane.domain.peer_map import Member, Overlay, configurations
from data_plane.mesh.node import make_node_key, read_peers
from reconciler.overlay import configure
from tests.support.underlay import Host, Underlay, missing_requirements, reaches, underlay

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
"""How many instances of inotify root may have; each wireguard-go takes one."""
INSTANCES = 1_024
NODES, OF_ONE = 49, 7
"""Beside the server; seven of each organization."""
AT_ONCE = 6
"""Scripts that run at the same time: fifty would wait for each other's turns on two cores until their time is over."""
BLOCK = 9


def _missing() -> list[str]:
    missing = missing_requirements()
    if not missing and int(INOTIFY.read_text()) < INSTANCES and not _is_writable():
        return [f"{INOTIFY} is lower than {INSTANCES}, and cannot be raised from here"]
    return missing


def _is_writable() -> bool:
    try:
        INOTIFY.write_text(INOTIFY.read_text())
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("overlay"),
    pytest.mark.skipif(bool(_missing()), reason="; ".join(_missing())),
]


@pytest.fixture
def room_for_fifty() -> Iterator[None]:
    before = INOTIFY.read_text()
    if int(before) < INSTANCES:
        INOTIFY.write_text(str(INSTANCES))
    yield
    INOTIFY.write_text(before)


@asynccontextmanager
async def _fifty(internet: Underlay) -> AsyncIterator[dict[int, Host]]:
    """The server and the nodes, by their numbers in the overlay."""
    numbers = range(SERVER_NUMBER, SERVER_NUMBER + 1 + NODES)
    turns = asyncio.Semaphore(AT_ONCE)

    async def host(number: int) -> Host:
        async with turns:
            return await internet.connect(f"member{number}", number)

    yield dict(zip(numbers, await asyncio.gather(*(host(number) for number in numbers)), strict=True))


def _organization(number: int) -> OrganizationId:
    return OrganizationId(UUID(int=1 + (number - SERVER_NUMBER - 1) // OF_ONE))


def _overlay(keys: dict[int, str]) -> Overlay:
    members = {
        number: Member(number, key, number, f"198.51.100.{number}:51820") for number, key in keys.items()
    }
    server = members.pop(SERVER_NUMBER)
    nodes: dict[OrganizationId | None, list[Member]] = {}
    for number, member in members.items():
        nodes.setdefault(_organization(number), []).append(member)
    return Overlay(BLOCK, [server], nodes, {})


async def test_fifty_machines_that_join_at_once_reach_the_server_and_their_own_organization_alone(
    room_for_fifty: None,
) -> None:
    async with underlay() as internet, _fifty(internet) as hosts:
        turns = asyncio.Semaphore(AT_ONCE)

        async def key(number: int) -> tuple[int, str]:
            async with turns:
                return number, await make_node_key(hosts[number])

        overlay = _overlay(dict(await asyncio.gather(*(key(number) for number in hosts))))
        wanted = {each.member.number: each for each in configurations(overlay)}

        async def join(number: int) -> None:
            async with turns:
                await configure(hosts[number], overlay, wanted[number])

        await asyncio.gather(*(join(number) for number in hosts))
        everybody = {number: address_of(BLOCK, number) for number in hosts}

        async def seen_from(number: int) -> None:
            if number == SERVER_NUMBER:
                friends = set(everybody.values())
            else:
                of_one = {
                    each
                    for each in hosts
                    if each != SERVER_NUMBER and _organization(each) == _organization(number)
                }
                friends = {everybody[each] for each in of_one | {SERVER_NUMBER}}
            async with turns:
                assert await reaches(hosts[number], *friends) == friends, number
                if number != SERVER_NUMBER:
                    first = SERVER_NUMBER + 1
                    stranger = everybody[first + (number - first + OF_ONE) % NODES]
                    assert stranger not in friends
                    assert await reaches(hosts[number], stranger, seconds=0.3) == set(), number

        await asyncio.gather(*(seen_from(number) for number in hosts))
        assert len((await read_peers(hosts[SERVER_NUMBER])).keys) == NODES
