"""The file in which a workload reads what it is asked for: replaced at once, and gone when its time is over."""

import json
import stat
from pathlib import Path

import pytest

from data_plane.agent.signal_file import KEPT_WITHIN_SECONDS, SignalFile
from data_plane.documents.signal import Signal

STOP = Signal("stop_admission", "kv_cache_growth", 900)


class Clocks:
    unix, monotonic = 1_795_867_200.0, 50.0

    def advance(self, seconds: float) -> None:
        self.unix += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def file(tmp_path: Path, clocks: Clocks) -> SignalFile:
    return SignalFile(tmp_path, lambda: clocks.unix, lambda: clocks.monotonic)


def content(file: SignalFile) -> dict[str, object] | None:
    path = file.folder / "signal.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_a_workload_reads_what_is_asked_why_and_until_when(file: SignalFile, clocks: Clocks) -> None:
    file.show(STOP)
    assert content(file) == {
        "version": 1,
        "action": "stop_admission",
        "reason": "kv_cache_growth",
        "until": int(clocks.unix) + 900,
        "ends_at": None,
    }
    assert stat.S_IMODE((file.folder / "signal.json").stat().st_mode) == 0o644
    assert [path.name for path in file.folder.iterdir()] == ["signal.json"]


def test_the_file_goes_when_nothing_is_asked_any_more(file: SignalFile) -> None:
    file.show(STOP)
    file.show(None)
    assert content(file) is None
    file.show(None)


def test_the_file_goes_when_its_time_is_over_even_if_nobody_answers(file: SignalFile, clocks: Clocks) -> None:
    file.show(STOP)
    clocks.advance(899)
    file.expire()
    assert content(file) is not None
    clocks.advance(1)
    file.expire()
    assert content(file) is None


def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_signal(file: SignalFile, clocks: Clocks) -> None:
    file.show(STOP)
    clocks.unix += 86_400
    file.expire()
    assert content(file) is not None
    clocks.unix -= 365 * 86_400
    clocks.monotonic += 900
    file.expire()
    assert content(file) is None


def test_what_is_said_again_does_not_change_the_file_and_what_is_new_does(
    file: SignalFile, clocks: Clocks
) -> None:
    file.show(STOP)
    first = content(file)
    clocks.advance(15)
    file.show(Signal("stop_admission", "kv_cache_growth", 885))
    assert content(file) == first
    file.show(Signal("stop_admission", "kv_cache_growth", 885 + KEPT_WITHIN_SECONDS))
    assert content(file) != first
    file.show(Signal("evict", "unfunded", 600, ends_in=300))
    assert content(file) == {
        "version": 1,
        "action": "evict",
        "reason": "unfunded",
        "until": int(clocks.unix) + 600,
        "ends_at": int(clocks.unix) + 300,
    }


def test_a_file_that_somebody_removed_comes_back(file: SignalFile) -> None:
    file.show(STOP)
    (file.folder / "signal.json").unlink()
    file.show(STOP)
    assert content(file) is not None
