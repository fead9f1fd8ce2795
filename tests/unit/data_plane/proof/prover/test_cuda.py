"""The binding of CUDA and the device over it, against a driver in host memory (tests/support/fake_cuda.py)."""

import ctypes
import io
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import numpy as np
import pytest

from data_plane.device_report.report import device_figures
from data_plane.proof.challenger.plan import EMULATED
from data_plane.proof.challenger.reference import TABLE
from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import (
    BLOCK_BYTES,
    Committed,
    Evidence,
    Fill,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Opened,
    OpenOrder,
    Order,
    Refused,
    SmGaps,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover import cuda_device, cuda_machine, kernels
from data_plane.proof.prover.claims import Claims
from data_plane.proof.prover.cuda import SYMBOLS, Driver
from data_plane.proof.prover.cuda_context import Context
from data_plane.proof.prover.cuda_device import CudaDevice, SliceSizes
from data_plane.proof.prover.cuda_machine import CudaMachine
from data_plane.proof.prover.device import DeviceError, Machine
from data_plane.proof.prover.prover import one_after_another, serve, side_by_side
from tests.support.fake_cuda import PROTOTYPES, FakeCuda, FakeGpu

SEED, NONCE = bytes(range(32)), bytes(range(16))
SMALL = SliceSizes(fill=1, walk=1, tiles=1, digests=1 << 12)
"""The smallest slices there are: one wave each, which is 2560 units, 192 chains or 16 tiles on two multiprocessors."""
ANSWERS = (
    *(Identity, LatencyAnswer, Filled, Committed, Groups, Opened, GapsAnswer, Evidence),
    Refused,
)


class Silent:
    """NVML that is not there."""

    def driver(self) -> str:
        return "570.124.06"

    def of(self, pci_bus: str) -> dict[str, Any]:
        names = ("nvml_name", "nvml_uuid", "nvml_memory", "nvml_pci_device", "nvml_pci_bus", "nvml_ecc")
        rest = ("nvml_throttle", "nvml_processes", "sysfs_pci_device", "sysfs_pci_subsystem", "proc_model")
        return {**dict.fromkeys(names + rest), "nvml_sharing": "unknown"}

    def throttle(self, pci_bus: str) -> int | None:
        return {"0000:3b:00.0": 4}.get(pci_bus)


def a_machine(fake: FakeCuda, run: Any = one_after_another, sizes: SliceSizes = SMALL) -> CudaMachine:
    ticks = count()
    return CudaMachine(
        fake, cast("Claims", Silent()), run=run, monotonic=lambda: float(next(ticks)), sizes=sizes
    )


@pytest.fixture(autouse=True)
def little_to_warm_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "WARM_INNER", 32)


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    """Held to its rules: nothing was done that a driver would only have forgiven, and all was given back."""
    library = FakeCuda([FakeGpu()])
    yield library
    assert library.wrong == []
    assert library.leaks == []
    assert library.alive() == []


@pytest.fixture
def device(fake: FakeCuda) -> Iterator[CudaDevice]:
    machine = a_machine(fake)
    yield cast("CudaDevice", machine.devices[0])
    for one in machine.devices:
        one.close()


def memory_of(blocks: int, iterations: int) -> Any:
    return fill.blocks(SEED, iterations, np.arange(blocks, dtype=np.uint64))


# What comes out.


def test_every_symbol_is_called_with_the_types_of_the_header() -> None:
    """Same number of arguments and the same width of each; the rest shows when they are called."""
    for symbol, types in SYMBOLS.items():
        assert [ctypes.sizeof(one) for one in types] == [ctypes.sizeof(one) for one in PROTOTYPES[symbol]], (
            symbol
        )


def test_the_whole_memory_is_filled_in_slices_that_meet(device: CudaDevice, fake: FakeCuda) -> None:
    blocks = 1000  # 8000 units: three slices and a bit.
    took = device.fill(SEED, 3, blocks)
    fills = [given for name, given in fake.launched if name == "fill"]
    assert [(given["first"], given["count"]) for given in fills] == [
        (0, 2560),
        (2560, 2560),
        (5120, 2560),
        (7680, 320),
    ]
    assert took == 4000
    assert device.memory_free() == fake.gpus[0].memory - 2 * 8 * SMALL.digests - blocks * BLOCK_BYTES
    chains = np.arange(5, dtype=np.uint32)
    expected = walk.digests(NONCE, chains, 9, blocks, memory_of(blocks, 3).__getitem__)
    assert b"".join(device.walk(NONCE, 5, 9)) == expected


