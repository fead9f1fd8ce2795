"""Errors in the kernel log: lines as drivers write them, lines as nobody should, and where the log is found."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.agent import kernel_log
from data_plane.agent.kernel_log import Sighting
from data_plane.agent.kernel_log_source import Journal, Kmsg
from data_plane.agent.xids import SAME_SECONDS, Xids
from data_plane.documents.health import XIDS_MAX, Xid

FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

WRITTEN = {
    FALLEN: ("xid", 79, "0000:3b:00.0"),
    "NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.": ("xid", 79, "0000:01:00.0"),
    "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS": (
        "xid",
        31,
        "0000:00:06.0",
    ),
    "NVRM: Xid (PCI:0000:83:00): 48": ("xid", 48, "0000:83:00.0"),
    "NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_EVT  Nonfatal XC0 i0 Link 14 (0x00000000)": (
        "xid",
        149,
        "0019:01:00.0",
    ),
    "NVRM: Xid (PCI:00010000:C1:00): 154, GPU recovery action changed from 0x0 (None)": (
        "xid",
        154,
        "10000:c1:00.0",
    ),
    "NVRM: Xid (PCI:0000:17:00 GPU-I:05): 43, pid=1122, name=python3, Ch 00000008": (
        "xid",
        43,
        "0000:17:00.0",
    ),
    "NVRM: Xid (PCI:0000:17:00 GPU-I:13 GPU-CI:00): 13, pid=7, name=exe, Graphics SM Warp Exception": (
        "xid",
        13,
        "0000:17:00.0",
    ),
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)": (
        "sxid",
        28006,
        "0000:c1:00.0",
    ),
    "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up": (
        "sxid",
        20034,
        "0000:06:00.0",
    ),
    "nvidia-nvswitch12: SXid (PCI:0000:06:00.0): 00123, Fatal": ("sxid", 123, "0000:06:00.0"),
}


@pytest.mark.parametrize(("text", "meant"), WRITTEN.items())
def test_a_drivers_line_is_read_the_same_from_either_log(text: str, meant: tuple[str, int, str]) -> None:
    seen = kernel_log.kmsg(f"3,1234,98765432,-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n".encode())
    assert seen is not None
    assert ((seen.kind, seen.number, seen.bus_id), seen.microseconds) == (meant, 98765432)
    line = {"MESSAGE": text, "SYSLOG_FACILITY": "0", "__REALTIME_TIMESTAMP": "1760000000123456"}
    logged = kernel_log.journal(json.dumps(line).encode())
    assert logged == Sighting(seen.kind, seen.number, seen.bus_id, 1760000000123456)


def record(text: str, head: str = "3,1234,98765432,-") -> bytes:
    return f"{head};{text}\n".encode()


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no text": b"3,1,2,-;",
    "no head": FALLEN.encode(),
    "a short head": record(FALLEN, "3,1"),
    "a head of words": record(FALLEN, "three,1,2,-"),
    "a negative time": record(FALLEN, "3,1,-5,-"),
    "a time of 5,000 digits": record(FALLEN, f"3,1,{'9' * 5_000},-"),
    "a root that writes to the log": record(FALLEN, "12,1,2,-"),
    "a process named like a line": record(f"NVRM: loading {FALLEN}"),
    "a daemon quoting the driver": record(f"healthd[7]: {FALLEN}"),
    "a line with the line inside a name": record(f"oom-kill: name={FALLEN}"),
    "a second line that looks like one": b"6,1,2,-;usb 1-1: new device\n " + FALLEN.encode(),
    "no number": record("NVRM: Xid (PCI:0000:3b:00): , pid=1"),
    "a garbled number": record("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal"),
    "a number of 5,000 digits": record(f"NVRM: Xid (PCI:0000:3b:00): {'9' * 5_000}"),
    "a number in other digits": record("NVRM: Xid (PCI:0000:3b:00): ٧٩"),
    "an address in words": record("NVRM: Xid (PCI:../../etc): 79"),
    "an instance in words": record("NVRM: Xid (PCI:0000:3b:00 GPU-I:one): 79"),
    "an instance of an instance of none": record("NVRM: Xid (PCI:0000:3b:00 GPU-CI:00): 79"),
    "an address too long": record("NVRM: Xid (PCI:000000000:3b:00): 79"),
    "no text encoding": b"3,1,2,-;\xff\xfe\xfd",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_line_that_is_not_the_drivers_is_nothing(line: bytes) -> None:
    assert kernel_log.kmsg(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 50_000,
        b"{",
        json.dumps({"MESSAGE": FALLEN, "__REALTIME_TIMESTAMP": "1"}).encode(),
        json.dumps({"MESSAGE": FALLEN, "__REALTIME_TIMESTAMP": "1", "SYSLOG_FACILITY": "3"}).encode(),
        json.dumps({"MESSAGE": FALLEN, "__REALTIME_TIMESTAMP": 1, "SYSLOG_FACILITY": "0"}).encode(),
        json.dumps({"MESSAGE": FALLEN, "__REALTIME_TIMESTAMP": "-1", "SYSLOG_FACILITY": "0"}).encode(),
        json.dumps(
            {"MESSAGE": list(FALLEN.encode()), "__REALTIME_TIMESTAMP": "1", "SYSLOG_FACILITY": "0"}
        ).encode(),
        json.dumps({"MESSAGE": None, "__REALTIME_TIMESTAMP": "1", "SYSLOG_FACILITY": "0"}).encode(),
    ],
)
def test_a_journal_line_that_is_not_the_kernels_is_nothing(line: bytes) -> None:
    assert kernel_log.journal(line) is None


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything(content: bytes) -> None:
    assert kernel_log.kmsg(content) is None
    assert kernel_log.journal(content) is None
    assert kernel_log.kmsg(b"3,1,2,-;NVRM: Xid (PCI:" + content) is None


@given(
    st.from_regex(
        r"NVRM: Xid \(PCI:[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\): [0-9]{1,6}", fullmatch=True
    ),
    st.text(),
)
def test_whatever_follows_a_line_does_not_change_what_it_says(line: str, rest: str) -> None:
    seen = kernel_log.message(line, 1)
    assert seen is not None
    assert kernel_log.message(f"{line}, {rest}", 1) == seen
    Xid(seen.kind, seen.number, seen.bus_id, 0, "log")


def test_the_log_is_read_once_and_then_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1000000,-;Linux version 6.8.0\n" + record(FALLEN, "3,2,5500000,-"))
    log = Kmsg(path, lambda: 1_760_000_000.0)
    assert [(seen.number, at) for seen, at in log.new()] == [(79, 1_760_000_005)]
    assert log.new() == []
    with path.open("ab") as file:
        file.write(record("NVRM: Xid (PCI:0000:3b:00): 154, recovery action changed", "3,3,9000000,-"))
    assert [(seen.number, at) for seen, at in log.new()] == [(154, 1_760_000_009)]


def test_records_that_the_kernel_overwrote_are_skipped_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kmsg").touch()
    log = Kmsg(tmp_path / "kmsg", lambda: 0.0)

    def answers() -> Iterator[bytes | OSError]:
        yield BrokenPipeError()
        yield record(FALLEN)
        yield BlockingIOError()

    answer = answers()

    def read(_file: int, _size: int) -> bytes:
        logged = next(answer)
        if isinstance(logged, OSError):
            raise logged
        return logged

    monkeypatch.setattr(os, "read", read)
    assert [seen.number for seen, _ in log.new()] == [79]


def entry(text: str, second: int) -> bytes:
    logged = {"MESSAGE": text, "SYSLOG_FACILITY": "0", "__REALTIME_TIMESTAMP": f"{second}000000"}
    return json.dumps(logged).encode() + b"\n"


def test_the_journal_is_asked_from_where_it_was_left() -> None:
    asked: list[list[str]] = []
    answers = [
        entry("Linux version 6.8.0", 90) + entry(FALLEN, 100),
        entry(FALLEN, 100) + entry(FALLEN.replace("79", "154"), 160),
    ]

    def run(command: list[str]) -> bytes:
        asked.append(command)
        return answers[len(asked) - 1]

    journal = Journal(run)
    assert [(seen.number, at) for seen, at in journal.new()] == [(79, 100)]
    assert [(seen.number, at) for seen, at in journal.new()] == [(79, 100), (154, 160)]
    assert not any("--since" in word for word in asked[0])
    assert "--since=@100" in asked[1]


def test_a_journal_without_a_single_line_was_not_ours_to_read() -> None:
    with pytest.raises(PermissionError):
        Journal(lambda command: b"")


def test_an_error_that_is_logged_again_within_moments_counts_once() -> None:
    xids = Xids()
    assert xids.note("xid", 13, "0000:3b:00.0", 100, "log")
    assert not xids.note("xid", 13, "0000:3b:00.0", 100 + SAME_SECONDS, "log")
    assert not xids.note("xid", 13, "0000:3b:00.0", 100 - SAME_SECONDS, "event")
    assert xids.note("xid", 13, "0000:3b:00.0", 101 + SAME_SECONDS, "log")
    assert [(xid.at, xid.heard) for xid in xids.latest()] == [(100, "both"), (101 + SAME_SECONDS, "log")]


@pytest.mark.parametrize(
    ("kind", "number", "bus_id"),
    [
        ("sxid", 13, "0000:3b:00.0"),
        ("xid", 31, "0000:3b:00.0"),
        ("xid", 13, "0000:3c:00.0"),
        ("xid", 13, None),
    ],
)
def test_another_error_another_card_or_a_switch_is_another(
    kind: str, number: int, bus_id: str | None
) -> None:
    xids = Xids()
    xids.note("xid", 13, "0000:3b:00.0", 100, "log")
    assert xids.note("sxid" if kind == "sxid" else "xid", number, bus_id, 100, "log")


def test_a_storm_keeps_the_latest_and_counts_what_it_dropped() -> None:
    xids = Xids()
    for n in range(XIDS_MAX + 100):
        xids.note("xid", 13, "0000:3b:00.0", 100 * n, "log")
    latest = xids.latest()
    assert (len(latest), xids.dropped, latest[-1].at) == (XIDS_MAX, 100, 100 * (XIDS_MAX + 99))


def test_an_error_that_is_reported_late_keeps_its_own_time() -> None:
    xids = Xids()
    xids.note("xid", 79, "0000:3b:00.0", 500, "event")
    xids.note("xid", 31, "0000:3b:00.0", 100, "log")
    assert [xid.number for xid in xids.latest()] == [31, 79]
