"""The emulation file: on a machine without NVIDIA's library, the agent answers from this file, and says that it does.

The file describes the cards that a test or demo machine pretends to have (`emulation.py` describes all it may contain):

    {"driver_version": "570.0", "gpus": [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-...", "memory_total_mib": 81559}]}

A process that reads from the file for long notices steps that are added to its script, such as `{"at": 0, "gpu": 0,
"xid": 79, "lost": true}`, so that a card can be made to fail while the agent watches it.

The file cannot set the document's `source`: our code sets it to `emulated`, so a file cannot pass itself off as NVML.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_plane.nvml.emulation import EmulatedNvml
from data_plane.nvml.library import Unanswered

PATH = Path("/etc/emulated-nvml.json")
FILE_BYTES_MAX = 1024 * 1024
LOOK_SECONDS = 1


def load(path: Path) -> "EmulatedNvml | None":
    """The cards that the file describes; None if there is no file. Raises library.Unanswered if the file is invalid."""
    try:
        content = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unanswered("bad_emulation", f"{path}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise Unanswered("bad_emulation", f"{path}: longer than {FILE_BYTES_MAX} bytes")
    try:
        described = json.loads(content)
        news = _News(path, len(described.get("script", [])))
        return EmulatedNvml(described, time.monotonic, time.sleep, news)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unanswered("bad_emulation", f"{path}: {type(error).__name__}: {error}") from None


@dataclass
class _News:
    """The steps that were added since the last call. Looks at the file once a second at most."""

    path: Path
    known: int
    """How many steps the script had."""
    _looked_at: float = 0.0
    _changed: int = 0

    def __call__(self) -> "list[dict[str, Any]]":
        now = time.monotonic()
        if now < self._looked_at + LOOK_SECONDS:
            return []
        self._looked_at = now
        try:
            changed = self.path.stat().st_mtime_ns
            if changed == self._changed:
                return []
            steps: list[dict[str, Any]] = json.loads(_read(self.path)).get("script", [])
        except (OSError, ValueError):  # It is being written.
            return []
        self._changed = changed
        known, self.known = self.known, len(steps)
        return steps[known:]


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)
