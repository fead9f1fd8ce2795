"""The agent as it travels: one file, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_plane.agent.schedule import PERIODS
from data_plane.documents.health import Health
from data_plane.documents.inventory import Inventory
from data_plane.documents.protocol import Failure, decode
from data_plane.inspection.bundle import build_agent

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


def test_the_zipapp_prints_health_once(pyz: Path, emulation: Path) -> None:
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
