import io
import json
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from data_plane.agent import __main__ as agent
from data_plane.documents.health import Health
from data_plane.documents.inventory import Gpu, Inventory, Mig
from data_plane.documents.protocol import Failure, Message
from data_plane.nvml import identity
from data_plane.nvml import library as nvml

CARD = {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory_total_mib": 81559}


@pytest.fixture
def emulation(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.json"
    path.write_text(
        json.dumps({"driver_version": "570.124.06", "gpus": [CARD, {**CARD, "index": 1, "uuid": "GPU-2"}]})
    )
    return path


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
    with redirect_stdout(io.StringIO()) as printed:
        assert agent.main(line.split(), emulation) == 2
    assert printed.getvalue() == ""


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


def test_the_agent_prints_no_document_that_the_other_side_would_refuse(tmp_path: Path) -> None:
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


def test_samples_that_wait_are_of_one_lease_and_never_delivered_under_another_one(tmp_path: Path) -> None:
    first = agent.spool_folder(tmp_path / "samples", "11" * 32)
    (first / "0000000000000001.sample").write_bytes(b"of the lease before")
    (tmp_path / "samples" / "xids.json").write_text("{}")
    second = agent.spool_folder(tmp_path / "samples", "22" * 32)
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == sorted(
        [second.name, "xids.json"]
    )
    assert agent.spool_folder(tmp_path / "samples", "22" * 32) == second
    assert "22" * 4 not in second.name, "the name is no part of the credential"
