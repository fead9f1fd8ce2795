"""Reads JSON that a hostile machine wrote: exactly these keys and types, within these bounds.

Both sides of a conversation are built from the same source, so a reader has no reason to be tolerant. Whatever the
bytes are, only Malformed is raised; its text names the field and never quotes the bytes.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
import re
from typing import Any, NoReturn, cast


class Malformed(Exception):  # noqa: N818 - reads as a sentence: the answer is malformed
    """The bytes are not a valid message."""


def load(content: bytes, bytes_max: int) -> "dict[str, Any]":
    """The JSON object in `content`, without NaN, fractions or duplicate keys. Raises Malformed."""
    if len(content) > bytes_max:
        raise Malformed(f"longer than {bytes_max} bytes")
    try:
        document = json.loads(
            content.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_no_float,
            object_pairs_hook=_once,
        )
    except (ValueError, RecursionError):  # RecursionError: a document of nothing but brackets.
        raise Malformed("not JSON") from None
    return mapping(document, "document")


def _no_constant(_: str) -> NoReturn:
    raise Malformed("NaN and Infinity are not allowed")


def _no_float(_: str) -> NoReturn:
    raise Malformed("a number is not an integer")


def _once(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Malformed("a key appears twice")  # Two readers could understand it differently.
    return document


def mapping(value: object, name: str) -> "dict[str, Any]":
    if not isinstance(value, dict):
        raise Malformed(f"{name} is not an object")
    return cast("dict[str, Any]", value)


def listing(document: "dict[str, Any]", key: str, most: int) -> "list[object]":
    """A list of at most `most` values, which are not checked yet."""
    value = document[key]
    if not isinstance(value, list):
        raise Malformed(f"{key} is not a list")
    values = cast("list[object]", value)
    if len(values) > most:
        raise Malformed(f"{key} has more than {most} entries")
    return values


def keys(document: "dict[str, Any]", expected: "set[str]") -> None:
    if document.keys() != expected:
        raise Malformed("the keys are not those of this message")


def whole(document: "dict[str, Any]", key: str, least: int, most: int) -> int:
    value = document[key]
    if type(value) is not int or not least <= value <= most:  # To isinstance, True is an int.
        raise Malformed(f"{key} is not a whole number from {least} to {most}")
    return value


def truth(document: "dict[str, Any]", key: str) -> bool:
    value = document[key]
    if not isinstance(value, bool):
        raise Malformed(f"{key} is neither true nor false")
    return value


def text(document: "dict[str, Any]", key: str, pattern: "re.Pattern[str]") -> str:
    value = document[key]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Malformed(f"{key} is not acceptable text")
    return value


def one_of(document: "dict[str, Any]", key: str, words: "tuple[str, ...]") -> str:
    value = document[key]
    if not isinstance(value, str) or value not in words:
        raise Malformed(f"{key} is not one of {', '.join(words)}")
    return value


_HEX = re.compile(r"[0-9a-f]*")


def hexadecimal(document: "dict[str, Any]", key: str, size: int) -> bytes:
    """Exactly `size` bytes in lower-case hex."""
    value = document[key]
    if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
        raise Malformed(f"{key} is not {size} bytes of hex")
    return bytes.fromhex(value)


def shown(text: str, limit: int) -> str:
    """At most `limit` characters of a text of others, so that it can be stored and shown, in any language.

    A character that would control a terminal, or that PostgreSQL refuses, is replaced.
    """
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:limit])


def printable(text: str, limit: int = 300) -> str:
    """`text` as one line of printable ASCII with at most `limit` characters, for the detail of a message."""
    return "".join(c if " " <= c <= "~" else " " for c in text)[:limit]
