"""The emulation file: on a machine without NVIDIA's library, the agent answers from this file, and says that it does.

The file describes the cards that a test or demo machine pretends to have (`emulation.py` describes all it may contain):

    {"driver_version": "570.0", "gpus": [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-...", "memory_total_mib": 81559}]}

The file cannot set the document's `source`: our code sets it to `emulated`, so a file cannot pass itself off as NVML.
"""

import json
import time
from pathlib import Path

from data_plane.nvml.emulation import EmulatedNvml
from data_plane.nvml.library import Unanswered

PATH = Path("/etc/emulated-nvml.json")
FILE_BYTES_MAX = 1024 * 1024


def load(path: Path) -> "EmulatedNvml | None":
    """The cards that the file describes; None if there is no file. Raises library.Unanswered if the file is invalid."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unanswered("bad_emulation", f"{path}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise Unanswered("bad_emulation", f"{path}: longer than {FILE_BYTES_MAX} bytes")
    try:
        return EmulatedNvml(json.loads(content), time.monotonic, time.sleep)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unanswered("bad_emulation", f"{path}: {type(error).__name__}: {error}") from None
