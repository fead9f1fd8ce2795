"""Emulated cards for tests: a description from tests/support/nvml, a script of faults, and time that a test moves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_plane.agent.kernel_log import Sighting
from data_plane.agent.kernel_log_source import KernelLog, Unreadable
from data_plane.agent.monitor import Monitor
from data_plane.agent.schedule import Schedule
from data_plane.nvml.emulation import EmulatedNvml
from data_plane.nvml.library import Library

FOLDER = Path(__file__).parent / "nvml"
MODELS = sorted(path.stem for path in FOLDER.glob("*.json"))
BOOT = 1_760_000_000
"""The unix second at which a clock says 0."""


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def unix(self) -> float:
        return BOOT + self.now


def described(model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{model}.json").read_text())
    return found


def library(model: str, *script: dict[str, Any], clock: Clock | None = None) -> Library:
    """The cards of a model, to which the script's steps happen."""
    clock = clock or Clock()
    api = EmulatedNvml({**described(model), "script": list(script)}, clock, clock.sleep)
    return Library(api, "emulated")


@dataclass
class Log:
    """A kernel log to which a test writes: (xid, bus id, unix second)."""

    lines: list[tuple[int, str, int]]
    name: Literal["kmsg", "journal", "unreadable"] = "kmsg"

    def new(self) -> list[tuple[Sighting, int]]:
        reported, self.lines = self.lines, []
        return [(Sighting("xid", number, bus_id, 0), at) for number, bus_id, at in reported]


def monitor(
    model: str,
    *script: dict[str, Any],
    clock: Clock,
    interval: float = 10,
    log: KernelLog | None = None,
) -> Monitor:
    cards = library(model, *script, clock=clock)
    return Monitor(cards, Schedule(interval), log or Unreadable(), monotonic=clock, unix=clock.unix)
