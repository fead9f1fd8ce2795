import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from data_plane.agent import __main__ as agent
from data_plane.agent import emulated, nvml
from data_plane.bundle import build_agent
from data_plane.inventory import Gpu, Inventory
from data_plane.protocol import Failure, decode

CARD = {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory_total_mib": 81559}
START = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from data_plane.agent.__main__ import main
sys.exit(main(sys.argv[3:], Path(sys.argv[2])))
"""


@pytest.fixture
def emulation(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.json"
    path.write_text(
        json.dumps({"driver_version": "570.124.06", "gpus": [CARD, {**CARD, "index": 1, "uuid": "GPU-2"}]})
    )
    return path


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(build_agent().content)
    return path


def run(pyz: Path, emulation: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-I", "-S", "-c", START, str(pyz), str(emulation), *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=30, cwd=emulation.parent)


def test_the_same_sources_give_the_same_bytes() -> None:
    one, two = build_agent(), build_agent()
    assert one == two
    assert one.sha256 == hashlib.sha256(one.content).hexdigest()


def test_the_bundle_holds_the_agent_and_nothing_else_of_ours(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "__main__.py",
            "data_plane/__init__.py",
            "data_plane/agent/__init__.py",
            "data_plane/agent/__main__.py",
            "data_plane/agent/emulated.py",
            "data_plane/agent/nvml.py",
            "data_plane/health.py",
            "data_plane/inventory.py",
            "data_plane/protocol.py",
            "data_plane/records.py",
            "data_plane/strict.py",
            "pynvml.py",
        ]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_it_runs_alone_without_our_packages(pyz: Path, emulation: Path) -> None:
    done = run(pyz, emulation, "inventory")
    assert (done.returncode, done.stderr) == (0, b"")
    message = decode(done.stdout)
    assert isinstance(message, Inventory)
    assert message.source == "emulated"
    assert [gpu.uuid for gpu in message.gpus] == ["GPU-1", "GPU-2"]


def test_the_zipapp_itself_answers_its_version(pyz: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(pyz), "version"], capture_output=True, check=True, timeout=30
    )
    assert done.stdout == b"2\n"


def test_without_library_and_file_it_says_what_is_missing(pyz: Path, tmp_path: Path) -> None:
    done = run(pyz, tmp_path / "absent", "inventory")
    assert done.returncode == 3
    assert decode(done.stdout) == Failure("no_gpu_library", "libnvidia-ml.so.1 cannot be loaded")


def test_a_wrong_command_line_is_refused(pyz: Path, emulation: Path) -> None:
    done = run(pyz, emulation, "shell")
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "[" * 50_000,
        '{"driver_version": "1", "gpus": 3}',
        '{"driver_version": "1", "gpus": [3]}',
        '{"driver_version": "1", "gpus": [{"index": 0}]}',
        '{"driver_version": "1", "gpus": [{"source": "nvml"}]}',
        '{"driver_version": 1, "gpus": []}',
    ],
)
def test_a_broken_emulation_file_is_a_failure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(text)
    message = emulated.read(path)
    assert isinstance(message, Failure)
    assert message.code == "bad_emulation"


def test_an_emulation_file_cannot_pass_itself_off_as_nvml(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(
        json.dumps({"source": "nvml", "kind": "inventory", "driver_version": "1", "gpus": [CARD]})
    )
    message = emulated.read(path)
    assert isinstance(message, Inventory)
    assert message.source == "emulated"


def test_a_library_without_a_driver_is_a_failure_even_beside_an_emulation_file(
    monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    def no_driver() -> NoReturn:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    message = agent.inventory(emulation)
    assert isinstance(message, Failure)
    assert message.code == "nvml_error"


class Library:
    """Two cards as the bindings show them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mig: Any = lambda handle: [0, 0]
        self.virtualization: Any = lambda handle: pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH
        self.open = 0
        answers = {
            "nvmlInit": lambda: setattr(self, "open", self.open + 1),
            "nvmlShutdown": lambda: setattr(self, "open", self.open - 1),
            "nvmlSystemGetDriverVersion": lambda: "595.45.04",
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(143771 << 20) + 5),
            "nvmlDeviceGetMigMode": lambda handle: self.mig(handle),  # noqa: PLW0108 - a test replaces it later
            "nvmlDeviceGetVirtualizationMode": lambda handle: self.virtualization(handle),  # noqa: PLW0108
            "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(pciDeviceId=0x233510DE),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


def test_a_real_library_wins_over_the_emulation_file(library: Library, emulation: Path) -> None:
    message = agent.inventory(emulation)
    assert message == Inventory(
        "nvml",
        "595.45.04",
        tuple(Gpu(i, "NVIDIA H200", f"GPU-{i}", 143771, "none", "10de:2335", "9.0") for i in range(2)),
        ancestors=((None, None), (None, None)),
    )
    assert library.open == 0


def _raises(code: int) -> Any:
    def call(handle: object) -> NoReturn:
        raise pynvml.NVMLError(code)

    return call


def test_sharing_is_hinted(library: Library) -> None:
    def seen() -> str:
        message = nvml.read()
        assert isinstance(message, Inventory)
        return message.gpus[0].sharing

    library.mig = _raises(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert seen() == "none"
    library.virtualization = lambda handle: pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    assert seen() == "vgpu"
    library.virtualization = _raises(pynvml.NVML_ERROR_UNKNOWN)
    assert seen() == "unknown"
    library.mig = lambda handle: [pynvml.NVML_DEVICE_MIG_ENABLE, 0]
    assert seen() == "mig"
    library.mig = _raises(pynvml.NVML_ERROR_NO_PERMISSION)
    assert seen() == "unknown"


def test_a_lost_card_makes_the_whole_answer_a_failure(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", _raises(pynvml.NVML_ERROR_GPU_IS_LOST))
    message = nvml.read()
    assert isinstance(message, Failure)
    assert library.open == 0
