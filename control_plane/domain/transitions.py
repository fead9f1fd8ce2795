"""The form of every state machine here: a table of moves, and the result of applying an event to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Moved(Generic[S, E]):
    """The event applies: the state goes from `before` to `after`."""

    before: S
    event: E
    after: S


@dataclass(frozen=True, slots=True)
class Ignored(Generic[S, E]):
    """The event does not apply in this state. That is no error: it came twice, or another worker was faster."""

    state: S
    event: E


def step(table: Mapping[tuple[S, E], S], state: S, event: E) -> Moved[S, E] | Ignored[S, E]:
    after = table.get((state, event))
    if after is None:
        return Ignored(state, event)
    return Moved(state, event, after)
