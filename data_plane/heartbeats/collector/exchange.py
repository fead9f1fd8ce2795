"""What the reconciler and the collector on the hub tell each other: who may report, and what was reported.

Both come from one release: the reconciler installs the collector by digest before it speaks to it.

Standard library only, Python 3.10 and up: this file runs on the hub.
"""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from data_plane.documents import records, strict
from data_plane.documents.heartbeat import SEQUENCE_MAX, Heartbeat, Task
from data_plane.documents.records import Most, Text, Whole

AGENTS_MAX = 100_000
SOURCES_MAX = 8_192
"""More than there are private networks, and nodes of a cluster."""
REQUEST_BYTES_MAX = AGENTS_MAX * 200 + SOURCES_MAX * 80
REPORTS_MAX = 2_000
"""Heartbeats in one answer; what is left comes with the next one."""
ANSWER_BYTES_MAX = REPORTS_MAX * 1_200


@dataclass(frozen=True)
class Known:
    """An agent that the hub answers."""

    digest: Annotated[str, Text("[0-9a-f]{64}")]
    """The SHA-256 of its credential."""
    ended: bool
    """Its lease has ended: nothing of it is accepted, and it is told to remove itself."""
    stored_through: Annotated[int, Whole(0, SEQUENCE_MAX)]
    """The highest sequence that is stored. The collector forgets heartbeats up to it."""
    task: "Task | None" = None
    """What it should do next."""


@dataclass(frozen=True)
class Holder:
    """Whose connections those from one source are."""

    source: Annotated[str, Text(r"network [0-9]{1,4}|[0-9]{1,3}(\.[0-9]{1,3}){3}")]
    """A private network, by its number, or a node, by its address in the overlay."""
    organization: Annotated[int, Whole(0, AGENTS_MAX)]
    """A number in this request, equal for sources of one organization."""


@dataclass(frozen=True)
class Request:
    known: "Annotated[tuple[Known, ...], Most(AGENTS_MAX)]"
    """All agents; no other credential is accepted from now on."""
    holders: "Annotated[tuple[Holder, ...], Most(SOURCES_MAX)]" = ()


@dataclass(frozen=True)
class Reported:
    digest: Annotated[str, Text("[0-9a-f]{64}")]
    waited_seconds: Annotated[int, Whole(0, 1 << 32)]
    """How long ago the collector received it, by its own clock."""
    heartbeat: Heartbeat


@dataclass(frozen=True)
class Reports:
    reported: "Annotated[tuple[Reported, ...], Most(REPORTS_MAX)]"
    """Of each agent in the order of its sequences."""
    more: bool
    refused: Annotated[int, Whole(0, SEQUENCE_MAX)]
    """Deliveries that were refused since the collector started."""


def encode(message: "Request | Reports") -> bytes:
    return json.dumps(asdict(message), sort_keys=True).encode() + b"\n"


def read_request(line: bytes) -> Request:
    """Raises strict.Malformed."""
    return records.read(Request, strict.load(line, REQUEST_BYTES_MAX), "request")


def read_reports(line: bytes) -> Reports:
    """Raises strict.Malformed."""
    return records.read(Reports, strict.load(line, ANSWER_BYTES_MAX), "reports")
