"""Simulated agents keep the laws of real ones, and fail as a test says."""

import asyncio

import pytest

from data_plane.access.port import StepFailed, Unreachable
from data_plane.cluster.agents import AgentOrder
from data_plane.simulation.agents import FakeAgents
from tests.support import agent_laws
from tests.unit.data_plane.simulation.test_members import place, target


def order(number: int, *, address: str | None = None) -> AgentOrder:
    at = address or f"10.64.16.{number}"
    return AgentOrder(target(number), f"node-{number}", at, "https://10.64.16.2:6443", "K10abc::id.secret")


async def a_prepared_machine() -> FakeAgents:
    agents = FakeAgents()
    await agents.members.make_key(target(1))
    await agents.members.apply(target(1), place(1), [])
    await agents.prepare(target(1))
    return agents


def test_simulated_agents_keep_the_laws_of_agents() -> None:
    async def play() -> None:
        agents = await a_prepared_machine()
        await agent_laws.preparing_has_the_same_evidence_twice(agents, target(1))
        await agent_laws.only_a_prepared_machine_with_its_address_starts(
            agents, order(1), order(2), order(1, address="10.64.16.9")
        )
        assert agents.running["192.0.2.1"].node == "node-1"
        await agent_laws.a_clean_machine_has_nothing_left(agents, target(1))
        assert not agents.running
        assert "192.0.2.1" not in agents.members.members

    asyncio.run(play())


def test_a_token_is_there_from_the_start_until_it_is_dropped() -> None:
    async def play() -> None:
        agents = await a_prepared_machine()
        await agents.start(order(1))
        assert agents.tokens == {"192.0.2.1"}
        await agents.drop_token(target(1))
        await agents.start(order(1))
        assert agents.tokens == set(), "an agent that runs as ordered gets no token again"
        await agents.stop(target(1))
        await agents.start(order(1))
        assert agents.tokens == {"192.0.2.1"}

    asyncio.run(play())


def test_what_cleaning_leaves_failures_and_machines_that_are_gone_are_as_a_test_says() -> None:
    async def play() -> None:
        agents = await a_prepared_machine()
        faults = agents.members.faults
        faults.fail["start"] = [StepFailed("start agent", 70, "no space left on device")]
        with pytest.raises(StepFailed, match="no space"):
            await agents.start(order(1))
        assert not agents.running
        faults.lose["start"] = 1
        with pytest.raises(Unreachable):
            await agents.start(order(1))
        assert agents.running
        agents.left["192.0.2.1"] = ("mount /run/k3s/x",)
        cleaned = await agents.clean(target(1))
        assert (cleaned.nothing_left, cleaned.left) == (False, ("mount /run/k3s/x",))
        faults.gone.add("192.0.2.1")
        with pytest.raises(Unreachable, match="no answer"):
            await agents.clean(target(1))

    asyncio.run(play())


def test_no_description_of_an_order_holds_the_token() -> None:
    assert "secret" not in repr(order(1))
