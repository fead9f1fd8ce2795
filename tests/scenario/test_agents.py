"""Agents on machines: installed once a customer is admitted, heard through the hub, and gone with their lease."""

import hashlib
from datetime import timedelta
from typing import cast

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from control_plane.db import agents, samples
from control_plane.db.engine import Database, Role
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.agent import (
    KNOWN_AFTER_THE_END,
    SILENT_AFTER,
    Agent,
    AgentEvidence,
    AgentState,
    AgentTask,
    state,
)
from control_plane.domain.lease import Lease
from control_plane.services import lease_overviews
from control_plane.services.lease_overviews import Shown
from data_plane.access.port import Unreachable
from data_plane.inspection.bundle import Bundle
from data_plane.simulation.access import FakeMachine
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.samples import Fault
from reconciler.figures import FIGURES
from tests.support.database import login_url
from tests.support.ingesting import Ingesting
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database


async def _leased(stage: Stage) -> tuple[Lease, FakeMachine]:
    """A lease whose customer was just admitted, and its machine."""
    lease = await stage.lease(await stage.organization())
    while await stage.state(lease) != "ready":
        await stage.turns(without=("install_agents", "collect_heartbeats"))
        stage.clock.advance(2)
    (machine,) = (each for each in stage.access.machines.values() if each.customer is not None)
    return lease, machine


async def _agent(stage: Stage) -> Agent:
    async with stage.db.reading() as connection:
        (agent,) = await agents.page(connection, silent_since=None, after=None, limit=100)
    return agent


def _collector(stage: Stage) -> FakeCollector:
    return cast("FakeCollector", stage.world.collector)


async def _hear(stage: Stage, times: int = 1) -> None:
    for _ in range(times):
        await stage.run("collect_heartbeats")
        stage.clock.advance(15)


async def test_an_agent_is_installed_reports_does_its_tasks_and_goes_with_its_lease(stage: Stage) -> None:
    lease, machine = await _leased(stage)
    assert machine.agent is None
    await stage.run("install_agents")
    assert machine.agent is not None
    assert (machine.agent.own, machine.agent.hub) == (
        machine.link and machine.link.address,
        machine.link and machine.link.hub_address,
    )
    installed = await _agent(stage)
    assert (installed.agent_sha256, installed.lease_id) == (stage.world.agent.sha256, lease.id)
    assert state(installed, stage.clock.now()) is AgentState.WAITING
    await _hear(stage, 9)
    heard = await _agent(stage)
    assert state(heard, stage.clock.now()) is AgentState.REPORTING
    assert heard.received == 9
    assert heard.heartbeat is not None
    assert heard.heartbeat["sequence"] == 9
    assert heard.results.keys() == set(AgentTask), "each task was asked for once, and answered"
    read = await lease_overviews.get(stage.api, lease.organization_id, lease.id, reach=EVERYWHERE)
    assert isinstance(read, Shown)
    assert read.overview.agent == AgentEvidence(heard.reported_at, heard.results, None), (
        "its customer reads it too"
    )
    await stage.release(lease)
    await _hear(stage)
    assert machine.agent is None, "it was told that its lease has ended"
    ended = await _agent(stage)
    assert state(ended, stage.clock.now()) is AgentState.ENDED
    assert ended.received == 9
    await stage.finish()
    stage.clock.advance(KNOWN_AFTER_THE_END.total_seconds())
    await stage.run("collect_heartbeats")
    async with stage.db.reading() as connection:
        assert await agents.page(connection, silent_since=None, after=None, limit=100) == []


async def test_the_hub_is_told_whose_the_networks_are_that_agents_report_from(stage: Stage) -> None:
    ours, theirs = await stage.organization(), await stage.organization()
    for whose in (ours, ours, theirs):
        lease = await stage.lease(whose)
        await stage.play_until(lease, "ready", seconds_max=90)
    await stage.run("install_agents")
    await _hear(stage)
    async with stage.db.reading() as connection:
        found = await rows(connection, text("SELECT number, organization_id FROM hub_networks"))
    number_of = {row.organization_id: row.number for row in found}
    holders = _collector(stage).holders[None]
    assert holders.keys() == {f"network {number}" for number in number_of.values()}
    assert holders[f"network {number_of[ours]}"] != holders[f"network {number_of[theirs]}"]


async def test_only_the_digest_of_a_credential_is_stored(stage: Stage) -> None:
    _, machine = await _leased(stage)
    await stage.run("install_agents")
    assert machine.agent is not None
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, text("SELECT agents.*, agents::text AS whole FROM agents"))
    assert row.digest == hashlib.sha256(machine.agent.credential.encode()).hexdigest()
    assert machine.agent.credential not in row.whole


