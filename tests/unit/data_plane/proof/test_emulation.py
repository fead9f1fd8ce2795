"""The honest emulation, its model of time, and its line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_plane.access.line import LineBroken, LineSilent
from data_plane.documents.strict import Malformed
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.port import Expected, Occasion, Outcome
from data_plane.proof.challenger.reference import RHO, TABLE, Basis, References
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import (
    DIGEST_BYTES,
    VERSION,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.emulation.cards import CARDS, identity
from data_plane.proof.prover.emulation.device import SLICE_CHAINS, EmulatedDevice, Work
from data_plane.proof.prover.emulation.machine import Claim, machine_from
from data_plane.proof.verifier.recompute import LocalVerifier, one_blas_thread
from data_plane.simulation.line import VirtualLine
from data_plane.simulation.prover import paper
from data_plane.simulation.timing import CardTimer, Engine, Network, Scale
from tests.support.cheats.attackers import Altered, breaking, delayed, mute, oversized
from tests.support.cheats.miniature import Miniature

SEED, NONCE = bytes(range(32)), bytes(range(100, 116))
H100 = CARDS["h100-sxm-80gb"]
CLAIM = Claim(H100.name, "GPU-1", H100.memory_mib)


@pytest.fixture(autouse=True)
def small_products_on_one_thread() -> None:
    one_blas_thread()


def device() -> EmulatedDevice:
    return EmulatedDevice(identity(H100, 0, "GPU-1"))


# ---- the device ---------------------------------------------------------------------------------------------


def test_a_walk_over_the_filled_memory_is_a_walk_over_recomputed_blocks() -> None:
    gpu = device()
    gpu.fill(SEED, 2, 64)
    found = b"".join(gpu.walk(NONCE, 20, 8))

    def recomputed(numbers: np.ndarray) -> np.ndarray:
        return fill.blocks(SEED, 2, numbers)

    assert found == walk.digests(NONCE, np.arange(20, dtype=np.uint32), 8, 64, recomputed)


def test_slices_continue_where_the_last_one_ended() -> None:
    gpu = device()
    gpu.fill(SEED, 1, 8)
    slices = list(gpu.walk(NONCE, SLICE_CHAINS + 3, 1))
    assert [len(one) for one in slices] == [SLICE_CHAINS * DIGEST_BYTES, 3 * DIGEST_BYTES]
    last = np.array([SLICE_CHAINS + 2], np.uint32)
    alone = walk.digests(NONCE, last, 1, 8, lambda numbers: fill.blocks(SEED, 1, numbers))
    assert slices[1][-DIGEST_BYTES:] == alone


def test_tiles_and_launches_are_those_of_the_arithmetic() -> None:
    gpu = device()
    numbers = np.arange(5, dtype=np.uint32)
    assert b"".join(gpu.tiles("bf16", NONCE, 64, 2, 5)) == tiles.digests("bf16", NONCE, 64, 2, numbers)
    assert gpu.launch(NONCE) == launches.launch(NONCE)


def test_a_second_fill_replaces_the_first() -> None:
    gpu = device()
    gpu.fill(SEED, 1, 32)
    gpu.fill(bytes(32), 1, 16)
    other = device()
    other.fill(bytes(32), 1, 16)
    assert list(gpu.walk(NONCE, 4, 4)) == list(other.walk(NONCE, 4, 4))


def test_more_than_there_is_cannot_be_filled() -> None:
    gpu = EmulatedDevice(identity(H100, 0, "GPU-1"), blocks_max=16)
    with pytest.raises(DeviceError, match="out_of_memory: 8192 bytes free"):
        gpu.fill(SEED, 1, 17)


def test_nothing_can_be_walked_before_the_fill_or_after_the_release() -> None:
    gpu = device()
    with pytest.raises(DeviceError, match="bad_order"):
        next(gpu.walk(NONCE, 1, 1))
    gpu.fill(SEED, 1, 1)
    gpu.close()
    with pytest.raises(DeviceError, match="bad_order"):
        next(gpu.walk(NONCE, 1, 1))


def test_what_is_filled_is_no_longer_free() -> None:
    gpu = device()
    before = gpu.memory_free()
    gpu.fill(SEED, 1, 4)
    assert gpu.memory_free() == before - 4 * 512


@pytest.mark.parametrize("model", CARDS)
def test_every_card_says_what_can_be_said_over_the_wire(model: str) -> None:
    said = Identity(
        VERSION, "emulated", "570.1", "12.8", bytes(32), (), (identity(CARDS[model], 0, "GPU-1"),)
    )
    assert decode(encode(said)[4:], (Identity,)) == (said, b"")


# ---- the machine of a file ----------------------------------------------------------------------------------


def test_a_machine_is_made_from_the_file_of_a_test_machine(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    gpus = [
        {"index": index, "name": name, "uuid": f"GPU-{index}", "memory_total_mib": 23034}
        for index, name in enumerate(("NVIDIA L4", "A card of our own"))
    ]
    path.write_text(json.dumps({"driver_version": "570.124.06", "gpus": gpus}))
    machine = machine_from(path)
    assert (machine.source, machine.driver) == ("emulated", "570.124.06")
    said = [one.identity() for one in machine.devices]
    assert [(one.index, one.nvml_name, one.cuda_name, one.cuda_uuid) for one in said] == [
        (0, "NVIDIA L4", "NVIDIA L4", "GPU-0"),
        (1, "A card of our own", "A card of our own", "GPU-1"),
    ]
    assert said[0].nvml_memory == said[0].cuda_memory == 23034 << 20
    assert said[0].nvml_pci_device == "10de:27b8"


def test_without_a_file_there_is_nothing_to_emulate(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="emulation_missing"):
        machine_from(tmp_path / "none.json")


def test_a_file_that_describes_nothing_is_no_driver(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text('{"gpus": 7}')
    with pytest.raises(DeviceError, match="no_driver"):
        machine_from(path)


# ---- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CARDS)
def test_computing_a_unit_takes_as_long_as_reading_it_about_forty_times(model: str) -> None:
    """Our emulated world and the reference table, which chooses the iterations, are apart by their own estimates."""
    timer = CardTimer(CARDS[model].speeds)
    ratio = timer.seconds(Work(regenerated=8 * TABLE[model].iterations)) / timer.seconds(Work(reads=1))
    assert ratio == pytest.approx(RHO, rel=0.12)


def test_reading_fetching_and_computing_overlap() -> None:
    timer = CardTimer(H100.speeds)
    alone = [timer.seconds(one) for one in (Work(reads=1000), Work(fetched=30), Work(regenerated=5000))]
    assert timer.seconds(Work(reads=1000, fetched=30, regenerated=5000)) == max(alone)


def test_two_gpus_that_are_one_take_turns() -> None:
    engine = Engine()
    one, other = (CardTimer(H100.speeds, engine=engine) for _ in range(2))
    one.charge(Work(seconds=2.0))
    other.charge(Work(seconds=2.0))
    assert (one.time, other.time) == (2.0, 4.0)


def test_a_card_in_miniature_takes_as_long_as_a_real_one() -> None:
    whole = CardTimer(H100.speeds).seconds(Work(reads=1000 * 4))
    scaled = CardTimer(H100.speeds, Scale(blocks=1000)).seconds(Work(reads=4))
    assert scaled == pytest.approx(whole)


# ---- the line -----------------------------------------------------------------------------------------------


def line(**how: object) -> VirtualLine:
    return replace(paper([CLAIM, replace(CLAIM, uuid="GPU-2")], network=Network(0.01)), **how)  # type: ignore[arg-type]


async def test_an_answer_has_been_under_way_both_ways() -> None:
    one = line(now=100.0)
    left = await one.send(encode(Hello()))
    frame = await one.receive(1 << 20, 1.0)
    assert left == 100.0
    assert frame.began == pytest.approx(100.02)
    assert one.now == frame.began


async def test_a_frame_may_begin_before_it_ends_and_never_before_its_forerunner_did() -> None:
    one = line(attacker=Altered((LatencyAnswer,), lambda answer: [replace(answer.sent, began=100.1)]))
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    one.now = 100.0
    await one.send(encode(LatencyOrder(10_000, (NONCE, SEED[:16]))))
    first, second = [await one.receive(1 << 20, 5.0) for _ in range(2)]
    assert first.began == pytest.approx(100.11)
    assert first.ended == pytest.approx(100.17, abs=0.01)
    assert first.ended <= second.began <= second.ended == one.now


async def test_launches_are_charged_to_each_gpu_at_the_same_time() -> None:
    one = line()
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    left = await one.send(encode(LatencyOrder(1000, (NONCE, SEED[:16]))))
    took = [(await one.receive(1 << 20, 1.0)).began - left for _ in range(2)]
    assert took == pytest.approx([0.02 + 1000 * 15e-6] * 2, rel=0.05)


async def test_nothing_overtakes_what_left_before_it() -> None:
    class Jumpy(Network):
        """Every frame is faster than the last."""

        def one_way(self) -> float:
            self.delay *= 0.5
            return self.delay

    one = line(network=Jumpy(8.0))
    await one.send(encode(Hello()))
    began = (await one.receive(1 << 20, 20.0)).began
    await one.send(encode(LatencyOrder(1, (NONCE, NONCE))))
    later = [(await one.receive(1 << 20, 20.0)).began for _ in range(2)]
    assert began < later[0] <= later[1]


async def test_silence_lasts_as_long_as_one_listens() -> None:
    one = line(attacker=Altered((Identity,), mute))
    left = await one.send(encode(Hello()))
    with pytest.raises(LineSilent):
        await one.receive(1 << 20, 3.0)
    assert one.now == left + 3.0


async def test_a_late_answer_still_comes_afterwards() -> None:
    one = line(attacker=Altered((Identity,), delayed(5.0)))
    await one.send(encode(Hello()))
    with pytest.raises(LineSilent):
        await one.receive(1 << 20, 3.0)
    assert (await one.receive(1 << 20, 3.0)).began > 5.0


async def test_a_broken_line_takes_nothing_any_more() -> None:
    one = line(attacker=Altered((LatencyAnswer,), breaking))
    await one.send(encode(Hello()))
    await one.receive(1 << 20, 1.0)
    await one.send(encode(LatencyOrder(1, (NONCE, NONCE))))
    with pytest.raises(LineBroken):
        await one.receive(1 << 20, 1.0)
    with pytest.raises(LineBroken):
        await one.send(encode(Hello()))


async def test_a_frame_that_is_too_long_is_refused() -> None:
    one = line(attacker=Altered((Identity,), oversized))
    await one.send(encode(Hello()))
    with pytest.raises(Malformed):
        await one.receive(1 << 20, 1.0)


# ---- machines on paper --------------------------------------------------------------------------------------


def expected(count: int) -> Expected:
    return Expected("h100-sxm-80gb", count, frozenset({H100.name}), (H100.memory_mib,), 2)


async def test_a_machine_on_paper_answers_everything_and_counts_for_nothing() -> None:
    challenger = ProofChallenger(LocalVerifier(), References())
    report = await challenger.challenge(paper([CLAIM]), expected(1), Occasion.START)
    assert report.outcome is Outcome.EMULATED, report.findings
    assert report.proven_bytes == ()


@pytest.mark.parametrize("basis", [Basis.MEASURED, Basis.ESTIMATED])
async def test_a_machine_on_paper_that_says_cuda_is_proven_in_virtual_time(basis: Basis) -> None:
    miniature = Miniature()
    scale = miniature.scale("h100-sxm-80gb")
    machine = paper([CLAIM, replace(CLAIM, uuid="GPU-2")], source="cuda", scale=scale, seed=3)
    challenger = ProofChallenger(LocalVerifier(), miniature.references(basis), sizes=miniature.sizes)
    report = await challenger.challenge(machine, expected(2), Occasion.START)
    assert report.outcome is Outcome.PASSED, report.findings
    walked = [rate.seconds for rate in report.rates if rate.phase == "walk"]
    assert walked == pytest.approx([1.24, 1.24], rel=0.05)


async def test_a_machine_on_paper_with_the_speed_of_another_card_is_caught() -> None:
    miniature = Miniature()
    machine = paper(
        [CLAIM], source="cuda", profile=CARDS["a100-sxm-80gb"], scale=miniature.scale("h100-sxm-80gb")
    )
    challenger = ProofChallenger(LocalVerifier(), miniature.references(), sizes=miniature.sizes)
    report = await challenger.challenge(machine, expected(1), Occasion.START)
    assert {finding.code for finding in report.findings} == {"too_slow"}
