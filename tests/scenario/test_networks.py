"""Private networks on the hub: who meets whom, and when a network leaves the hub."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.network import range_of
from control_plane.domain.project import Project
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.services import leases, networks, projects
from control_plane.services.leases import WantedLease
from data_plane.mesh.port import HubIdentity, Network, Peer
from reconciler import network
from reconciler.loops.leases import repair_links
from reconciler.loops.mesh import sync_hub
from tests.support.rows import rows
from tests.support.stage import CUSTOMER, Stage

pytestmark = pytest.mark.database


async def _lease(stage: Stage, organization_id: OrganizationId, name: str, in_network: str) -> Lease:
    async with stage.db.transaction(organization_id) as connection:
        lease = await leases.create(
            connection,
            stage.api,
            organization_id,
            WantedLease(CapacityRequest("h100x1"), name, network=in_network, ssh_key_ids=[]),
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )
    assert isinstance(lease, Lease), lease
    return lease


async def _network(stage: Stage, organization_id: OrganizationId, name: str) -> None:
    async with stage.db.transaction(organization_id) as connection:
        project = await projects.named(connection, organization_id, "default", reach=EVERYWHERE)
        assert isinstance(project, Project)
        made = await networks.create(connection, stage.api, project, name=name, labels={})
    assert not isinstance(made, Refused), made


async def _on_hub(stage: Stage, lease: Lease) -> Network | None:
    async with stage.db.reading() as connection:
        found = await rows(
            connection,
            text("""
            SELECT h.number, n.block FROM hub_networks h JOIN networks n ON n.id = h.network_id
            WHERE h.network_id = :id
            """),
            id=lease.network_id,
        )
    return Network(found[0].number, range_of(found[0].block)) if found else None


async def _address(stage: Stage, lease: Lease) -> str:
    evidence = (await stage.shown(lease)).overview.evidence
    assert evidence is not None
    assert evidence.mesh_address is not None
    return evidence.mesh_address


async def _ready(stage: Stage, some: Sequence[Lease]) -> None:
    for lease in some:
        await stage.play_until(lease, "ready", seconds_max=120)


async def test_machines_meet_in_one_network_and_never_across_two(stage: Stage) -> None:
    acme, other = await stage.organization(), await stage.organization()
    await _network(stage, acme, "training")
    one, two = await _lease(stage, acme, "one", "training"), await _lease(stage, acme, "two", "training")
    apart, foreign = await _lease(stage, acme, "apart", "default"), await _lease(stage, other, "x", "default")
    await _ready(stage, (one, two, apart, foreign))
    of = {lease.name: await _on_hub(stage, lease) for lease in (one, apart, foreign)}
    assert len({found.number for found in of.values() if found}) == 3
    training = of["one"]
    assert training is not None
    addresses = {lease.name: await _address(stage, lease) for lease in (one, two, apart, foreign)}
    assert stage.hub.meets(training, addresses["one"], addresses["two"])
    for name in ("apart", "foreign"):
        lease_address = addresses["x" if name == "foreign" else name]
        for found in of.values():
            assert found is not None
            assert not stage.hub.meets(found, addresses["one"], lease_address)
    await stage.finish()


async def test_an_empty_network_keeps_its_place_on_the_hub_for_an_hour_and_then_frees_it(
    stage: Stage,
) -> None:
    acme = await stage.organization()
    lease = await _lease(stage, acme, "one", "default")
    await _ready(stage, [lease])
    before = await _on_hub(stage, lease)
    assert before is not None
    identity = stage.hub.identity(before)
    await stage.finish()
    stage.clock.advance(sync_hub.EMPTY_FOR.total_seconds() - 120)
    await stage.run("sync_hub")
    assert await _on_hub(stage, lease) == before
    stage.clock.advance(timedelta(hours=1).total_seconds())
    await stage.run("sync_hub")
    assert await _on_hub(stage, lease) is None
    assert before.number not in stage.hub.networks
    again = await _lease(stage, acme, "again", "default")
    await _ready(stage, [again])
    assert await _on_hub(stage, again) == before, "the place was free again"
    assert stage.hub.identity(before) != identity
    await stage.finish()


async def test_a_machine_that_joins_while_the_hub_drops_its_network_is_on_the_hub_in_the_end(
    stage: Stage,
) -> None:
    acme = await stage.organization()
    first = await _lease(stage, acme, "first", "default")
    await _ready(stage, [first])
    await stage.finish()
    stage.clock.advance(2 * sync_hub.EMPTY_FOR.total_seconds())
    late = await _lease(stage, acme, "late", "default")
    hub, joined = stage.hub, False

    class Slow:
        """A hub where, while it drops the network, another replica brings a machine to the point of joining."""

        async def sync(self, net: Network, peers: Sequence[Peer], *, fence: int) -> HubIdentity:
            return await hub.sync(net, peers, fence=fence)

        async def drop(self, net: Network, *, fence: int) -> None:
            nonlocal joined
            await hub.drop(net, fence=fence)
            if not joined:
                joined = True
                await stage.play(40)

    found = await _on_hub(stage, first)
    assert found is not None
    slow = stage.replica("slow")
    object.__setattr__(slow, "hub", Slow())
    assert first.network_id is not None
    assert not await network.drop(slow, first.network_id, found), "a machine waits to join it"
    await _ready(stage, [late])
    kept = await _on_hub(stage, late)
    assert kept is not None
    addresses = {peer.address for peer in stage.hub.networks[kept.number]}
    assert addresses == {await _address(stage, late)}
    await stage.finish()


async def _told(stage: Stage, lease: Lease) -> HubIdentity:
    """The hub as the machine of a lease knows it."""
    (machine,) = await stage.machines(lease)
    link = stage.access.machine(str(machine.address)).link
    assert link is not None
    return HubIdentity(link.hub_public_key, link.hub_endpoint)


async def test_machines_are_told_the_keys_of_a_hub_that_was_built_anew(stage: Stage) -> None:
    acme = await stage.organization()
    one, two = await _lease(stage, acme, "one", "default"), await _lease(stage, acme, "two", "default")
    await _ready(stage, (one, two))
    found = await _on_hub(stage, one)
    assert found is not None
    before = stage.hub.identity(found)
    assert [await _told(stage, lease) for lease in (one, two)] == [before, before]
    calls = stage.access.machine(str((await stage.machines(one))[0].address)).calls
    stage.clock.advance(60)
    (report,) = await stage.run("repair_links")
    assert report.looked_at == 0, "what is right is left alone"

    stage.hub.rebuild()
    await stage.run("repair_links")
    assert stage.hub.identity(found) != before
    stage.clock.advance(sync_hub.REPEAT_AFTER.total_seconds())
    await stage.run("sync_hub")
    (machine,) = await stage.machines(two)
    stage.access.machine(str(machine.address)).step_fails["join mesh"] = 1
    (report,) = await stage.run("repair_links")
    assert report.acted_on == 1
    assert await _told(stage, one) == stage.hub.identity(found)
    assert any("knows another hub" in note for note in report.notes), report.notes
    assert [await stage.state(lease) for lease in (one, two)] == ["ready", "ready"], "nobody is ended for it"
    stage.clock.advance(repair_links.RETRY_FIRST.total_seconds())
    await stage.run("repair_links")
    assert await _told(stage, two) == stage.hub.identity(found)
    joins = calls.count("join mesh")
    stage.clock.advance(3_600)
    await stage.run("sync_hub")
    await stage.run("repair_links")
    assert calls.count("join mesh") == joins, "its connections are not cut again"
    await stage.finish()


async def test_a_full_hub_makes_machines_wait_and_fails_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "NETWORKS_MAX", 2)
    one, two = await stage.organization(), await stage.organization()
    has = await _lease(stage, one, "has", "default")
    await _ready(stage, [has])
    waits = await _lease(stage, two, "waits", "default")
    await stage.play(120)
    assert await stage.state(waits) == "starting"
    told = (await stage.shown(waits)).status.message
    assert "for our hub of private networks, which cannot take it now. Nothing is billed meanwhile." in told
    first = told
    await stage.play(60)
    assert (await stage.shown(waits)).status.message == first, "since when it has waited stays as it is"
    assert [attempt.fail_reason for attempt in await stage.attempts(waits)] == [None]
    monkeypatch.setattr(network, "NETWORKS_MAX", 3)
    await _ready(stage, [waits])
    assert (await stage.shown(waits)).status.message == "Ready."
    await stage.finish()
