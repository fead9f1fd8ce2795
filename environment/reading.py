"""How every process reads its settings: a dataclass whose fields name their variables, checked by pydantic.

    @dataclass(frozen=True)
    class Settings:
        streams_max: Annotated[int, Variable("SPLITPLANE_STREAMS_MAX", "open event streams"), Field(ge=1)] = 200

A variable that is empty counts as not set. `docs/generated/settings.md` is drawn from the same dataclasses.
"""

import dataclasses
import difflib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from environment.names import KNOWN, PREFIX

Settings = TypeVar("Settings")


class SettingsError(ValueError):
    """A variable is missing, invalid or unknown. The message names it in one sentence, and contains no secret."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """What a field of the settings is called in the environment."""

    name: str
    meaning: str
    """For the table of settings: a phrase without a full stop."""
    default: str | None = None
    """What the table says instead of the field's own default."""


def variables(kind: type[object]) -> Iterator[tuple[str, Variable]]:
    """The fields of a settings class, each with its variable."""
    for field, hint in get_type_hints(kind, include_extras=True).items():
        for part in _annotations(hint):
            if isinstance(part, Variable):
                yield field, part


def described(kind: type[object]) -> str:
    """The variables of a settings class, one line each, for the help of a command."""
    found = [variable for _, variable in variables(kind)]
    width = max(len(variable.name) for variable in found)
    return "\n".join(f"{variable.name:{width}}  {variable.meaning}" for variable in found)


def read(kind: type[Settings], environ: Mapping[str, str], **computed: object) -> Settings:
    """Read the settings of a process. `computed` are fields that no variable sets. Raises SettingsError.

    Only the first fault is told. Neither pydantic's messages nor ours contain the value of a variable.
    """
    refuse_unknown(environ)
    named = dict(variables(kind))
    given = {
        field: environ[variable.name].strip()
        for field, variable in named.items()
        if environ.get(variable.name, "").strip()
    }
    try:
        return TypeAdapter(kind).validate_python(computed | given)
    except ValidationError as error:
        raise SettingsError(_sentence(error, named)) from None


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raise SettingsError for a variable with our prefix that no process of ours reads."""
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in KNOWN:
            near = difflib.get_close_matches(name, sorted(KNOWN), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{name} is not a setting of Splitplane{hint}")


def _sentence(error: ValidationError, named: Mapping[str, Variable]) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    variable = named[str(fault["loc"][0])]
    if fault["type"] == "missing":
        return f"{variable.name} is not set: {variable.meaning}"
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return f"{variable.name} {cause}"
    message = fault["msg"]
    return f"{variable.name} cannot be used: {message[0].lower()}{message[1:]}"


def _annotations(hint: object) -> Iterator[object]:
    """What an `Annotated` type says besides the type, that of an alternative of a union included."""
    if get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
    elif get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _annotations(part)


def parsed(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    """A parser of text for `BeforeValidator`, which leaves defaults alone."""
    return lambda value: parse(value) if isinstance(value, str) else value


def endpoint(text: str) -> tuple[str, int]:
    """The host and the port of `host:port`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("must be a host and a port, such as 127.0.0.1:8080")
    return host, int(port)


def names(text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
