"""Laws that the table of every state machine keeps, whatever it is about."""

import itertools
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from control_plane.domain.transitions import Ignored, Moved

Table = Mapping[tuple[Any, Any], Any]


def reached(table: Table, first: StrEnum, without: Collection[StrEnum] = ()) -> set[StrEnum]:
    """The states that can be reached from `first`, itself included, by other events than those in `without`."""
    seen, open_states = {first}, [first]
    while open_states:
        state = open_states.pop()
        for (before, event), after in table.items():
            if before is state and event not in without and after not in seen:
                seen.add(after)
                open_states.append(after)
    return seen


def check_all_is_used(table: Table, states: type[StrEnum], events: type[StrEnum], first: StrEnum) -> None:
    assert reached(table, first) == set(states), "a state cannot be reached"
    assert {event for _, event in table} == set(events), "an event is never used"


def check_ends(table: Table, states: type[StrEnum], terminal: Collection[StrEnum]) -> None:
    """Terminal states are left by nothing, and reached from everywhere."""
    assert {before for before, _ in table} == set(states) - set(terminal)
    for state in states:
        assert reached(table, state) & set(terminal), f"no way leads from {state} to an end"


def check_moves(table: Table) -> None:
    for (before, event), after in table.items():
        assert before is not after, f"{event} leads from {before} to where it began"


def check_stepping(
    table: Table, states: type[StrEnum], events: type[StrEnum], step: Callable[[Any, Any], object]
) -> None:
    """Stepping answers what the table says, for every pair of state and event."""
    for state, event in itertools.product(states, events):
        after = table.get((state, event))
        wanted = Ignored(state, event) if after is None else Moved(state, event, after)
        assert step(state, event) == wanted, (state, event)