@pytest.mark.parametrize("chains", [1, 191, 192, 193, 1000])
def test_walks_in_slices_give_every_digest_once_and_in_order(device: CudaDevice, chains: int) -> None:
    device.fill(SEED, 1, 50)
    numbers = np.arange(chains, dtype=np.uint32)
    expected = walk.digests(NONCE, numbers, 3, 50, memory_of(50, 1).__getitem__)
    slices = list(device.walk(NONCE, chains, 3))
    assert b"".join(slices) == expected
    assert [len(one) // 8 for one in slices] == [192] * (chains // 192) + [chains % 192] * (chains % 192 > 0)
    assert device.busy_us() == 1000 * len(slices)


@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_tiles_in_slices_give_every_digest_once_and_in_order(device: CudaDevice, kind: Any) -> None:
    numbers = np.arange(37, dtype=np.uint32)
    expected = tiles.digests(kind, NONCE, 64, 5, numbers)
    assert b"".join(device.tiles(kind, NONCE, 64, 5, 37)) == expected
    assert device.busy_us() == 3000


def test_a_launch_gives_the_round_of_the_chain(device: CudaDevice) -> None:
    result = NONCE
    for number in range(20):
        result = device.launch(launches.message(result, number))
    assert result == launches.chain(NONCE, 20)


def test_gaps_come_by_multiprocessor(device: CudaDevice) -> None:
    assert device.gaps(5, 200) == (SmGaps(0, 5000, 1, 200), SmGaps(1, 5000, 0, 200))


def test_identity_is_what_the_driver_says(device: CudaDevice, fake: FakeCuda) -> None:
    found = device.identity()
    assert found.cuda_name == "NVIDIA H100 80GB HBM3"
    assert found.cuda_uuid == "GPU-00112233-4455-6677-8899-aabbccddeeff"
    assert found.cuda_pci_bus == "0000:3b:00.0"
    assert (found.cuda_capability, found.cuda_sms) == ("9.0", 2)
    assert (found.cuda_sm_khz, found.cuda_memory_khz, found.cuda_bus_bits) == (1_980_000, 2_619_000, 5120)
    assert (found.cuda_l2, found.cuda_ecc, found.cuda_mps) == (52_428_800, True, False)
    assert found.cuda_memory == fake.gpus[0].memory
    assert found.cuda_free == fake.gpus[0].memory - fake.gpus[0].used
    assert device.throttle() == 4


def test_a_driver_older_than_an_attribute_is_taken_for_one_without_what_it_says() -> None:
    """MPS_ENABLED (133) came with CUDA 12.3: drivers 470 to 535 refuse it like any number that they do not know."""
    gpu = FakeGpu()
    gpu.attributes = {number: value for number, value in gpu.attributes.items() if number < 133}
    fake = FakeCuda([gpu], version=12010)
    identity = converse(fake, one_after_another, Hello(), Goodbye())[0][0]
    assert isinstance(identity, Identity), identity
    assert (identity.cuda, identity.gpus[0].cuda_mps) == ("12.1", False)
    assert (fake.wrong, fake.leaks, fake.alive()) == ([], [], [])


def test_an_attribute_that_every_driver_knows_is_never_made_up(device: CudaDevice, fake: FakeCuda) -> None:
    fake.gpus[0].attributes = {133: 0}
    with pytest.raises(DeviceError, match="cuDeviceGetAttribute: CUDA_ERROR_INVALID_VALUE 1"):
        device.identity()


def test_an_attribute_that_fails_for_another_reason_is_a_failure(device: CudaDevice, fake: FakeCuda) -> None:
    fake.fails["cuDeviceGetAttribute"] = 700
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        Driver(fake).attribute(133, 100, unknown=0)


# How it works.


def test_two_slices_are_under_way_while_one_is_hashed(device: CudaDevice, fake: FakeCuda) -> None:
    device.fill(SEED, 1, 50)
    before = len(fake.launched)
    launched = [len(fake.launched) - before for _ in device.walk(NONCE, 5 * 192, 1)]
    assert launched == [3, 4, 5, 5, 5]


def test_a_slice_is_whole_waves_and_no_longer_than_it_should_be(fake: FakeCuda) -> None:
    sizes = SliceSizes(fill=10 * 1280, walk=3 * 96 * 10, tiles=20 * 64 * 64 * 64, digests=1000)
    machine = a_machine(fake, sizes=sizes)
    (device,) = machine.devices
    device.fill(SEED, 5, 800)
    list(device.walk(NONCE, 1000, 10))
    list(device.tiles("int8", NONCE, 64, 1, 100))
    device.close()
    counts = {
        name: [given["count"] for one, given in fake.launched if one == name] for name, _ in fake.launched
    }
    assert counts["fill"] == [2 * 1280 * 2, 1280]
    assert counts["walk"] == [2 * 96 * 3, 1000 - 2 * 96 * 3]
    assert counts["tiles_int8"][-4:] == [2 * 16, 2 * 16, 2 * 16, 4]


def test_a_slice_has_no_more_digests_than_there_is_room_for(fake: FakeCuda) -> None:
    (device,) = a_machine(fake, sizes=SliceSizes(fill=1, walk=1 << 20, tiles=1 << 30, digests=150)).devices
    device.fill(SEED, 1, 8)
    assert [len(one) // 8 for one in device.walk(NONCE, 400, 1)] == [150, 150, 100]
    assert [len(one) // 8 for one in device.tiles("int8", NONCE, 32, 1, 200)] == [150, 50]
    device.close()


def test_the_figures_of_a_real_card_keep_launches_short() -> None:
    """Of an H100: by data sheet 2.3 TB/s at random, 2e10 units times iterations, 4.5e14 multiply-adds a second."""
    sizes, sms = SliceSizes(), 132
    assert 0.005 < sizes.walk * sms * BLOCK_BYTES / 2.3e12 < 0.5
    assert 0.005 < sizes.fill * sms / 2e10 < 0.5
    assert 0.005 < sizes.tiles * sms / 4.5e14 < 0.5
    assert sizes.walk // 256 * sms < sizes.digests, "a slice is cut by the room for its digests"


def test_a_second_fill_takes_the_place_of_the_first(device: CudaDevice, fake: FakeCuda) -> None:
    for blocks in (100, 80_000, 60):
        device.fill(SEED, 1, blocks)
    assert b"".join(device.walk(NONCE, 3, 2)) == walk.digests(
        NONCE, np.arange(3, dtype=np.uint32), 2, 60, memory_of(60, 1).__getitem__
    )
    device.release()
    assert device.memory_free() == fake.gpus[0].memory - 2 * 8 * SMALL.digests


def test_memory_beyond_four_gigabytes_is_asked_for_whole(fake: FakeCuda) -> None:
    fake.gpus[0].memory = 8 << 30
    driver = Driver(fake)
    context = Context(driver, driver.devices()[0])
    context.memory(5 << 30)
    assert driver.free() == 3 << 30
    context.close()


def test_a_refusal_of_too_much_memory_names_what_is_free_and_a_smaller_fill_works(device: CudaDevice) -> None:
    free = device.memory_free()
    with pytest.raises(DeviceError, match=f"{free} free") as caught:
        device.fill(SEED, 1, free // BLOCK_BYTES + 1)
    assert caught.value.code == "out_of_memory"
    device.fill(SEED, 1, 10)
    assert device.memory_free() == free - 10 * BLOCK_BYTES


def test_the_clocks_are_warm_before_anybody_is_answered(fake: FakeCuda) -> None:
    machine = a_machine(fake)  # Each look at the clock takes a second.
    warmed = [name for name, _ in fake.launched]
    assert warmed == ["tiles_int8"] * len(warmed)
    assert warmed
    machine.devices[0].close()


# Several GPUs.


def test_a_context_is_made_current_before_it_is_used(fake: FakeCuda) -> None:
    fake.gpus.append(FakeGpu(bus=b"0000:3C:00.0"))
    driver = Driver(fake)
    first, second = driver.devices()
    one = Context(driver, first)
    one.bind()
    two = Context(driver, second)  # Making one makes it current.
    for context, gpu in ((one, fake.gpus[0]), (two, fake.gpus[1]), (one, fake.gpus[0])):
        context.bind()
        assert driver.free() == gpu.memory - gpu.used
        context.memory(4096)
    assert [gpu.used for gpu in fake.gpus] == [8192, 4096]
    two.close()
    one.close()


def converse(fake: FakeCuda, run: Any, *orders: Order) -> list[tuple[Any, bytes]]:
    written: list[bytes] = []
    sent = b"".join(encode(order) for order in orders)
    serve(lambda: cast("Machine", a_machine(fake, run)), io.BytesIO(sent).read, written.append, run)
    return [decode(frame[4:], ANSWERS) for frame in written]


@pytest.mark.parametrize("run", [one_after_another, side_by_side])
def test_a_whole_conversation_over_three_gpus(run: Any) -> None:
    gpus = [FakeGpu(uuid=bytes([at]) * 16, bus=b"0000:%02X:00.0" % (0x3B + at)) for at in range(3)]
    fake = FakeCuda(gpus)
    answers = converse(
        fake,
        run,
        Hello(),
        LatencyOrder(4, (NONCE, bytes(16), NONCE)),
        FillOrder(tuple(Fill(SEED, 2, 40 + at) for at in range(3))),
        WalkOrder(5, 100, (Walk(NONCE, 450),) * 3),
        OpenOrder("walk", ((0, 4),) * 3),
        TilesOrder("bf16", 32, 2, 10, (Tiles(NONCE, 20),) * 3),
        OpenOrder("bf16", ((1,),) * 3),
        GapsOrder(1, 200),
        Goodbye(),
    )
    assert not any(isinstance(answer, Refused) for answer, _ in answers)
    identity = answers[0][0]
    assert identity.source == "cuda"
    assert (identity.driver, identity.cuda) == ("570.124.06", "12.8")
    assert identity.kernels_sha256 == kernels.sha256()
    assert [gpu.cuda_pci_bus for gpu in identity.gpus] == ["0000:3b:00.0", "0000:3c:00.0", "0000:3d:00.0"]
    opened = {(answer.gpu, answer.phase): blob for answer, blob in answers if isinstance(answer, Opened)}
    numbers = np.arange(450, dtype=np.uint32)
    for gpu in range(3):
        memory = memory_of(40 + gpu, 2)
        digests = walk.digests(NONCE, numbers, 5, 40 + gpu, memory.__getitem__)
        assert opened[gpu, "walk"] == digests[:800] + digests[3200:]
        assert opened[gpu, "bf16"] == tiles.digests("bf16", NONCE, 32, 2, np.arange(10, 20, dtype=np.uint32))
    finals = {answer.gpu: answer.final for answer, _ in answers if isinstance(answer, LatencyAnswer)}
    assert finals == {
        0: launches.chain(NONCE, 4),
        1: launches.chain(bytes(16), 4),
        2: launches.chain(NONCE, 4),
    }
    committed = {answer.gpu: answer.throttle for answer, _ in answers if isinstance(answer, Committed)}
    assert committed == {0: 4, 1: None, 2: None}
    assert (fake.wrong, fake.leaks, fake.alive()) == ([], [], [])


# What goes wrong.


@pytest.mark.parametrize(
    ("call", "code", "word", "kind"),
    [
        ("cuInit", 100, "no GPU", "no_driver"),
        ("cuInit", 34, "stub", "no_driver"),
        ("cuInit", 803, "different versions", "no_driver"),
        ("cuInit", 804, "compatibility package", "no_driver"),
        ("cuInit", 999, "nvidia-uvm", "cuda_error"),
        ("cuCtxCreate_v2", 46, "not available", "cuda_error"),
        ("cuCtxCreate_v2", 802, "fabricmanager", "cuda_error"),
        ("cuModuleLoadDataEx", 209, "Ampere", "cuda_error"),
        ("cuModuleLoadDataEx", 221, "libnvidia-ptxjitcompiler", "no_compiler"),
        ("cuModuleLoadDataEx", 222, "too old", "no_compiler"),
        ("cuModuleLoadDataEx", 223, "CUDA_DISABLE_PTX_JIT", "no_compiler"),
        ("cuModuleGetFunction", 500, "500", "cuda_error"),
        ("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY 2", "out_of_memory"),
        ("cuMemHostAlloc", 2, "too little", "out_of_memory"),
        ("cuEventCreate", 700, "cuEventCreate: CUDA_ERROR_ILLEGAL_ADDRESS 700", "cuda_error"),
        ("cuLaunchKernel", 700, "cuLaunchKernel", "cuda_error"),
        ("cuEventSynchronize", 214, "memory error", "cuda_error"),
    ],
)
def test_a_machine_that_cannot_be_opened_says_what_to_change_and_gives_all_back(
    fake: FakeCuda, call: str, code: int, word: str, kind: str
) -> None:
    fake.gpus.append(FakeGpu(bus=b"0000:3C:00.0"))
    fake.fails[call] = code
    with pytest.raises(DeviceError, match=word) as caught:
        a_machine(fake)
    assert caught.value.code == kind
    assert str(caught.value).isascii()


def test_what_the_compiler_says_is_in_the_refusal(fake: FakeCuda) -> None:
    fake.compiler_says = b"ptxas application ptx input, line 7; error: unknown \x1b[31minstruction\n" * 200
    with pytest.raises(DeviceError, match=r"line 7; error: unknown  .31minstruction") as caught:
        a_machine(fake)
    assert caught.value.code == "cuda_error"


def test_a_library_without_a_symbol_is_no_driver(fake: FakeCuda) -> None:
    delattr(fake, "cuMemHostAlloc")
    with pytest.raises(DeviceError, match="no cuMemHostAlloc") as caught:
        a_machine(fake)
    assert caught.value.code == "no_driver"


def test_a_gpu_that_breaks_in_the_middle_is_a_refusal_and_the_other_goes_on() -> None:
    fake = FakeCuda([FakeGpu(), FakeGpu(bus=b"0000:3C:00.0")])
    orders: tuple[Order, ...] = (Hello(), FillOrder((Fill(SEED, 1, 10), Fill(SEED, 1, 1 << 20))), Goodbye())
    answers = [answer for answer, _ in converse(fake, side_by_side, *orders)]
    assert {type(answer) for answer in answers} == {Identity, Filled, Refused}
    (refused,) = [answer for answer in answers if isinstance(answer, Refused)]
    assert (refused.gpu, refused.code) == (1, "out_of_memory")
    assert (fake.wrong, fake.leaks, fake.alive()) == ([], [], [])


def test_a_gpu_that_answers_nothing_any_more_is_still_closed(fake: FakeCuda) -> None:
    (device,) = a_machine(fake).devices
    device.fill(SEED, 1, 10)
    fake.fails = dict.fromkeys(PROTOTYPES, 719)
    device.close()
    assert "cuCtxDestroy_v2" in fake.calls
    fake.objects.clear()


def test_no_more_gpus_than_a_conversation_holds_are_taken(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_machine, "GPUS_MAX", 1)
    fake.gpus.append(FakeGpu(bus=b"0000:3C:00.0"))
    machine = a_machine(fake)
    assert len(machine.devices) == 1
    machine.devices[0].close()


def test_a_device_report_asks_a_card_through_the_same_calls_and_leaves_nothing_behind() -> None:
    fake = FakeCuda([FakeGpu(memory=8 << 20)])
    machine = a_machine(fake, sizes=SliceSizes(fill=1, walk=1, tiles=1, digests=1 << 12))
    (device,) = machine.devices
    found = dict(device_figures(device, device.identity(), TABLE["h100-sxm-80gb"], EMULATED))
    assert all(found["exactness"].values())
    assert 0 < found["largest_allocation"]["bytes"] <= 8 << 20
    assert {kind: one["tiles"] for kind, one in found["tiles"].items()} == {"int8": 4, "bf16": 4}
    device.close()
    assert (fake.wrong, fake.leaks, fake.alive()) == ([], [], [])
