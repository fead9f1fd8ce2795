"""How samples get from the agent of a machine to the ingest process: HTTP through the tunnel.

    POST /v1/samples
    Authorization: Bearer CREDENTIAL
    Content-Encoding: gzip

    {"protocol": 1, "kind": "samples", "sent_at_ms": ..., "samples": [...]}

The credential alone tells whose machine it is, so that no machine can speak for another one. An agent is older than the
ingest process until it is replaced, so a delivery names its version, and every version that machines may still run is
read (`_READERS`). Within a version, a reader is exact, and every size is checked before the content is read.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from data_plane.documents import records, strict
from data_plane.documents.records import Most, Whole
from data_plane.documents.sample import SEQUENCE_MAX, Sample, UnixMilliseconds, check
from data_plane.documents.signal import Signal

VERSION = 1
PORT = 9441
"""Where the agent's end of the tunnel takes samples, TCP: the hub in the namespace of each network, and the server of a
cluster at its address in the overlay."""
PATH = "/v1/samples"
SAMPLES_MAX = 32
"""In one delivery."""
DOCUMENT_BYTES_MAX = 1024 * 1024
"""Of a delivery, when it is decompressed. A sample of 8 GPUs has about 10 KB."""
BODY_BYTES_MAX = 128 * 1024
"""Of a delivery, compressed. A sample of 8 GPUs has about 2 KB."""
ANSWER_BYTES_MAX = 4096

Verdict = Literal["accepted", "not_known", "ended", "too_fast", "too_large", "malformed", "version_not_known"]
"""`not_known`: nobody knows the credential, perhaps not yet. `ended`: its lease has ended. `version_not_known`: the
ingest process is older than the agent."""
STATUSES: "dict[Verdict, int]" = {
    "accepted": 200,
    "malformed": 400,
    "version_not_known": 400,
    "not_known": 401,
    "ended": 401,
    "too_large": 413,
    "too_fast": 429,
}
"""The status of the response for each verdict. 429 and 503 say in `Retry-After` after how many seconds to try again."""


@dataclass(frozen=True)
class Delivery:
    sent_at_ms: UnixMilliseconds
    """By the machine's clock, so that the receiver can correct the times of samples by what that clock is off."""
    samples: Annotated[tuple[Sample, ...], Most(SAMPLES_MAX)]
    """At least one, by ascending sequence. A delivery may skip sequences, come after later ones, and be repeated."""


@dataclass(frozen=True)
class Answer:
    verdict: Verdict
    accepted_through: Annotated[int, Whole(0, SEQUENCE_MAX)] = 0
    """The samples of this delivery up to this sequence need not be delivered again. It says nothing about others."""
    signal: "Signal | None" = None
    """What the machine's workload is asked for; null: nothing, and what was asked before is over."""


class VersionNotKnown(strict.Malformed):
    """The delivery is of another version of the protocol, perhaps of a newer one."""


class TooLarge(strict.Malformed):
    """The delivery has more bytes than are allowed."""


def encode_delivery(delivery: Delivery) -> bytes:
    """The body of a request."""
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    document = {"protocol": VERSION, "kind": "samples", **vars(delivery)}
    return packer.compress(_json(document)) + packer.flush()


def read_delivery(body: bytes) -> Delivery:
    """What an agent of any version sent. Raises VersionNotKnown, TooLarge and otherwise strict.Malformed."""
    document = _opened(_unpacked(body), "samples", DOCUMENT_BYTES_MAX)
    read = _READERS.get(document.pop("protocol"))
    if read is None:
        raise VersionNotKnown("this version of the protocol is not known")
    delivery = read(document)
    sequences = [sample.sequence for sample in delivery.samples]
    if not sequences or sequences != sorted(set(sequences)):
        raise strict.Malformed("the samples are not in their order")
    for sample in delivery.samples:
        check(sample)
    return delivery


def encode_answer(answer: Answer) -> bytes:
    """The body of a response, whatever its status. Version 1 for ever, so that every agent reads it."""
    document = {"protocol": 1, "kind": "answer", **vars(answer)}
    if answer.signal is None:
        del document["signal"]
    return _json(document)


def read_answer(body: bytes) -> Answer:
    """What the ingest process answered. Raises strict.Malformed, and nothing else."""
    document = _opened(body, "answer", ANSWER_BYTES_MAX)
    if document.pop("protocol") != 1:
        raise strict.Malformed("this version of the answer is not known")
    document.setdefault("signal", None)
    return records.read(Answer, document, "answer")


_GZIP = 31
"""`wbits` of zlib for the format of gzip and the largest window."""


def _json(value: object) -> bytes:
    return json.dumps(value, default=vars, separators=(",", ":")).encode()


def _unpacked(body: bytes) -> bytes:
    if len(body) > BODY_BYTES_MAX:
        raise TooLarge(f"longer than {BODY_BYTES_MAX} bytes")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        content = unpacker.decompress(body, DOCUMENT_BYTES_MAX + 1)
    except zlib.error:
        raise strict.Malformed("not in the format of gzip") from None
    if len(content) > DOCUMENT_BYTES_MAX:
        raise TooLarge(f"longer than {DOCUMENT_BYTES_MAX} bytes when decompressed")
    if not unpacker.eof or unpacker.unused_data:
        raise strict.Malformed("the compressed bytes are cut off, or others follow them")
    return content


def _opened(content: bytes, kind: str, bytes_max: int) -> "dict[str, Any]":
    document = strict.load(content, bytes_max)
    if document.pop("kind", None) != kind:
        raise strict.Malformed(f"this is no {kind}")
    strict.whole({"protocol": 0} | document, "protocol", 1, 1 << 16)
    return document


_Read = Callable[["dict[str, Any]"], Delivery]


def _version_1(document: "dict[str, Any]") -> Delivery:
    return records.read(Delivery, document, "delivery")


_READERS: "dict[int, _Read]" = {1: _version_1}
"""Reads a delivery of each version that a machine may still run, into the current records."""
