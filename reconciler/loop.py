"""A loop, one activation of it, and what it reports. Knows no loop by name.

A loop takes no input: it looks at the database, decides, acts, records. Whatever goes wrong, the next
activation is the retry; a crash between any two lines leaves rows that the next activation finds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

from control_plane.domain.ids import AccountName
from reconciler.world import World


@dataclass
class Report:
    """What one activation did. Stored, and shown to operators as the loop's last report."""

    looked_at: int = 0
    acted_on: int = 0
    errors: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    more: bool = False
    """The activation hit its bound; there is work left, come back at once."""


Item = TypeVar("Item")


async def each(items: Iterable[Item], act: Callable[[Item], Awaitable[None]], report: Report) -> None:
    """Act on all items at once. One that fails is an error in the report and disturbs no other.

    Cancelling the others would be worse than a failure: their question to a provider may be under way.
    """

    async def guarded(item: Item) -> None:
        try:
            await act(item)
        except Exception as error:  # noqa: BLE001 - the outermost frame of one item; the next activation is its retry
            report.errors.append(f"{type(error).__name__}: {error}")

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(guarded(item))


LASTS = timedelta(seconds=30)
"""How long most activations may take: they wait for providers and databases, and not for machines."""

Needs_contra = TypeVar("Needs_contra", bound=World, contravariant=True)
"""The world of the loop's wing."""


@dataclass(frozen=True, slots=True)
class Loop(Generic[Needs_contra]):
    """A loop of the whole system."""

    name: str
    every: timedelta
    activate: Callable[[Needs_contra], Awaitable[Report]]
    wakes: tuple[str, ...] = ()
    """Loops that have something to do when this one acted."""
    lasts: timedelta = LASTS
    """How long one activation may take and still be healthy."""


@dataclass(frozen=True, slots=True)
class AccountLoop(Generic[Needs_contra]):
    """A loop that runs for each provider account on its own: a slow provider delays nobody else (law 14)."""

    name: str
    every: timedelta
    activate: Callable[[Needs_contra, AccountName], Awaitable[Report]]
    wakes: tuple[str, ...] = ()
    lasts: timedelta = LASTS
    lanes: int = 1
    """How many activations of one account run side by side, where a single one may take minutes, so that one
    slow machine does not delay the others. They share rows as replicas do: each takes its own."""
