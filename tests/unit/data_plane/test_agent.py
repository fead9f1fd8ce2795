import hashlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from data_plane.agent import __main__ as agent
from data_plane.agent.guard import Hangs, guarded
from data_plane.agent.schedule import PERIODS
from data_plane.documents.health import Health
from data_plane.documents.inventory import Gpu, Inventory, Mig
from data_plane.documents.protocol import Failure, Message, decode
from data_plane.inspection.bundle import build_agent
from data_plane.nvml import identity
from data_plane.nvml import library as nvml

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
        ours = [name for name in archive.namelist() if name.startswith("data_plane/")]
        assert archive.namelist() == ["__main__.py", *ours, "pynvml.py"]
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


def test_the_zipapp_tells_health_once(pyz: Path, emulation: Path) -> None:
    done = run(pyz, emulation, "health")
    assert (done.returncode, done.stderr) == (0, b"")
    message = decode(done.stdout)
    assert isinstance(message, Health)
    assert message.source == "emulated"
    assert [
        (gpu.uuid, gpu.usage.compute_processes, gpu.usage.utilisation_percent) for gpu in message.gpus
    ] == [
        ("GPU-1", 0, 0),
        ("GPU-2", 0, 0),
    ]
    assert {reading.group for reading in message.readings} == set(PERIODS)


def test_a_watch_that_nobody_listens_to_ends(pyz: Path, emulation: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", START, str(pyz), str(emulation), "health", "--watch", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert isinstance(decode(watching.stdout.readline()), Health)
        watching.stdout.close()
        assert watching.wait(timeout=20) == 0
        assert watching.stderr.read() == b""


def test_without_library_and_file_it_says_what_is_missing(pyz: Path, tmp_path: Path) -> None:
    done = run(pyz, tmp_path / "absent", "inventory")
    assert done.returncode == 3
    assert decode(done.stdout) == Failure("no_gpu_library", "libnvidia-ml.so.1 cannot be loaded")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "shell",
        "inventory now",
        "health --watch",
        "health --watch 0",
        "health --watch 3601",
        "health --watch ٣",
        "health --watch -1",
        "health --watch 1.5",
        "health 10",
    ],
)
def test_a_wrong_command_line_is_refused(line: str, emulation: Path) -> None:
    with redirect_stdout(io.StringIO()) as said:
        assert agent.main(line.split(), emulation) == 2
    assert said.getvalue() == ""


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
        json.dumps({"driver_version": "1", "gpus": [{**CARD, "index": 1}]}),
        json.dumps({"driver_version": "1", "gpus": [{**CARD, "memory_total_mib": "8"}]}),
        json.dumps({"driver_version": "1", "gpus": [CARD], "script": [{"at": "soon"}]}),
        json.dumps(
            {"driver_version": "1", "gpus": [{**CARD, "answers": {"nvmlDeviceGetPciInfo": {"bus": 1}}}]}
        ),
        json.dumps({"driver_version": "1", "gpus": [{**CARD, "answers": {"nvmlDeviceGetMigMode": 1}}]}),
        json.dumps(
            {"driver_version": "1", "gpus": [{**CARD, "answers": {"nvmlDeviceGetSerial": {"error": "X"}}}]}
        ),
    ],
)
def test_a_broken_emulation_file_is_a_failure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(text)
    message = only(agent.documents(agent.inventories, path))
    assert isinstance(message, Failure)
    assert message.code == "bad_emulation"


def only(messages: Iterator[Message]) -> Message:
    (message,) = messages
    return message


def test_a_file_that_names_a_card_as_no_driver_would_is_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(json.dumps({"driver_version": "1", "gpus": [{**CARD, "name": "\x1b[2J"}]}))
    assert only(agent.documents(agent.inventories, path)) == Failure(
        "bad_reading", "name is not acceptable text"
    )


