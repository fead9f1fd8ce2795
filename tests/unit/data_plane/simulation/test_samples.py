"""What simulated machines sample, and what a script has happen to them."""

from uuid import UUID

import pytest

from data_plane.documents import strict
from data_plane.documents.agent_config import Config
from data_plane.documents.inventory import Gpu, Inventory
from data_plane.documents.sample import encode_sample, notable, read_sample, signs
from data_plane.documents.sample_delivery import Delivery
from data_plane.simulation.access import FakeMachine
from data_plane.simulation.collector import FakeCollector
from data_plane.simulation.samples import Fault, SimulatedServer

NOW = 1_795_800_000_000
CARDS = tuple(
    Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{UUID(int=index)}", 81559, "none", None, None)
    for index in range(8)
)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine(hardware=Inventory("emulated", "570.124.06", CARDS))


def test_a_simulated_machine_is_idle_and_healthy_and_its_samples_are_readable(machine: FakeMachine) -> None:
    samples = [machine.sample(NOW + 15_000 * n) for n in range(3)]
    assert [sample.sequence for sample in samples] == [1, 2, 3]
    assert [len(sample.gpus) for sample in samples] == [8, 8, 8]
    assert not any(notable(sample) for sample in samples)
    assert [read_sample(encode_sample(sample)) for sample in samples] == samples


def test_a_card_that_falls_off_the_bus_is_reported_once_and_stays_lost(machine: FakeMachine) -> None:
    machine.samples.add(Fault(NOW + 20_000, gpu=3, xid=79, changes={"lost": True, "recovery_action": 2}))
    before, after, later = (machine.sample(NOW + 15_000 * n) for n in range(1, 4))
    assert not notable(before)
    assert signs(after) == ("gpu_lost", "xid", "recovery_action")
    assert [(xid.number, xid.at) for xid in after.xids] == [(79, NOW // 1000 + 20)]
    assert [gpu.index for gpu in after.gpus if gpu.lost] == [3]
    assert later.xids == ()
    assert signs(later) == ("gpu_lost", "recovery_action")


def test_throttling_ends_when_the_script_says_so(machine: FakeMachine) -> None:
    machine.samples.add(Fault(NOW, until_ms=NOW + 30_000, changes={"throttle_reasons": 64}))
    assert [signs(machine.sample(NOW + 15_000 * n)) for n in range(3)] == [
        ("hardware_throttle",),
        ("hardware_throttle",),
        (),
    ]


def test_the_kv_cache_of_a_server_grows_until_requests_wait(machine: FakeMachine) -> None:
    machine.samples.servers.append(SimulatedServer(NOW, kv_cache_bp=8_000, growth_bp_per_minute=500))
    seen = [machine.sample(NOW + 60_000 * n).servers[0] for n in range(8)]
    assert [server.kv_cache_bp for server in seen] == [8000, 8500, 9000, 9500, 10000, 10000, 10000, 10000]
    assert [server.waiting for server in seen] == [0, 0, 0, 0, 0, 5, 10, 15]
    assert seen[-1].generation_tokens == 2_000 * 7 * 60


def test_gpus_that_cannot_be_read_say_why(machine: FakeMachine) -> None:
    machine.samples.failure = "nvml_hangs"
    machine.samples.add(Fault(NOW, xid=119))
    sample = machine.sample(NOW)
    assert (sample.failure, sample.gpus, sample.source, sample.xids) == ("nvml_hangs", (), None, ())
    assert read_sample(encode_sample(sample)) == sample


def test_a_script_with_what_no_card_can_have_is_refused(machine: FakeMachine) -> None:
    for changes in ({"lost": "yes"}, {"throttled": 1}, {"utilisation_percent": 101}):
        with pytest.raises(strict.Malformed):
            machine.samples.add(Fault(NOW, changes=changes))


async def test_agents_of_simulated_machines_deliver_as_real_ones_do(machine: FakeMachine) -> None:
    taken: list[tuple[str, Delivery]] = []

    async def ingest(credential: str, delivery: Delivery) -> None:
        taken.append((credential, delivery))

    machine.agent = Config("5e" * 32, "10.64.0.1", "10.64.0.2")
    machines = {"10.0.0.7": machine, "10.0.0.8": FakeMachine(), "10.0.0.9": FakeMachine(agent=machine.agent)}
    collector = FakeCollector(machines, ingest=ingest, unix=lambda: NOW / 1000, silent={"10.0.0.9"})
    await collector.exchange([])
    await collector.exchange([])
    assert [(credential, delivery.sent_at_ms) for credential, delivery in taken] == [("5e" * 32, NOW)] * 2
    assert [delivery.samples[0].sequence for _, delivery in taken] == [1, 2]
    assert len(taken[0][1].samples[0].gpus) == 8
