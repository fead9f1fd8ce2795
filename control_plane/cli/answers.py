"""An answer of the API in two forms: as it came, for `--json`, and decoded into a struct of the wire.

The API may be newer or older than this program. Fields that this program does not know stay in the first form
and are passed over in the second; fields that an older API lacks have a default in the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from control_plane.cli.words import clean

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    content: Any
    """The JSON as the API sent it."""
    value: T

    def cleaned(self) -> T:
        """The value with control characters made visible, to be drawn on a terminal."""
        return msgspec.convert(clean(self.content), type(self.value))


def page_of(answers: Sequence[Answer[Any]], kind: type[T]) -> Answer[T]:
    """Several answers as one page of `kind`, as a listing would have them."""
    return read({"items": [answer.content for answer in answers], "next_cursor": None}, kind)


def read(content: Any, kind: type[T]) -> Answer[T]:
    """Decode the JSON of an answer. Raises `msgspec.ValidationError` when it is not a `kind`."""
    return Answer(content, msgspec.convert(content, kind))
