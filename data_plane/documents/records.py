"""Reads dataclasses from a machine's JSON. The bound of each field is written beside the field.

    @dataclass(frozen=True)
    class Nvme:
        name: Annotated[str, Text("nvme[0-9]{1,4}")]
        size_bytes: "Annotated[int, Whole(0, 1 << 60)] | None"

    read(Nvme, {"name": "nvme0", "size_bytes": None}, "NVMe device")

A field is a bounded whole number, text that matches a pattern, a boolean, one of a few words, another record, or a
bounded tuple of these; and each of these may be nullable. A record has exactly its fields: no field is optional and no
other key is ignored. The defaults of a dataclass are only for code that makes one.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import re
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from data_plane.documents import strict

T = TypeVar("T")
_Reader = Callable[["dict[str, Any]", str], Any]
"""Reads the value of a key in a document."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int
    most: int


@dataclass(frozen=True)
class Text:
    """Text that a regular expression matches as a whole."""

    pattern: str


@dataclass(frozen=True)
class Most:
    """A tuple with at most this many entries."""

    entries: int


def read(kind: "type[T]", value: object, name: str) -> "T":
    """The record in `value`. Raises strict.Malformed, with `name` in its text."""
    document = strict.mapping(value, name)
    readers = _readers(kind)
    strict.keys(document, set(readers))
    return kind(**{key: reader(document, key) for key, reader in readers.items()})


def fitting(kind: "type[T]", **values: object) -> "T":
    """A record with these values, where a value that is out of its field's bounds becomes null.

    Records and tuples are taken as they are; they must have been made by this function themselves. Omitted fields have
    their defaults. Raises strict.Malformed if a value of a field that cannot be null is out of its bounds.
    """
    fit: dict[str, object] = {}
    readers = _readers(kind)
    for key, value in values.items():
        if is_dataclass(value) or isinstance(value, tuple):
            fit[key] = value
            continue
        try:
            fit[key] = readers[key]({key: value}, key)
        except strict.Malformed:
            fit[key] = readers[key]({key: None}, key)
    return kind(**fit)


def _readers(kind: "type[Any]") -> "dict[str, _Reader]":
    found = _known.get(kind)
    if found is None:
        hints = get_type_hints(kind, include_extras=True)
        found = _known[kind] = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    return found


_known: "dict[type[Any], dict[str, _Reader]]" = {}
"""Readers by kind. Evaluating type hints is slow, and a kind is read many times."""


def _reader(hint: Any) -> _Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(*arguments)
    if origin in (Union, types.UnionType):
        return _or_null(_reader(next(one for one in arguments if one is not type(None))))
    if origin is Literal:
        return lambda document, key: strict.one_of(document, key, arguments)
    if hint is bool:
        return strict.truth
    if is_dataclass(hint):
        record = cast("type[Any]", hint)
        return lambda document, key: read(record, document[key], key)
    raise TypeError(f"{hint} has no bound")


def _bounded(hint: Any, bound: object) -> _Reader:
    if hint is int and isinstance(bound, Whole):
        least, most = bound.least, bound.most
        return lambda document, key: strict.whole(document, key, least, most)
    if hint is str and isinstance(bound, Text):
        pattern = re.compile(bound.pattern)
        return lambda document, key: strict.text(document, key, pattern)
    if get_origin(hint) is tuple and isinstance(bound, Most):
        entry, most = _reader(get_args(hint)[0]), bound.entries
        return lambda document, key: tuple(
            entry({key: value}, key) for value in strict.listing(document, key, most)
        )
    raise TypeError(f"{bound} does not bound {hint}")


def _or_null(reader: _Reader) -> _Reader:
    return lambda document, key: None if document[key] is None else reader(document, key)
