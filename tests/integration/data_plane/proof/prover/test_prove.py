"""The agent's command `prove` as a machine runs it: a process with frames on its pipes, and none of our packages."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pytest

from data_plane.inspection.bundle import build_agent
from data_plane.proof.protocol.arithmetic import fill, walk
from data_plane.proof.protocol.commitments import group_hashes, root
from data_plane.proof.protocol.messages import (
    Answer,
    Committed,
    Fill,
    Filled,
    FillOrder,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyOrder,
    Opened,
    OpenOrder,
    Order,
    Refused,
    Walk,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover import command, cuda
from data_plane.proof.prover.device import DeviceError

ANSWERS = (Identity, Filled, Committed, Groups, Opened, Refused)
SEED, NONCE = bytes(range(32)), bytes(range(16))
START = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from data_plane.agent.__main__ import main
sys.exit(main(["prove"], Path(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(build_agent().content)
    return path


@pytest.fixture
def emulation(tmp_path: Path) -> Path:
    path = tmp_path / "nvml.json"
    card = {"name": "NVIDIA L4", "memory_total_mib": 23034}
    gpus = [{**card, "index": index, "uuid": f"GPU-{index}"} for index in range(2)]
    path.write_text(json.dumps({"driver_version": "570.124.06", "gpus": gpus}))
    return path


@contextmanager
def proving(pyz: Path, emulation: Path, *, site: bool) -> Iterator["subprocess.Popen[bytes]"]:
    """`site`: whether this machine's Python packages, numpy among them, can be found."""
    flags = ["-I"] if site else ["-I", "-S"]
    command = [sys.executable, *flags, "-c", START, str(pyz), str(emulation)]
    environment = {**os.environ, "TMPDIR": str(emulation.parent)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: "subprocess.Popen[bytes]", order: Order) -> None:
    pipe = cast("IO[bytes]", process.stdin)
    pipe.write(encode(order))
    pipe.flush()


def hear(process: "subprocess.Popen[bytes]") -> tuple[Answer, bytes]:
    pipe = cast("IO[bytes]", process.stdout)
    length = int.from_bytes(pipe.read(4), "big")
    message, blob = decode(pipe.read(length), ANSWERS)
    return cast("Answer", message), blob


