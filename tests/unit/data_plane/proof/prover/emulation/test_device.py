"""The honest emulation of a GPU, and of the machine that a file describes."""

import json
from pathlib import Path

import numpy as np
import pytest

from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import (
    DIGEST_BYTES,
    VERSION,
    Identity,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.emulation.cards import CARDS, identity
from data_plane.proof.prover.emulation.device import SLICE_CHAINS, EmulatedDevice
from data_plane.proof.prover.emulation.machine import Claim, machine_from

SEED, NONCE = bytes(range(32)), bytes(range(100, 116))
H100 = CARDS["h100-sxm-80gb"]
CLAIM = Claim(H100.name, "GPU-1", H100.memory_mib)


def device() -> EmulatedDevice:
    return EmulatedDevice(identity(H100, 0, "GPU-1"))


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
def test_every_card_claims_what_the_wire_can_carry(model: str) -> None:
    message = Identity(
        VERSION, "emulated", "570.1", "12.8", bytes(32), (), (identity(CARDS[model], 0, "GPU-1"),)
    )
    assert decode(encode(message)[4:], (Identity,)) == (message, b"")


def test_a_machine_is_made_from_the_file_of_a_test_machine(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    gpus = [
        {"index": index, "name": name, "uuid": f"GPU-{index}", "memory_total_mib": 23034}
        for index, name in enumerate(("NVIDIA L4", "A card of our own"))
    ]
    path.write_text(json.dumps({"driver_version": "570.124.06", "gpus": gpus}))
    machine = machine_from(path)
    assert (machine.source, machine.driver) == ("emulated", "570.124.06")
    identities = [one.identity() for one in machine.devices]
    assert [(one.index, one.nvml_name, one.cuda_name, one.cuda_uuid) for one in identities] == [
        (0, "NVIDIA L4", "NVIDIA L4", "GPU-0"),
        (1, "A card of our own", "A card of our own", "GPU-1"),
    ]
    assert identities[0].nvml_memory == identities[0].cuda_memory == 23034 << 20
    assert identities[0].nvml_pci_device == "10de:27b8"


def test_without_a_file_there_is_nothing_to_emulate(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="emulation_missing"):
        machine_from(tmp_path / "none.json")


def test_a_file_that_describes_nothing_is_no_driver(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text('{"gpus": 7}')
    with pytest.raises(DeviceError, match="no_driver"):
        machine_from(path)
