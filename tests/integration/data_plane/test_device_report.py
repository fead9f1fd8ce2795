"""The report of a device, made with an emulation: what it reads and prints, and that it cannot pass for a GPU's."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_plane.access.line import LineBroken, LineSilent
from data_plane.agent.schedule import PERIODS
from data_plane.device_report import measure, render
from data_plane.device_report.__main__ import main
from data_plane.device_report.line import prover
from data_plane.nvml import selection
from data_plane.nvml.library import Library
from data_plane.proof.challenger import measurements
from data_plane.proof.protocol.messages import TileKind
from data_plane.proof.prover import command, cuda
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.emulation.machine import machine_from

H200 = {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "memory_total_mib": 143771}


@pytest.fixture
def emulation(tmp_path: Path) -> Path:
    path = tmp_path / "emulated-nvml.json"
    path.write_text(json.dumps({"driver_version": "570.124.06", "gpus": [H200]}))
    return path


@pytest.fixture(autouse=True)
def without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "library", lambda: None)
    monkeypatch.setenv("CUDA_CACHE_PATH", "")


def test_a_whole_report_of_an_emulation_says_that_it_is_one(
    emulation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert main(["--emulation", str(emulation), "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert (report["model"], report["source"]) == ("h200-sxm-141gb", "emulated")
    assert report["challenge"]["outcome"] == "emulated"
    assert report["rates"].keys() == {"fill", "walk", "int8", "bf16"}
    assert all(report["gpus"][0]["exactness"].values())
    assert {aim["what"] for aim in report["aims"] if not aim["is_met"]} == {
        "memory shown to be resident, of NVML's total",
        "walk, of peak bandwidth",
    }
    printed = capsys.readouterr().out
    assert "exact, bit by bit" in printed
    assert max(map(len, printed.replace(str(out), "").splitlines())) <= 80
    with pytest.raises(ValueError, match="an emulation was measured"):
        measurements.parse(out.read_text())


class Heard:
    """An NVML that records every call about a card."""

    def __init__(self, inner: Any, heard: list[str]) -> None:
        self._inner, self._heard = inner, heard

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("nvmlDevice", "nvmlGpm")):
            self._heard.append(name)
        return getattr(self._inner, name)


def test_both_looks_at_nvml_ask_everything_and_the_first_comes_before_cuda(
    emulation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    real = selection.opened

    @contextmanager
    def opened(path: Path) -> Iterator[Library]:
        with real(path) as found:
            yield Library(Heard(found.api, heard), found.source)

    monkeypatch.setattr(selection, "opened", opened)
    monkeypatch.setattr(cuda, "library", lambda: heard.append("CUDA"))
    main(["--emulation", str(emulation), "--out", str(tmp_path / "report.json")])
    costs = json.loads((tmp_path / "report.json").read_text())["nvml"]
    each = sum(one["calls"] for one in costs["first"].values())
    assert costs["first"].keys() == costs["second"].keys() == set(PERIODS)
    assert heard[:each] == heard[each : 2 * each]
    assert heard[2 * each :] == ["CUDA"]


def test_without_a_gpu_it_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert main(["--emulation", str(tmp_path / "none"), "--out", str(out)]) == 3
    assert "no GPU to measure: no_driver" in capsys.readouterr().err
    assert not out.exists()


class Failing:
    """A device that breaks at one question."""

    def __init__(self, device: Any, question: str) -> None:
        self._device, self._question = device, question
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._question else getattr(self._device, name)

    def _fail(self, *arguments: object) -> None:
        raise DeviceError("cuda_error", "the driver failed (cuEventSynchronize: error 719)")

    def close(self) -> None:
        self.is_closed = True
        self._device.close()


@pytest.mark.parametrize(
    ("question", "known"),
    [
        ("identity", None),
        ("walk", {"index", "name", "uuid"}),
        (
            "gaps",
            {"index", "name", "uuid", "exactness", "largest_allocation", "fill", "walk_by_steps"}
            | {"walk_by_share_of_memory", "tiles", "launch"},
        ),
    ],
)
def test_a_gpu_that_fails_on_the_way_leaves_what_was_measured_before(
    emulation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    question: str,
    known: set[str] | None,
) -> None:
    honest = machine_from(emulation)
    device = Failing(honest.devices[0], question)
    monkeypatch.setattr(command, "machine", lambda *of: replace(honest, devices=(device,)))
    out = tmp_path / "report.json"
    assert main(["--emulation", str(emulation), "--out", str(out)]) == 1
    report = json.loads(out.read_text())
    assert report["failed"] == "cuda_error: the driver failed (cuEventSynchronize: error 719)"
    assert report["failed"] in capsys.readouterr().err
    assert [set(one) for one in report["gpus"]] == ([] if known is None else [known])
    assert all(all(one.get("exactness", {}).values()) for one in report["gpus"])
    assert (report["driver"], report["nvml"].keys()) == ("570.124.06", {"first", "second"})
    assert device.is_closed


def test_gpus_of_several_models_are_not_measured_and_the_report_says_so(
    emulation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    l4 = {"index": 1, "name": "NVIDIA L4", "uuid": "GPU-2", "memory_total_mib": 23034}
    emulation.write_text(json.dumps({"driver_version": "570.124.06", "gpus": [H200, l4]}))
    out = tmp_path / "report.json"
    assert main(["--emulation", str(emulation), "--out", str(out)]) == 1
    assert "not of one model" in json.loads(out.read_text())["failed"]
    assert "not of one model" in capsys.readouterr().err


class RoundingBf16:
    """A device whose tensor cores keep too few bits: everything is right but bf16."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def tiles(self, kind: TileKind, *of: Any) -> Iterator[bytes]:
        for digests in self._device.tiles(kind, *of):
            yield bytes(len(digests)) if kind == "bf16" else digests


def test_a_tensor_core_that_rounds_is_named(emulation: Path) -> None:
    exact = measure.exactness(RoundingBf16(machine_from(emulation).devices[0]))
    assert {what for what, is_right in exact.items() if not is_right} == {
        "bf16, inner 32",
        "bf16, inner 16384",
        "bf16, inner 131040",
    }


def test_wrong_arithmetic_and_missed_aims_stand_out(
    emulation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    main(["--emulation", str(emulation), "--out", str(out)])
    report = json.loads(out.read_text())
    report["gpus"][0]["exactness"]["walk"] = False
    lines = render.lines(report)
    assert "  arithmetic    WRONG: walk" in lines
    assert sum(line.endswith("MISSED") for line in lines) == 2, lines


async def test_the_line_to_a_process_distinguishes_silence_from_its_end() -> None:
    async with prover(["sh", "-c", "read x; exit 0"]) as line:
        with pytest.raises(LineSilent):
            await line.receive(100, 0.01)
        await line.send(b"order\n")
        with pytest.raises(LineBroken):
            await line.receive(100, 10)
