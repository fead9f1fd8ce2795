"""A sample from its parts: the GPUs by a process of their own, errors once, and what is said when there is nothing."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from uuid import UUID

import pytest

from data_plane.agent.gpu_watch import (
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    STALE_SECONDS,
    GpuWatch,
)
from data_plane.agent.host_usage import HostUsage
from data_plane.agent.inference import Inference
from data_plane.agent.new_xids import NewXids
from data_plane.agent.sampling import Reader
from data_plane.agent.spool import SAMPLES, Spool
from data_plane.documents.health import XIDS_MAX, Health
from data_plane.documents.health import Xid as Reported
from data_plane.documents.inventory import Gpu, Inventory
from data_plane.documents.protocol import Failure, Message, encode
from data_plane.documents.sample import Sample, Xid, signs
from data_plane.simulation.access import idle

BUS = "0000:3b:00.0"


def health(*xids: Reported, gpus: int = 2) -> Health:
    cards = tuple(
        Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{UUID(int=index)}", 81559, "none", None, None)
        for index in range(gpus)
    )
    return replace(idle(Inventory("emulated", "570.124.06", cards)), xids=xids)


@dataclass
class Printer:
    """A process that prints these documents and ends."""

    stdout: IO[bytes]
    killed: bool = False
    waited: bool = False

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        self.waited = True
        return 0


def printer(*messages: Message | bytes) -> Printer:
    lines = [each if isinstance(each, bytes) else encode(each).encode() + b"\n" for each in messages]
    return Printer(io.BytesIO(b"".join(lines)))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(*messages: Message | bytes, clock: Clock | None = None) -> GpuWatch:
    process = printer(*messages)
    found = GpuWatch(lambda: process, monotonic=clock or Clock())
    found.follow()
    assert process.waited
    return found


def _read(gpus: GpuWatch, folder: Path) -> Sample:
    reader = Reader(
        gpus,
        HostUsage(folder / "nowhere"),
        Inference(lambda *_: None, ()),
        NewXids(folder / "xids.json"),
        boot="0a2ab135",
        unix=lambda: 1_795_800_000.25,
        uptime=lambda: 77.5,
    )
    return reader.next(Spool(folder, SAMPLES, 10, first=7))


def test_a_sample_has_what_its_parts_say(tmp_path: Path) -> None:
    sample = _read(watch(health(Reported("xid", 79, BUS, 5, "event"))), tmp_path)
    assert (sample.sequence, sample.at_ms, sample.uptime_seconds, sample.boot) == (
        7,
        1_795_800_000_250,
        77,
        "0a2ab135",
    )
    assert (sample.source, sample.failure, sample.kernel_log) == ("emulated", None, "kmsg")
    assert [gpu.uuid for gpu in sample.gpus] == [f"GPU-{UUID(int=0)}", f"GPU-{UUID(int=1)}"]
    assert sample.xids == (Xid("xid", 79, BUS, 5),)


def test_gpus_that_cannot_be_read_are_said_to_be_so_and_the_host_is_still_read(tmp_path: Path) -> None:
    cases = {
        "nvml_hangs": watch(health(), Failure("nvml_hangs", "GPU 0: nvmlDeviceGetCount")),
        "bad_reading": watch(b"nonsense\n"),
        "no_answer": GpuWatch(_no_such_program, monotonic=Clock()),
    }
    cases["no_answer"].follow()
    for code, gpus in cases.items():
        sample = _read(gpus, tmp_path)
        assert (sample.failure, sample.gpus, sample.source) == (code, (), None)
        assert signs(sample) == ("gpus_unreadable",)


def _no_such_program() -> Printer:
    raise FileNotFoundError("python3")


def test_a_document_counts_for_a_minute() -> None:
    clock = Clock()
    gpus = watch(health(), clock=clock)
    assert isinstance(gpus.next(0), Health)
    clock.now += STALE_SECONDS
    assert isinstance(gpus.next(0), Health)
    clock.now += 1
    assert gpus.next(0) == Failure("no_answer", "no document for 60 s")


def test_a_document_that_is_too_long_ends_its_process() -> None:
    process = printer(b"x" * (300 * 1024) + b"\n", health())
    gpus = GpuWatch(lambda: process, monotonic=Clock())
    gpus.follow()
    latest = gpus.next(0)
    assert isinstance(latest, Failure)
    assert latest.code == "bad_reading"
    assert process.killed


def test_a_process_that_ends_is_started_again_ever_later() -> None:
    class EnoughError(Exception):
        pass

    paused: list[float] = []

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 7:
            raise EnoughError

    gpus = GpuWatch(_no_such_program, sleep=sleep)
    with pytest.raises(EnoughError):
        gpus.run()
    assert paused == [PAUSE_SECONDS * 2**n for n in range(5)] + [PAUSE_SECONDS_MAX] * 2


def test_an_error_is_reported_once_also_by_an_agent_that_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    first, second = Reported("xid", 31, BUS, 100, "log"), Reported("xid", 79, None, 200, "event")
    xids = NewXids(path)
    assert xids.take(health(first)) == ((Xid("xid", 31, BUS, 100),), 0)
    assert xids.take(health(first)) == ((), 0)
    assert xids.take(health(first, second)) == ((Xid("xid", 79, None, 200),), 0)
    again = NewXids(path)
    assert again.take(health(replace(first, at=102), second)) == ((), 0), "the log's clock differs a little"
    assert again.take(health(replace(first, at=300))) == ((Xid("xid", 31, BUS, 300),), 0)


def test_of_many_new_errors_the_latest_are_named_and_the_others_are_counted(tmp_path: Path) -> None:
    many = tuple(Reported("xid", 13, BUS, 10 * n, "log") for n in range(XIDS_MAX))
    xids = NewXids(tmp_path / "xids.json")
    latest, more = xids.take(replace(health(*many), xids_dropped=1000))
    assert [each.at for each in latest] == [10 * n for n in range(XIDS_MAX - 32, XIDS_MAX)]
    assert more == XIDS_MAX - 32 + 1000
    assert xids.take(replace(health(*many), xids_dropped=1000)) == ((), 0)


def test_a_note_that_is_damaged_or_cannot_be_written_has_errors_reported_again(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    error = Reported("xid", 79, BUS, 100, "log")
    for content in (b"", b"{}", b'{"xids": [1]}', b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        assert NewXids(path).take(health(error))[0], content
    assert NewXids(tmp_path / "missing" / "xids.json").take(health(error))[0]