def left(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """What it still answers, and what it wrote to standard error."""
    answers, errors = process.communicate(timeout=30)
    return answers, errors


def test_a_whole_conversation_with_emulated_cards(pyz: Path, emulation: Path) -> None:
    with proving(pyz, emulation, site=True) as process:
        say(process, Hello())
        identity, _ = hear(process)
        assert isinstance(identity, Identity)
        assert identity.source == "emulated"
        assert [gpu.cuda_uuid for gpu in identity.gpus] == ["GPU-0", "GPU-1"]
        say(process, FillOrder((Fill(SEED, 2, 64), Fill(SEED, 2, 128))))
        assert {cast("Filled", hear(process)[0]).gpu for _ in range(2)} == {0, 1}
        say(process, WalkOrder(8, 16, (Walk(NONCE, 40),) * 2))
        heard: dict[tuple[type[Any], int], tuple[Any, bytes]] = {}
        for _ in range(4):
            answer, blob = hear(process)
            heard[type(answer), cast("Any", answer).gpu] = answer, blob
        for gpu, blocks in enumerate((64, 128)):
            memory = fill.blocks(SEED, 2, np.arange(blocks, dtype=np.uint64))
            digests = walk.digests(NONCE, np.arange(40, dtype=np.uint32), 8, blocks, memory.__getitem__)
            hashes = group_hashes(digests, 16, NONCE, "walk")
            assert heard[Groups, gpu][1] == hashes
            assert heard[Committed, gpu][0].root == root(hashes, NONCE, "walk")
        say(process, OpenOrder("walk", ((), (2,))))
        assert hear(process) == (Opened(0, "walk"), b"")
        assert hear(process) == (Opened(1, "walk"), digests[32 * 8 :])
        say(process, Goodbye())
        assert left(process) == (b"", b"")
        assert process.returncode == 0


@pytest.mark.skipif(cuda.library() is not None, reason="this machine has a driver")
@pytest.mark.parametrize(
    ("there", "code", "word"), [(False, "no_driver", "libcuda"), (True, "emulation_missing", "numpy")]
)
def test_without_driver_or_numpy_it_says_what_is_missing(
    pyz: Path, emulation: Path, there: bool, code: str, word: str
) -> None:
    with proving(pyz, emulation if there else emulation.parent / "absent", site=False) as process:
        say(process, Hello())
        refused, _ = hear(process)
        assert isinstance(refused, Refused)
        assert refused.code == code
        assert word in refused.detail
        assert left(process) == (b"", b"")
        assert process.returncode == 0


def test_a_driver_that_does_not_load_is_no_reason_to_emulate(
    monkeypatch: pytest.MonkeyPatch, emulation: Path
) -> None:
    def broken(name: str) -> None:
        raise OSError("libcuda.so.1: file too short")

    monkeypatch.setattr("ctypes.CDLL", broken)
    with pytest.raises(DeviceError, match="file too short") as caught:
        command.machine(emulation, cast("Any", None))
    assert caught.value.code == "no_driver"


def test_a_library_that_needs_another_is_there_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libother.so: cannot open shared object file: No such file or directory")

    monkeypatch.setattr("ctypes.CDLL", broken)
    with pytest.raises(DeviceError, match="libother"):
        cuda.library()


def test_the_end_of_its_input_and_a_signal_end_it_and_leave_nothing_behind(
    pyz: Path, emulation: Path
) -> None:
    for end in ("input", "signal"):
        with proving(pyz, emulation, site=True) as process:
            say(process, Hello())
            hear(process)
            assert len(list(emulation.parent.iterdir())) == 2, "the driver's cache is a folder of its own"
            if end == "signal":
                process.send_signal(signal.SIGTERM)
            assert left(process) == (b"", b"")
            assert process.returncode == 0
        assert list(emulation.parent.iterdir()) == [emulation]


def test_a_prover_that_gets_several_signals_in_the_middle_of_a_phase_leaves_nothing_behind(
    pyz: Path, emulation: Path
) -> None:
    """`timeout` signals a process twice: as its child, and as a member of its group."""
    with proving(pyz, emulation, site=True) as process:
        say(process, Hello())
        hear(process)
        say(process, FillOrder((Fill(SEED, 1, 64),) * 2))
        for _ in range(2):
            hear(process)
        say(process, WalkOrder(8192, 4096, (Walk(NONCE, 1 << 24),) * 2))  # Hours of it.
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert list(emulation.parent.iterdir()) == [emulation]


def test_what_a_driver_prints_does_not_get_between_the_frames(pyz: Path, emulation: Path) -> None:
    chatty = emulation.parent / "chatty.py"
    chatty.write_text(
        "import os\n"
        "from data_plane.proof.prover.emulation import device\n"
        "honest = device.EmulatedDevice.launch\n"
        "def launch(self, message):\n"
        "    os.write(1, b'NVRM: hello')\n"
        "    print('hello')\n"
        "    return honest(self, message)\n"
        "device.EmulatedDevice.launch = launch\n"
    )
    start = START.replace(
        "from data_plane.agent", f"exec(open({str(chatty)!r}).read())\nfrom data_plane.agent"
    )
    command = [sys.executable, "-I", "-c", start, str(pyz), str(emulation)]
    sent = encode(Hello()) + encode(LatencyOrder(1, (NONCE,) * 2))
    done = subprocess.run(command, input=sent, capture_output=True, check=True, timeout=30)
    assert done.stderr.count(b"NVRM: hello") == 2
    assert b"hello" not in done.stdout
