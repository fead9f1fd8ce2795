from dataclasses import replace

import pytest

from data_plane.access.customer import admit_customer, end_customer
from data_plane.access.line import Frame, LineBroken
from data_plane.access.login import close_other_logins, trust
from data_plane.access.port import Access, HostKeyChanged, LoginRefused, StepFailed, Target, Unreachable
from data_plane.documents.health import Recovery
from data_plane.documents.inventory import Gpu, Inventory
from data_plane.inspection.bundle import Bundle
from data_plane.inspection.gpus import read_gpus
from data_plane.inspection.health import read_health
from data_plane.mesh.machine import join_mesh, mesh_public_key
from data_plane.mesh.port import Peer, link
from data_plane.proof.challenger.prover_line import prover_line
from data_plane.simulation.access import FakeAccess, idle
from data_plane.simulation.hub import FakeHub
from tests.support.networks import a_network

AGENT = Bundle(b"agent", "a" * 64)
TARGET = Target("10.0.0.7", 22, "ssh-ed25519 AAAA", "sp-seven")
LEASE = "le_1"


def hardware(target: Target) -> Inventory:
    gpu = Gpu(0, "NVIDIA L4", f"GPU-{target.address.replace('.', '-')}", 23034, "none", None, None)
    return Inventory("emulated", "570.1", (gpu,))


async def test_a_machine_without_a_script_does_everything_right() -> None:
    fake = FakeAccess(hardware, hub=FakeHub())
    access: Access = fake
    network, hub = a_network(5), fake.hub
    assert hub is not None
    for _ in range(2):
        async with access.connect(TARGET) as session:
            await admit_customer(session, LEASE)
            key = await mesh_public_key(session)
            identity = await hub.sync(network, [Peer(network.address_of(1), key)])
            await join_mesh(session, link(network, identity, network.address_of(1)))
            report = await read_gpus(session, AGENT)
            assert report.agent_sha256 == AGENT.sha256
            assert report.gpus[0].uuid == "GPU-10-0-0-7"
    assert fake.machine(TARGET.address).customer == LEASE
    assert fake.machine(TARGET.address).link == link(network, identity, network.address_of(1))


async def test_a_machine_does_wrong_as_scripted() -> None:
    access = FakeAccess(hardware)
    access.script(
        TARGET.address,
        unreachable=2,
        login_refused=1,
        step_fails={"admit customer": 1},
        breaks_in={"run agent"},
    )
    for refusal in (Unreachable, Unreachable, LoginRefused):
        with pytest.raises(refusal):
            async with access.connect(TARGET):
                pytest.fail("got in")
    async with access.connect(TARGET) as session:
        with pytest.raises(StepFailed):
            await admit_customer(session, LEASE)
        await admit_customer(session, LEASE)
        with pytest.raises(Unreachable):
            await read_gpus(session, AGENT)
        await read_gpus(session, AGENT)

    access.script(TARGET.address, host_key_changed=True)
    with pytest.raises(HostKeyChanged):
        async with access.connect(TARGET):
            pytest.fail("got in")


async def test_an_address_that_passes_to_another_machine_shows_another_host_key() -> None:
    access = FakeAccess(hardware)
    async with access.connect(TARGET):
        pass
    other = replace(TARGET, host_key="ssh-ed25519 BBBB")
    with pytest.raises(HostKeyChanged):
        async with access.connect(other):
            pytest.fail("got in")
    access.forget(TARGET.address)
    async with access.connect(other):
        pass


async def test_a_liar_reports_what_it_likes() -> None:
    access = FakeAccess(hardware)
    lie = Inventory("nvml", "1", ())
    access.script(TARGET.address, inventory=lie)
    async with access.connect(TARGET) as session:
        assert (await read_gpus(session, AGENT)).gpus == ()


async def test_joining_before_the_hub_knows_the_machine_fails_as_in_reality() -> None:
    hub, network = FakeHub(), a_network(5)
    access = FakeAccess(hardware, hub=hub)
    async with access.connect(TARGET) as session:
        identity = await hub.sync(network, [])
        link_order = link(network, identity, network.address_of(1))
        with pytest.raises(StepFailed, match="no mesh key"):
            await join_mesh(session, link_order)
        key = await mesh_public_key(session)
        with pytest.raises(StepFailed, match="did not answer"):
            await join_mesh(session, link_order)
        await hub.sync(network, [Peer(network.address_of(1), key)])
        await join_mesh(session, link_order)
        await hub.drop(network)
        await hub.sync(network, [Peer(network.address_of(1), key)])
        with pytest.raises(StepFailed, match="did not answer"):
            await join_mesh(session, link_order)


