"""Reads deliveries of samples, which hostile machines write, in a tenth of the time that `records.read` takes.

The records and their bounds are those of `data_plane/documents/sample.py`: msgspec gets types that are made from them.
A test holds both readers against each other. Unlike there, a key may come twice, of which the last one counts. It does
no harm, because what is stored is written anew from what was read.
"""

import re
import types
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from data_plane.documents import sample as documents
from data_plane.documents import sample_delivery as deliveries
from data_plane.documents import strict
from data_plane.documents.records import Most, Text, Whole
from data_plane.documents.sample import Sample, notable
from data_plane.documents.sample_delivery import (
    DOCUMENT_BYTES_MAX,
    VERSION,
    Delivery,
    TooLarge,
    VersionNotKnown,
)

_GZIP = 31
"""`wbits` of zlib for the format of gzip and the largest window."""
_INT_MAX = (1 << 63) - 1
"""The largest bound of a whole number for msgspec."""
_UNSIGNED_MAX = (1 << 64) - 1
_LONG = re.compile(rb"[0-9]{20,4000}")
"""Numbers that may be larger, and nothing else: no text of a sample has as many digits in a row."""
_MANY = b"0" * 20
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
"""Makes all digits the same, so that a search for many of them is fast."""


@dataclass(frozen=True, slots=True)
class Read:
    """A sample that was read."""

    sequence: int
    at_ms: int
    notable: bool
    document: str
    """The sample as JSON."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A delivery that was read."""

    sent_at_ms: int
    samples: Sequence[Read]
    """By ascending sequence; at least one."""
    bytes: int
    """Of its JSON."""


def open_delivery(body: bytes) -> Opened:
    """What an agent sent. Raises VersionNotKnown, TooLarge and otherwise strict.Malformed, and nothing else."""
    content = _unpacked(body)
    _refuse_long_numbers(content)
    try:
        envelope = _ENVELOPE.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise strict.Malformed("this is no delivery of samples") from None
    if envelope.protocol != VERSION:
        raise VersionNotKnown("this version of the protocol is not known")
    try:
        delivery: Delivery = _DELIVERY.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise strict.Malformed(_sentence(error)) from None
    sequences = [sample.sequence for sample in delivery.samples]
    if not sequences or sequences != sorted(set(sequences)):
        raise strict.Malformed("the samples are not in their order")
    return Opened(delivery.sent_at_ms, [_read(sample) for sample in delivery.samples], len(content))


def _read(sample: Sample) -> Read:
    documents.check(sample)
    document = msgspec.json.encode(sample).decode()
    return Read(sample.sequence, sample.at_ms, notable(sample), document)


def _unpacked(body: bytes) -> bytes:
    """The content, of which no more is ever decompressed than a delivery may have."""
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


def _refuse_long_numbers(content: bytes) -> None:
    """Raise strict.Malformed for a number that is no unsigned one of 64 bits: msgspec knows no such bound."""
    if _MANY not in content.translate(_ZEROS):
        return
    if any(int(found) > _UNSIGNED_MAX for found in _LONG.findall(content)):
        raise strict.Malformed("a number is too large")


def _sentence(error: Exception) -> str:
    """Where a delivery is wrong. msgspec names the field and the type, and never quotes what was sent."""
    return strict.printable(str(error), 200)


class _Envelope(msgspec.Struct):
    protocol: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
    kind: Literal["samples"]


def _struct(kind: type[Any], *more: tuple[str, Any]) -> type[msgspec.Struct]:
    """A type of msgspec with the same fields and bounds as a record. Like a record, it has exactly these."""
    hints = get_type_hints(kind, include_extras=True)
    made = [(field.name, _bounded(hints[field.name])) for field in fields(kind)]
    return msgspec.defstruct(kind.__name__, [*more, *made], frozen=True, forbid_unknown_fields=True)


def _bounded(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _of_annotated(*arguments)
    if origin in (Union, types.UnionType):
        return reduce(or_, (_bounded(argument) for argument in arguments))
    if is_dataclass(hint) and isinstance(hint, type):
        return _struct(hint)
    if hint in (bool, type(None)) or origin is Literal:
        return hint
    raise TypeError(f"{hint} has no bound")


def _of_annotated(hint: Any, bound: object) -> Any:
    if isinstance(bound, Whole):
        if bound.most > _INT_MAX:
            return Annotated[int, msgspec.Meta(ge=bound.least)]  # See _refuse_long_numbers.
        return Annotated[int, msgspec.Meta(ge=bound.least, le=bound.most)]
    if isinstance(bound, Text):
        return Annotated[str, msgspec.Meta(pattern=rf"\A(?:{bound.pattern})\Z")]
    if isinstance(bound, Most):
        entries = tuple.__class_getitem__((_bounded(get_args(hint)[0]), ...))
        return Annotated[entries, msgspec.Meta(max_length=bound.entries)]
    raise TypeError(f"{bound} does not bound {hint}")


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_DELIVERY: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    _struct(deliveries.Delivery, ("protocol", int), ("kind", str))
)
