"""What an agent reports to the hub of its network, and what it is answered: one line of JSON each way.

An agent is older than the hub until it is replaced, so a line names its version, and every version that machines may
still run is read (`_READERS`). Within a version, a reader is exact. A line does not say whose machine it is: the
credential alone tells, so that no machine can speak for another one.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

from data_plane.documents import records, strict
from data_plane.documents.records import Most, Text, Whole

VERSION = 1
LINE_BYTES_MAX = 64 * 1024
HEARTBEATS_MAX = 16
"""In one line. With the longest results they take about 20 KB."""
SEQUENCE_MAX = (1 << 53) - 1
PORT = 9440
"""Where the hub listens for heartbeats, TCP, in the namespace of each network."""

Task = Literal["topology", "verify", "report", "clean"]
"""All that an agent can be asked to do. None takes an argument.

`topology`: read which GPUs there are and how they are connected. `verify`: read which agent this is, and the limits
that it runs under. `report`: read the state of the GPUs. `clean`: delete what does not belong in the agent's folder.
"""
TASKS: "tuple[Task, ...]" = get_args(Task)
Verdict = Literal["accepted", "not_known", "ended", "too_fast", "malformed", "version_not_known"]
"""`not_known`: the hub does not know the credential, perhaps not yet. `ended`: the lease has ended, for good.
`version_not_known`: the hub is older than the agent, which keeps what it has until the hub is a newer one."""

_Hex = Annotated[str, Text("[0-9a-f]{64}")]


@dataclass(frozen=True)
class Result:
    """How a task went."""

    task: Task
    done: bool
    """False if the machine could not do it: `detail` says why."""
    digest: "_Hex | None"
    """The SHA-256 of the document that was read, or of the agent."""
    detail: Annotated[str, Text(r"[\x20-\x7e]{0,300}")]


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life. The machine claims all of it: evidence to look at, which moves neither money nor placement."""

    sequence: Annotated[int, Whole(1, SEQUENCE_MAX)]
    """Grows by 1 with each heartbeat of an agent."""
    at: Annotated[int, Whole(0, 1 << 40)]
    """Unix seconds by the machine's clock."""
    uptime_seconds: Annotated[int, Whole(0, 1 << 40)]
    boot: Annotated[str, Text("[0-9a-f-]{0,36}")]
    """The kernel's boot id, which changes whenever the machine restarts. Empty if it cannot be read."""
    spooled: Annotated[int, Whole(0, 1 << 20)]
    """How many earlier heartbeats were waiting to be delivered."""
    dropped: Annotated[int, Whole(0, SEQUENCE_MAX)]
    """How many heartbeats were dropped so far, because the spool was full."""
    result: "Result | None" = None
    """Of the task that was asked for last."""


@dataclass(frozen=True)
class Delivery:
    """A line of an agent."""

    credential: _Hex
    """A secret."""
    heartbeats: "Annotated[tuple[Heartbeat, ...], Most(HEARTBEATS_MAX)]"
    """Oldest first."""

    def __repr__(self) -> str:
        return f"Delivery({len(self.heartbeats)} heartbeats)"  # Tracebacks and logs must not show the credential.


@dataclass(frozen=True)
class Answer:
    """The line that the hub answers."""

    verdict: Verdict
    accepted_through: Annotated[int, Whole(0, SEQUENCE_MAX)] = 0
    """The highest sequence that needs not be delivered again."""
    task: "Task | None" = None


class VersionNotKnown(strict.Malformed):
    """The line is of another version of the protocol, perhaps of a newer one."""


def encode(message: "Delivery | Answer") -> bytes:
    kind = "delivery" if isinstance(message, Delivery) else "answer"
    return json.dumps({"protocol": VERSION, "kind": kind, **asdict(message)}, sort_keys=True).encode() + b"\n"


def read_delivery(line: bytes) -> Delivery:
    """What an agent of any version sent. Raises VersionNotKnown and strict.Malformed, whatever the bytes are."""
    document, read = _opened(line, "delivery")
    delivery = read(document)
    sequences = [heartbeat.sequence for heartbeat in delivery.heartbeats]
    if not sequences or sequences != sorted(set(sequences)):
        raise strict.Malformed("the heartbeats are not in their order")
    return delivery


def read_answer(line: bytes) -> Answer:
    """What the hub answered. Raises strict.Malformed, and nothing else."""
    document, _ = _opened(line, "answer")
    return records.read(Answer, document, "answer")


def read_heartbeat(value: object) -> Heartbeat:
    """A heartbeat of the current version. Raises strict.Malformed."""
    return records.read(Heartbeat, value, "heartbeat")


def _opened(line: bytes, kind: str) -> "tuple[dict[str, Any], _Read]":
    document = strict.load(line, LINE_BYTES_MAX)
    version = document.pop("protocol", None)
    if type(version) is not int or version not in _READERS:
        raise VersionNotKnown("this version of the protocol is not known")
    if document.pop("kind", None) != kind:
        raise strict.Malformed(f"this is no {kind}")
    return document, _READERS[version]


_Read = Callable[["dict[str, Any]"], Delivery]


def _version_1(document: "dict[str, Any]") -> Delivery:
    return records.read(Delivery, document, "delivery")


_READERS: "dict[int, _Read]" = {1: _version_1}
"""Reads a delivery of each version that a machine may still run, into the current records."""
