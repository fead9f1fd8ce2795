"""The kernels' text and table: what an assembler makes of them for every generation of GPU."""

import importlib.metadata
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from data_plane.proof.prover import kernels
from tests.support import ptx

REGISTERS_MAX = {"fill": 48, "walk": 40, "tiles_int8": 255, "tiles_bf16": 255, "echo": 32, "gaps": 32}
"""Per thread, so that Kernel.resident blocks fit a multiprocessor. A multiprocessor has 65,536 registers, given out
to warps in units of 256: 5 blocks of `fill`, 6 of `walk`, 2 of the tiles."""
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
"""A100; A10, A40 and A6000; L4, L40S and 4090; H100 and H200; B200; B300; 5090 and RTX PRO 6000."""


def ptxas() -> Path:
    found = importlib.metadata.files("nvidia-cuda-nvcc-cu12") or ()
    return Path(str(next(one for one in found if one.name == "ptxas").locate()))


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """From target to what the assembler says of each kernel."""
    if platform.machine() != "x86_64":
        pytest.skip("a licence: NVIDIA's assembler is had as a wheel for x86_64 only")
    folder = tmp_path_factory.mktemp("kernels")
    source = folder / "kernels.ptx"
    source.write_bytes(kernels.text())

    def assemble(target: str) -> dict[str, str]:
        command = [str(ptxas()), "-v", f"-arch={target}", "-o", str(folder / f"{target}.cubin"), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr, done.stderr
        parts = re.split(r"Compiling entry function '(\w+)'", done.stderr)[1:]
        return dict(zip(parts[::2], parts[1::2], strict=True))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(TARGETS, pool.map(assemble, TARGETS), strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_is_assembled_without_stack_or_spills_and_within_its_registers(
    assembled: dict[str, dict[str, str]], target: str
) -> None:
    said = assembled[target]
    assert said.keys() == {kernel.name for kernel in kernels.KERNELS}
    for name, text in said.items():
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in text, name
        (used,) = re.findall(r"Used (\d+) registers", text)
        assert int(used) <= REGISTERS_MAX[name], name


def test_the_blocks_that_shall_be_resident_fit_the_registers_of_a_multiprocessor() -> None:
    for kernel in kernels.KERNELS:
        warps = -(-kernel.threads // 32) * kernel.resident
        per_warp = -(-REGISTERS_MAX[kernel.name] * 32 // 256) * 256
        assert warps * per_warp <= 65_536, kernel.name
        assert warps <= 48, kernel.name  # What a multiprocessor of a workstation card holds.


def test_the_table_names_the_parameters_and_threads_of_the_text() -> None:
    entries = ptx.read(kernels.text())
    assert entries.keys() == {kernel.name for kernel in kernels.KERNELS}
    for kernel in kernels.KERNELS:
        assert entries[kernel.name].parameters == kernel.parameters
        assert entries[kernel.name].threads == kernel.threads


def test_a_launch_has_a_block_for_a_last_piece_of_work() -> None:
    walk = kernels.WALK_KERNEL
    assert [walk.blocks(count) for count in (1, walk.work, walk.work + 1)] == [1, 1, 2]


def test_the_text_is_the_same_each_time_and_plain_enough_for_any_driver() -> None:
    text = kernels.text()
    assert text == kernels.text()
    assert text.startswith(b".version 7.0\n.target sm_80\n.address_size 64\n")
    assert all(byte in b"\n" or 32 <= byte < 127 for byte in text)
