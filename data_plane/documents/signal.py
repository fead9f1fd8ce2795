"""What the workload of a machine is asked for: the file that the agent writes for it, as JSON.

    /run/splitplane/signal.json
    {"version": 1, "action": "stop_admission", "reason": "kv_cache_growth", "until": 1764343200, "ends_at": null}

It is there only while something is asked for. `until` and `ends_at` are Unix seconds by the machine's own clock,
however wrong that is: we say how many seconds are left. Whoever reads the file has it whole, because it is replaced at
once.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from data_plane.documents.records import Whole

VERSION = 1
NAME = "signal.json"
SECONDS_MAX = 7 * 86_400

Ask = Literal["throttle_admission", "smaller_batch", "stop_admission", "evict", "shutdown"]
"""`throttle_admission`: take new work more slowly. `smaller_batch`: process less at once. `stop_admission`: finish what
there is, and take no new work. `evict`: save what there is and end before `ends_at`. `shutdown`: the machine is stopped
at `ends_at`."""
ASKS: "tuple[Ask, ...]" = get_args(Ask)
Reason = Literal[
    "sla_violation",
    "memory_pressure",
    "kv_cache_growth",
    "throughput_degradation",
    "idle",
    "envelope_breach",
    "unfunded",
    "preemption",
]
REASONS: "tuple[Reason, ...]" = get_args(Reason)


@dataclass(frozen=True)
class Signal:
    """As it is delivered: with what is left, and not with times."""

    action: Ask
    reason: Reason
    seconds: Annotated[int, Whole(1, SECONDS_MAX)]
    """For how long it counts, unless it is said again."""
    ends_in: Annotated[int, Whole(0, SECONDS_MAX)] | None = None
    """After how many seconds the machine is stopped or taken away; null if it is not."""


def encode_file(signal: Signal, unix: float) -> bytes:
    """The file, at this time of the machine's clock."""
    now = int(unix)
    content = {
        "version": VERSION,
        "action": signal.action,
        "reason": signal.reason,
        "until": now + signal.seconds,
        "ends_at": None if signal.ends_in is None else now + signal.ends_in,
    }
    return json.dumps(content).encode() + b"\n"
