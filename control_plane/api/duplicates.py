"""Finds names that a JSON object has twice.

RFC 8259 leaves open which of two values counts. Decoders keep the last one silently, so that a proxy or a log in front
of us may have seen another price ceiling than the one that we act on.
"""

import json

from control_plane.api.errors import ApiError
from control_plane.wire.problems import FieldError


class _DuplicateError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def refuse_duplicates(body: bytes) -> None:
    """Raise ApiError when an object of the body has a name twice."""
    name = duplicate(body)
    if name is not None:
        why = "is given more than once in one object"
        raise ApiError("malformed_json", f"`{name}` {why}.", errors=[FieldError(name, why)])


def duplicate(body: bytes) -> str | None:
    """A name that some object of the body has twice. None if there is none, or if the body is not JSON."""
    try:
        _DECODER.decode(body.decode())
    except _DuplicateError as found:
        return found.name.encode("utf-8", "replace").decode()[:200]
    except (ValueError, RecursionError):
        pass
    return None


def _object(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _DuplicateError(name)
        seen.add(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