async def test_a_hook_sees_every_step_before_it_happens() -> None:
    seen: list[tuple[str, str]] = []

    async def before(target: Target, step: str) -> None:
        seen.append((target.address, step))

    access = FakeAccess(hardware, before=before)
    async with access.connect(TARGET) as session:
        await mesh_public_key(session)
        await read_gpus(session, AGENT)
    assert [step for _, step in seen] == ["connect", "make mesh key", "run agent"]


async def test_a_malformed_principal_changes_nothing() -> None:
    access = FakeAccess(hardware)
    async with access.connect(TARGET) as session:
        await admit_customer(session, LEASE)
        with pytest.raises(StepFailed):
            await admit_customer(session, "not a principal")
    assert access.machine(TARGET.address).customer == LEASE


async def test_a_machine_accepts_certificates_for_itself_and_trusts_whom_it_is_told_to_trust() -> None:
    access = FakeAccess(hardware)
    async with access.connect(TARGET) as session:
        await close_other_logins(session)
        await trust(session, ["ssh-ed25519 ONE", "ssh-ed25519 TWO"])
        await admit_customer(session, LEASE)
        await end_customer(session)
    machine = access.machine(TARGET.address)
    assert (machine.authorities, machine.customer) == (("ssh-ed25519 ONE", "ssh-ed25519 TWO"), None)
    with pytest.raises(LoginRefused):
        async with access.connect(replace(TARGET, principal="sp-eight")):
            pytest.fail("got in")


class Parrot:
    """A line whose other end sends every frame back."""

    echoed = b""

    async def send(self, frame: bytes) -> float:
        self.echoed = frame
        return 1.0

    async def receive(self, bytes_max: int, seconds: float) -> Frame:
        return Frame(self.echoed[:bytes_max], 2.0, 2.0)


async def test_a_machine_proves_on_the_line_that_the_scenario_gives_it() -> None:
    fake = FakeAccess(hardware, proving=lambda target: Parrot())
    access: Access = fake
    fake.script(TARGET.address, step_fails={"find agent": 1}, breaks_in={"prove"})
    async with access.connect(TARGET) as session:
        with pytest.raises(StepFailed, match="scripted"):
            async with prover_line(session, AGENT):
                pytest.fail("it began")
        async with prover_line(session, AGENT) as line:
            await line.send(b"hello")
            with pytest.raises(LineBroken):
                await line.receive(10, 1)
        async with prover_line(session, AGENT) as line:
            await line.send(b"hello")
            assert await line.receive(4, 1) == Frame(b"hell", 2.0, 2.0)
    assert fake.machine(TARGET.address).calls == [
        "connect",
        "find agent",
        "find agent",
        "prove",
        "find agent",
        "prove",
    ]


async def test_without_a_prover_nobody_can_be_spoken_with() -> None:
    async with FakeAccess(hardware).connect(TARGET) as session:
        with pytest.raises(Unreachable, match="prove"):
            async with prover_line(session, AGENT):
                pytest.fail("it began")


async def test_a_simulated_machine_is_idle_and_well_until_a_test_says_otherwise() -> None:
    access = FakeAccess(hardware)
    async with access.connect(TARGET) as session:
        (well,) = (await read_health(session, AGENT)).gpus
        assert (well.processes, well.utilisation_percent, well.throttle, well.xids) == (0, 0, 1, ())
        health = idle(hardware(TARGET))
        ailing = replace(health, gpus=(replace(health.gpus[0], recovery=Recovery(action=1)),))
        access.machine(TARGET.address).health = ailing
        assert (await read_health(session, AGENT)).gpus == (replace(well, recovery_action=1),)
    assert access.machine(TARGET.address).calls == ["connect", "read health", "read health"]


async def test_reading_the_health_of_a_simulated_machine_fails_and_breaks_as_scripted() -> None:
    access = FakeAccess(hardware)
    access.script(TARGET.address, step_fails={"read health": 1}, breaks_in={"read health"})
    async with access.connect(TARGET) as session:
        for refusal in (StepFailed, Unreachable):
            with pytest.raises(refusal):
                await read_health(session, AGENT)
        await read_health(session, AGENT)
