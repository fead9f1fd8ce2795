"""What an assembler makes of the kernels for every generation of GPU."""

import importlib.metadata
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from data_plane.proof.prover import kernels
from tests.support.ptx.registers import REGISTERS_MAX

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
"""A100; A10, A40 and A6000; L4, L40S and 4090; H100 and H200; B200; B300; 5090 and RTX PRO 6000."""


def ptxas() -> Path:
    found = importlib.metadata.files("nvidia-cuda-nvcc-cu12") or ()
    return Path(str(next(one for one in found if one.name == "ptxas").locate()))


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By target: what the assembler reports about each kernel."""
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
    output = assembled[target]
    assert output.keys() == {kernel.name for kernel in kernels.KERNELS}
    for name, text in output.items():
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in text, name
        (used,) = re.findall(r"Used (\d+) registers", text)
        assert int(used) <= REGISTERS_MAX[name], name
