"""Dataclasses that read themselves from a machine's JSON: each bound stands beside the field it bounds.

    @dataclass(frozen=True)
    class Nvme:
        name: Annotated[str, Text("nvme[0-9]{1,4}")]
        size_bytes: "Annotated[int, Whole(0, 1 << 60)] | None"

    read(Nvme, {"name": "nvme0", "size_bytes": None}, "NVMe device")

A field is a bounded whole number, text of a pattern, a truth value, one of some words, another record, a tuple
of those with at most so many, or any of these or null. A record has exactly its fields: nothing is optional
and nothing is ignored, whatever defaults the dataclass has for those who make one by hand.

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
"""Reads the value under a key of a document."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int
    most: int


@dataclass(frozen=True)
class Text:
    """Text that matches all of a regular expression."""

    pattern: str


@dataclass(frozen=True)
class Most:
    """At most so many entries in a tuple."""

    entries: int


def read(kind: "type[T]", value: object, name: str) -> "T":
    """The record that `value` says. Raises strict.Malformed; `name` is for its text."""
    document = strict.mapping(value, name)
    readers = _readers(kind)
    strict.keys(document, set(readers))
    return kind(**{key: reader(document, key) for key, reader in readers.items()})


def fitting(kind: "type[T]", **values: object) -> "T":
    """The record of these values, for who writes it: one that does not fit its field becomes null.

    Records and tuples are taken as they are, having been fitted themselves. What is left out has its default,
    or is null. Raises strict.Malformed if a field that is never null does not fit.
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
"""Looking up hints is slow, and a record is read many times."""


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