async def test_a_silent_agent_costs_nobody_anything(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIGURES, "figures", None)
    lease, machine = await _leased(stage)
    await stage.run("install_agents")
    await _hear(stage, 2)
    address = next(where for where, each in stage.access.machines.items() if each is machine)
    _collector(stage).silent.add(address)
    await stage.play(2 * SILENT_AFTER.total_seconds(), step=30)
    assert state(await _agent(stage), stage.clock.now()) is AgentState.SILENT
    await stage.run("read_figures")
    assert REGISTRY.get_sample_value("splitplane_agents_silent") == 1
    assert await stage.state(lease) == "ready"
    _collector(stage).silent.clear()
    await _hear(stage)
    assert state(await _agent(stage), stage.clock.now()) is AgentState.REPORTING
    await stage.finish()


async def test_an_agent_that_cannot_be_installed_is_tried_again_and_the_lease_goes_on(stage: Stage) -> None:
    lease, machine = await _leased(stage)
    machine.step_fails["install agent"] = 1
    await stage.run("install_agents")
    assert "scripted to fail" in ((await _agent(stage)).why or "")
    await stage.run("install_agents")
    assert machine.agent is None, "not again before its time"
    stage.clock.advance(60)
    await stage.run("install_agents")
    assert machine.agent is not None
    assert (await _agent(stage)).why is None
    assert await stage.state(lease) == "ready"


async def test_a_newer_agent_replaces_an_older_one_which_is_heard_until_then(stage: Stage) -> None:
    _, machine = await _leased(stage)
    await stage.run("install_agents")
    await _hear(stage, 2)
    before = machine.agent
    stage.world = stage.replica("newer")
    object.__setattr__(stage.world, "agent", Bundle(b"newer", "1" * 64))
    stage.clock.advance(timedelta(minutes=5).total_seconds())
    machine.step_fails["install agent"] = 1
    await stage.run("install_agents")
    assert machine.agent == before
    await _hear(stage, 4)
    assert (await _agent(stage)).received == 6
    await stage.run("install_agents")
    assert machine.agent is not None
    assert before is not None
    assert machine.agent.credential != before.credential
    await _hear(stage)
    after = await _agent(stage)
    assert (after.agent_sha256, after.received) == ("1" * 64, 7)


async def test_heartbeats_that_are_returned_twice_are_stored_once(stage: Stage) -> None:
    """The answer was stored, but the collector did not hear of it: another replica asks with what it read before."""
    await _leased(stage)
    await stage.run("install_agents")
    await _hear(stage)
    async with stage.db.transaction() as connection:
        reported = [
            agents.Reported(
                (await agents.known(connection, limit=1))[0].digest, 1, stage.clock.now(), {}, 5, {}
            )
        ]
        assert await agents.store(connection, reported) == 0
    assert (await _agent(stage)).received == 1


async def test_while_the_hub_is_away_nothing_is_lost(stage: Stage) -> None:
    await _leased(stage)
    await stage.run("install_agents")
    await _hear(stage)
    _collector(stage).fail_next.append(Unreachable("the hub is away"))
    (report,) = await stage.run("collect_heartbeats")
    assert "the hub is away" in report.errors[0]
    await _hear(stage)
    assert (await _agent(stage)).received == 2


async def test_what_a_simulated_machine_samples_is_stored_and_a_fault_of_it_is_notable(
    stage: Stage, database_url: str
) -> None:
    lease, machine = await _leased(stage)
    await stage.run("install_agents")
    ingest = Database(login_url(database_url, Role.INGEST), role=Role.INGEST, pool_size=1, readers=1)
    collector = _collector(stage)
    collector.ingest, collector.unix = (
        Ingesting(ingest, stage.clock.now),
        lambda: stage.clock.now().timestamp(),
    )
    await _hear(stage, 2)
    fault_ms = int(1000 * stage.clock.now().timestamp())
    machine.samples.add(Fault(fault_ms, xid=79, changes={"lost": True}))
    await _hear(stage, 2)
    async with stage.db.reading() as connection:
        window = await samples.window(connection, lease.id, since=stage.clock.now() - timedelta(minutes=5))
    assert [stored.sequence for stored in window] == [4, 3, 2, 1]
    assert [stored.notable for stored in window] == [True, True, False, False]
    assert [xid["number"] for xid in window[1].document["xids"]] == [79]
    assert [gpu["index"] for gpu in window[0].document["gpus"] if gpu["lost"]] == [0]
    await stage.release(lease)
    await _hear(stage)
    async with stage.db.reading() as connection:
        after = await samples.window(connection, lease.id, since=stage.clock.now() - timedelta(minutes=5))
    assert len(after) == 4, "with the lease, the credential ends"
    await ingest.close()
