"""What is wrong with a value, as a sentence for its sender: what the value must be, and what is nearest to it.

The sentences are made from the types of the wire. They name no type of Python and no regular expression: a text with
a pattern has the words for it beside the pattern (`Meta(extra={"must": ...})`, in `control_plane/wire/common.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from control_plane.domain.refusal import nearest

FAULTS_MAX = 32
"""How many faults an answer names."""
_SENTENCES_MAX = 5
_PATH_LENGTH_MAX = 200
_JSON_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
    (type(None), "null"),
)


def must(kind: inspect.Type, words: str | None = None) -> str:
    """What a value of this type must be: the end of a sentence that begins with `must be`.

    `words` are those that stand beside the type.
    """
    if isinstance(kind, inspect.Metadata):
        return must(kind.type, (kind.extra or {}).get("must") or words)
    if isinstance(kind, inspect.UnionType):
        parts = [must(part, words) for part in kind.types if not isinstance(part, inspect.NoneType)]
        # A comma, because what comes before may be a list of its own: "starting with a letter or digit, or null".
        return " or ".join(parts) + (", or null" if kind.includes_none else "")
    return words or _must_by_type(kind)


def _must_by_type(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType() | inspect.EnumType():
            return _choice(choices(kind))
        case inspect.IntType(ge=low, le=high):
            return _whole_number(low, high)
        case inspect.StrType(min_length=low, max_length=high):
            return f"a text of {_span(low, high, 'characters')}"
        case (
            inspect.VarTupleType(min_length=low, max_length=high)
            | inspect.ListType(min_length=low, max_length=high)
        ):
            return f"a list of {_span(low, high, 'values')}"
        case inspect.DictType(min_length=low, max_length=high):
            return f"an object of {_span(low, high, 'entries')}"
        case inspect.BoolType():
            return "true or false"
        case inspect.DateTimeType():
            return "a time with its zone, such as `2027-01-01T00:00:00Z`"
    return "an object" if isinstance(kind, inspect.StructType) else "a value of another kind"


def choices(kind: inspect.Type) -> list[str]:
    """The words that a value of this type may be, if it may be only some."""
    match kind:
        case inspect.Metadata(type=inner):
            return choices(inner)
        case inspect.UnionType(types=types):
            return [word for part in types for word in choices(part)]
        case inspect.VarTupleType(item_type=inner) | inspect.ListType(item_type=inner):
            return choices(inner)
        case inspect.LiteralType(values=values):
            return [str(value) for value in values]
        case inspect.EnumType(cls=cls):
            return [str(member.value) for member in cls]
        case _:
            return []


def wrong(kind: inspect.Type, value: object) -> str:
    """The sentence, without its subject, for a value that is not of this type."""
    demand = f"must be {must(kind)}"
    near = nearest(value, choices(kind)) if isinstance(value, str) else None
    if near is not None:
        return f"{demand}; did you mean `{near}`?"
    sent = _kind_of(value)
    return demand if isinstance(value, str) or sent.split()[-1] in demand else f"{demand}; {sent} was sent"


def faults(annotation: Any, value: object) -> list[tuple[str, str]]:
    """Every fault of a decoded JSON value, as the path to it and a sentence without its subject; FAULTS_MAX at most."""
    found = islice(_faults("", annotation, value), FAULTS_MAX)  # A body may have thousands.
    return [(_shown(path) or "body", what) for path, what in found]


def sentence(found: Sequence[tuple[str, str]]) -> str:
    """All faults in sentences; the last of many are only counted."""
    shown = [_ended(f"`{path}` {what}") for path, what in found[:_SENTENCES_MAX]]
    more = len(found) - len(shown)
    head = "The body is invalid:" if len(found) == 1 else f"The body has {len(found)} faults."
    return " ".join([head, *shown, *([f"{more} more are in `errors`."] if more > 0 else [])])


def _ended(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def _shown(path: str) -> str:
    """A path for an answer: it may contain what the client sent as a key."""
    shown = path.removeprefix(".")[:_PATH_LENGTH_MAX]
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def _faults(path: str, annotation: Any, value: object) -> Iterator[tuple[str, str]]:
    """The faults of the parts of a value, or of the value itself when all parts are as they should be."""
    error = _error(annotation, value)
    if error is None:
        return
    found = False
    for fault in _within(path, _plain(annotation), value):
        found = True
        yield fault
    if not found:
        # Our own check of a whole object has its own words.
        own = isinstance(value, dict) and _is_struct(_plain(annotation))
        yield path, error if own else wrong(inspect.type_info(annotation), value)


def _error(annotation: Any, value: object) -> str | None:
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, UnicodeError) as error:
        return str(error)
    return None


def _plain(annotation: Any) -> Any:
    """The type itself: without what is annotated, and without the null that it may be instead."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        (part,) = [part for part in get_args(annotation) if part is not NoneType]
        return _plain(part)
    return annotation


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _within(path: str, kind: Any, value: object) -> Iterator[tuple[str, str]]:
    """The faults of the parts of an object or a list."""
    if isinstance(value, dict) and _is_struct(kind):
        yield from _of_struct(path, kind, value)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for_key, for_value = get_args(kind)
        for key, item in value.items():
            yield from (
                (path, f"has the key `{_shown(key)}`; a key {what}") for _, what in _faults("", for_key, key)
            )
            yield from _faults(f"{path}.{key}", for_value, item)
    elif isinstance(value, list) and get_origin(kind) is tuple:
        for number, item in enumerate(value):
            yield from _faults(f"{path}[{number}]", get_args(kind)[0], item)


def _of_struct(
    path: str, kind: type[msgspec.Struct], value: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in known.items():
        if name in value:
            yield from _faults(f"{path}.{name}", field.type, value[name])
        elif field.required:
            yield f"{path}.{name}", f"is missing; it {_must_be(field.type)}"
    for name in value:
        if name not in known:
            near = nearest(name, known)
            hint = (
                f"did you mean `{near}`?"
                if near
                else f"the fields are {', '.join(f'`{each}`' for each in known)}"
            )
            yield f"{path}.{name}", f"is not a field here; {hint}"


def _must_be(annotation: Any) -> str:
    return f"must be {must(inspect.type_info(annotation))}"


def _kind_of(value: object) -> str:
    return next(words for kind, words in _JSON_KINDS if isinstance(value, kind))


def _choice(words: Sequence[str]) -> str:
    listed = [f"`{word}`" for word in words]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"


def _whole_number(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return "a whole number"
    return f"a whole number from {low:,} to {high:,}"


def _span(low: int | None, high: int | None, things: str) -> str:
    if high is None:
        return things
    return f"{low:,} to {high:,} {things}" if low else f"at most {high:,} {things}"
