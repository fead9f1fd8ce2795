"""Simulated members keep the laws of real ones, and fail as a test says."""

import asyncio
from dataclasses import dataclass, field

import pytest

from data_plane.access.port import StepFailed, Target, Unreachable
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from data_plane.simulation.members import FakeMembers
from tests.support import agent_laws

RANGE, PODS = "10.64.16.0/20", "10.48.0.0/12"


def target(number: int) -> Target:
    return Target(f"192.0.2.{number}", 22, f"ssh-ed25519 key{number}", f"lk-{number}")


def place(number: int) -> OverlayPlace:
    return OverlayPlace(f"10.64.16.{number}", RANGE, PODS)


def peer(key: str, number: int) -> OverlayPeer:
    return OverlayPeer(key, (f"10.64.16.{number}/32",))


@dataclass
class Two:
    """Two members, each of which has a tunnel to the other."""

    members: FakeMembers = field(default_factory=FakeMembers)
    keys: dict[int, str] = field(default_factory=dict[int, str])

    async def join(self) -> "Two":
        self.keys = {number: await self.members.make_key(target(number)) for number in (1, 2)}
        for number, other in ((1, 2), (2, 1)):
            await self.members.apply(target(number), place(number), [peer(self.keys[other], other)])
        return self


def test_simulated_members_keep_the_laws_of_members() -> None:
    async def play() -> None:
        two = await Two().join()
        members = two.members
        assert await agent_laws.makes_one_key(members, target(1)) != two.keys[2]
        await agent_laws.tunnels_are_what_was_applied(members, target(1), place(1), [peer(two.keys[2], 2)])
        await agent_laws.changes_to_its_next_key_only(members, target(1), two.keys[2])

    asyncio.run(play())


def test_a_packet_passes_while_both_ends_list_each_other() -> None:
    async def play() -> None:
        two = await Two().join()
        members = two.members
        assert await members.probe(target(1), "10.64.16.2") == 1_420
        (tunnel,) = (await members.read(target(1))).tunnels
        assert not tunnel.silent
        members.packets["192.0.2.1"] = 1_340
        assert await members.probe(target(1), "10.64.16.2") == 1_340
        assert await members.probe(target(1), "10.64.16.3") is None
        await members.apply(target(2), place(2), [])
        assert await members.probe(target(1), "10.64.16.2") is None
        (tunnel,) = (await members.read(target(1))).tunnels
        assert tunnel.silent

    asyncio.run(play())


def test_what_a_real_member_refuses_is_refused() -> None:
    async def play() -> None:
        members = FakeMembers()
        with pytest.raises(StepFailed, match="no node key"):
            await members.apply(target(1), place(1), [])
        with pytest.raises(StepFailed, match="no interface"):
            await members.read(target(1))
        key = await members.make_key(target(1))
        with pytest.raises(StepFailed, match="share a key"):
            await members.apply(target(1), place(1), [peer(key, 2), peer(key, 3)])

    asyncio.run(play())


def test_a_lost_answer_took_effect_a_failed_call_did_not_and_a_machine_that_is_gone_does_not_answer() -> None:
    async def play() -> None:
        members = FakeMembers()
        members.faults.fail["make_key"] = [StepFailed("make node key", 1, "no room")]
        with pytest.raises(StepFailed, match="no room"):
            await members.make_key(target(1))
        assert members.members["192.0.2.1"].key is None
        members.faults.lose["make_key"] = 1
        with pytest.raises(Unreachable, match="broke"):
            await members.make_key(target(1))
        assert members.members["192.0.2.1"].key == await members.make_key(target(1))
        members.faults.gone.add("192.0.2.1")
        with pytest.raises(Unreachable, match="no answer"):
            await members.make_key(target(1))
        assert members.faults.calls == ["make_key 192.0.2.1"] * 4

    asyncio.run(play())
