"""What NVML, sysfs, /proc and the list of loaded libraries say of a card, each as odd as a machine may be."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pynvml
import pytest

from data_plane.nvml.emulation import EmulatedNvml
from data_plane.proof.protocol.messages import GpuIdentity, Library
from data_plane.proof.prover import libraries
from data_plane.proof.prover.claims import Claims

BUS = "0000:3b:00.0"
RECORDED = json.loads(Path("tests/support/nvml/h100-sxm-8.json").read_text())
FIELDS = {name for name in GpuIdentity.__dataclass_fields__ if name.startswith(("nvml_", "sysfs_", "proc_"))}


class Nvml(EmulatedNvml):
    """The emulation, asked by address as well: its second card is at BUS."""

    def __init__(self, **answers: Any) -> None:
        gpus = [dict(one) for one in RECORDED["gpus"]]
        pci = {"domain": 0, "bus": 0x3B, "device": 0, "pciDeviceId": 0x233010DE, "pciSubSystemId": 0x16C110DE}
        gpus[1]["answers"] = {
            **gpus[1].get("answers", {}),
            "nvmlDeviceGetPciInfo": pci,
            "nvmlDeviceGetMemoryInfo": {"total": 85_520_809_984, "reserved": 0},
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetCurrentClocksEventReasons": 0x44,
            **answers,
        }
        gpus[1]["lost"] = False
        super().__init__({**RECORDED, "gpus": gpus}, lambda: 0.0, lambda seconds: None)

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> Any:  # noqa: N802 - NVML's name
        if bus != BUS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.nvmlDeviceGetHandleByIndex(1)


class NoNvml:
    def nvmlInit(self) -> None:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    device = tmp_path / "sys/bus/pci/devices" / BUS
    device.mkdir(parents=True)
    for name, number in {
        "vendor": "0x10de",
        "device": "0x2330",
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1",
    }.items():
        (device / name).write_text(f"{number}\n")
    driver = tmp_path / "proc/driver/nvidia"
    (driver / "gpus" / BUS).mkdir(parents=True)
    (driver / "gpus" / BUS / "information").write_text(
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 171\nGPU UUID: \t GPU-1\n"
    )
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\nGCC version: 12\n"
    )
    return tmp_path


def test_three_sources_speak_of_one_card(root: Path) -> None:
    claims = Claims(root, Nvml())
    claimed = claims.of(BUS)
    assert claimed.keys() == FIELDS
    assert claimed == {
        "nvml_name": "NVIDIA H100 80GB HBM3",
        "nvml_uuid": RECORDED["gpus"][1]["uuid"],
        "nvml_memory": 85_520_809_984,
        "nvml_pci_device": "10de:2330",
        "nvml_pci_bus": BUS,
        "nvml_sharing": "none",
        "nvml_ecc": True,
        "nvml_throttle": 0x44,
        "nvml_processes": 0,
        "sysfs_pci_device": "10de:2330",
        "sysfs_pci_subsystem": "10de:16c1",
        "proc_model": "NVIDIA H100 80GB HBM3",
    }
    assert claims.throttle(BUS) == 0x44
    assert claims.driver() == "570.124.06"
    claims.close()


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  535.183.01  Release Build  (dvs)\n",
    ],
)
def test_the_kernel_knows_its_driver_by_both_names(root: Path, text: str) -> None:
    (root / "proc/driver/nvidia/version").write_text(text)
    assert Claims(root, NoNvml()).driver() == "535.183.01"


def test_a_card_that_reports_nothing_claims_nothing(tmp_path: Path) -> None:
    claims = Claims(tmp_path, NoNvml())
    assert claims.of(BUS) == {**dict.fromkeys(FIELDS), "nvml_sharing": "unknown"}
    assert claims.throttle(BUS) is None
    assert claims.driver() == "unknown"
    assert Claims(tmp_path, Nvml()).driver() == RECORDED["driver_version"]
    elsewhere = Claims(tmp_path, Nvml())
    assert elsewhere.of("0000:ff:00.0") == claims.of(BUS)
    assert elsewhere.throttle("0000:ff:00.0") is None
    claims.close()


def test_a_card_that_fell_off_the_bus_claims_nothing(root: Path) -> None:
    claims = Claims(root, Nvml(nvmlDeviceGetEccMode={"error": "GPU_IS_LOST"}))
    claimed = claims.of(BUS)
    assert claimed["nvml_name"] is None
    assert claimed["sysfs_pci_device"] == "10de:2330"
    silent = Claims(root, Nvml(nvmlDeviceGetCurrentClocksEventReasons={"error": "GPU_IS_LOST"}))
    assert silent.throttle(BUS) is None


@pytest.mark.parametrize(
    ("call", "driver", "name"),
    [
        ("nvmlSystemGetDriverVersion", "unknown", "NVIDIA H100 80GB HBM3"),
        ("nvmlDeviceGetSerial", RECORDED["driver_version"], "NVIDIA H100 80GB HBM3"),
        ("nvmlDeviceGetName", RECORDED["driver_version"], None),
    ],
)
def test_a_card_that_says_what_is_no_text_claims_the_rest(
    tmp_path: Path, call: str, driver: str, name: str | None
) -> None:
    api = Nvml()
    setattr(api, call, lambda *arguments: b"NVIDIA \xff".decode())  # As the bindings do.
    claims = Claims(tmp_path, api)
    assert (claims.driver(), claims.of(BUS)["nvml_name"]) == (driver, name)


def test_an_older_driver_knows_throttling_by_another_name(root: Path) -> None:
    older = Nvml(nvmlDeviceGetCurrentClocksEventReasons=None, nvmlDeviceGetCurrentClocksThrottleReasons=8)
    assert Claims(root, older).throttle(BUS) == 8


def test_an_older_driver_counts_processes_by_another_name(root: Path) -> None:
    older = Nvml(
        nvmlDeviceGetComputeRunningProcesses_v3=None, nvmlDeviceGetComputeRunningProcesses_v2=[{"pid": 7}]
    )
    assert Claims(root, older).of(BUS)["nvml_processes"] == 1


@pytest.mark.parametrize("content", [b"", b"0x10dez", b"10de", b"0x10de10de", b"\xff\xff", b"0x10de\n\n"])
def test_an_invalid_pci_number_is_not_claimed(root: Path, content: bytes) -> None:
    (root / "sys/bus/pci/devices" / BUS / "vendor").write_bytes(content)
    assert Claims(root, NoNvml()).of(BUS)["sysfs_pci_device"] is None


@pytest.mark.parametrize("content", [b"", b"Model: \n", b"Model: \x1b[2J\n", b"Model: " + b"x" * 97 + b"\n"])
def test_a_model_that_cannot_be_shown_is_not_claimed(root: Path, content: bytes) -> None:
    (root / "proc/driver/nvidia/gpus" / BUS / "information").write_bytes(content)
    assert Claims(root, NoNvml()).of(BUS)["proc_model"] is None


# Libraries.


def test_libraries_are_reported_as_they_are_mapped(tmp_path: Path) -> None:
    real = tmp_path / "libcuda.so.570.124.06"
    real.write_bytes(b"x" * 3_000_000)
    gone = tmp_path / "libnvidia-ml.so.1"
    maps = tmp_path / "maps"
    maps.write_text(
        f"7f0000000000-7f0000001000 r--p 00000000 08:01 42   {real}\n"
        f"7f0000001000-7f0000002000 r-xp 00001000 08:01 42   {real}\n"
        f"7f0000002000-7f0000003000 r-xp 00001000 08:01 43   {gone}\n"
        f"7f0000003000-7f0000004000 r-xp 00001000 08:01 44   {tmp_path}/libnvidia-ml.so.2 (deleted)\n"
        "7f0000004000-7f0000005000 r-xp 00001000 08:01 45   /usr/lib/libc.so.6\n"
        "7f0000005000-7f0000006000 rw-p 00000000 00:00 0    [heap]\n"
        "7f0000006000-7f0000007000 rw-p 00000000 00:00 0\n"
    )
    assert libraries.loaded(maps) == (
        Library("libcuda.so.570.124.06", str(real), hashlib.sha256(b"x" * 3_000_000).digest()),
    )
    assert libraries.loaded(tmp_path / "absent") == ()


def test_this_process_has_its_libraries_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real list of the real kernel, asked for a library that every Python has."""
    monkeypatch.setattr(libraries, "_NAMES", ("libc.so", "libc-", "ld-"))
    found = libraries.loaded()
    assert found
    assert all(hashlib.sha256(Path(one.path).read_bytes()).digest() == one.sha256 for one in found)