def test_what_the_other_side_would_not_accept_is_not_said(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(json.dumps({"driver_version": "1", "gpus": [CARD, {**CARD, "index": 1}]}))
    for work in (agent.inventories, lambda library: agent.healths(library, None)):
        assert only(agent.documents(work, path)) == Failure("bad_reading", "two GPUs share a UUID")


def test_an_emulation_file_cannot_pass_itself_off_as_nvml(tmp_path: Path) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(
        json.dumps({"source": "nvml", "kind": "inventory", "driver_version": "1", "gpus": [CARD]})
    )
    for work in (agent.inventories, lambda library: agent.healths(library, None)):
        message = only(agent.documents(work, path))
        assert isinstance(message, Inventory | Health)
        assert message.source == "emulated"


def test_a_library_without_a_driver_is_a_failure_even_beside_an_emulation_file(
    monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    def no_driver() -> NoReturn:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    message = only(agent.documents(agent.inventories, emulation))
    assert message == Failure("nvml_error", "nvmlInit: Driver Not Loaded")


class Bindings:
    """Two cards as the bindings show them, and a driver too old for anything else."""

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
            "nvmlDeviceGetMemoryInfo": self.memory,
            "nvmlDeviceGetMigMode": lambda handle: self.mig(handle),  # noqa: PLW0108 - a test replaces it later
            "nvmlDeviceGetVirtualizationMode": lambda handle: self.virtualization(handle),  # noqa: PLW0108
            "nvmlDeviceGetPciInfo": lambda handle: pynvml.nvmlPciInfo_t(
                domain=0, bus=0x3B + handle, device=0, pciDeviceId=0x233510DE, pciSubSystemId=0x18BE10DE
            ),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        }
        for name in dir(pynvml):
            if name.startswith("nvml") and isinstance(getattr(pynvml, name), FunctionType):
                monkeypatch.setattr(
                    pynvml, name, answers.get(name, raises(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
                )

    def memory(self, _handle: object, version: int | None = None) -> SimpleNamespace:
        if version is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(total=(143771 << 20) + 5)


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    return Bindings(monkeypatch)


def raises(code: int) -> Any:
    def call(*arguments: object) -> NoReturn:
        raise pynvml.NVMLError(code)

    return call


def test_a_real_library_wins_over_the_emulation_file(bindings: Bindings, emulation: Path) -> None:
    message = only(agent.documents(agent.inventories, emulation))
    assert isinstance(message, Inventory)
    assert (message.source, message.driver_version) == ("nvml", "595.45.04")
    assert message.gpus[1] == replace(
        Gpu(1, "NVIDIA H200", "GPU-1", 143771, "none", "10de:2335", "9.0"),
        pci_subsystem_id="10de:18be",
        bus_id="0000:3c:00.0",
        virtualization="passthrough",
        mig=Mig(enabled=False, pending=False),
    )
    assert message.ancestors == (("self", None), (None, "self"))
    assert bindings.open == 0


def test_sharing_is_hinted(bindings: Bindings) -> None:
    def seen() -> object:
        with nvml.opened() as library:
            return identity.read(library, 0)["sharing"]

    bindings.mig = raises(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert seen() == "none"
    bindings.virtualization = lambda handle: pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    assert seen() == "vgpu"
    bindings.virtualization = lambda handle: 0x0100 | pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    assert seen() == "vgpu"
    bindings.virtualization = raises(pynvml.NVML_ERROR_UNKNOWN)
    assert seen() == "unknown"
    bindings.mig = lambda handle: [pynvml.NVML_DEVICE_MIG_ENABLE, 0]
    assert seen() == "mig"
    bindings.mig = raises(pynvml.NVML_ERROR_NO_PERMISSION)
    assert seen() == "unknown"


def test_a_lost_card_makes_the_whole_inventory_a_failure_that_names_it(
    bindings: Bindings, monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    def lost(handle: int) -> str:
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return "GPU-0"

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lost)
    assert only(agent.documents(agent.inventories, emulation)) == Failure("gpu_lost", "GPU 1 is lost")
    assert bindings.open == 0


def test_a_driver_that_never_answers_is_a_failure_that_names_the_call(
    bindings: Bindings, monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    for_good = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetBrand", lambda handle: for_good.wait(20))
    message = only(agent.documents(agent.inventories, emulation, hangs=0.2))
    assert message == Failure("nvml_hangs", "GPU 0: nvmlDeviceGetBrand has not answered for 0.2 s")
    for_good.set()


def test_a_library_that_hangs_as_it_opens_is_named_too(
    monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    for_good = threading.Event()
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: for_good.wait(20))
    message = only(agent.documents(agent.inventories, emulation, hangs=0.05))
    assert message == Failure("nvml_hangs", "nvmlInit has not answered for 0.05 s")
    for_good.set()


def test_guarded_work_gives_what_it_yields_and_then_raises_what_it_raises() -> None:
    def work() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    messages = guarded(work, 5)
    assert [next(messages), next(messages)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(messages)


def test_work_that_nobody_waits_for_does_not_pile_up() -> None:
    made = []

    def work() -> Iterator[int]:
        for n in range(1_000):
            made.append(n)
            yield n

    messages = guarded(work, 5)
    assert [next(messages), next(messages)] == [0, 1]
    assert len(made) < 10
    assert list(messages)[-1] == 999


def test_hanging_work_is_told_from_work_that_ended() -> None:
    for_good = threading.Event()

    def work() -> Iterator[int]:
        yield 1
        for_good.wait(20)

    messages = guarded(work, 0.05)
    assert next(messages) == 1
    with pytest.raises(Hangs):
        next(messages)
    for_good.set()


def test_the_call_that_blocks_is_never_used() -> None:
    for path in Path(nvml.__file__).parent.glob("*.py"):
        assert '"nvmlDeviceGetPcieThroughput"' not in path.read_text(), path
