"""What a loop is, how one activation acts on its items, and what it reports.

A loop takes no input: it reads the database, decides, acts and records. When anything fails, the next activation
is the retry, and a crash between any two lines leaves rows that the next activation finds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar

from control_plane.domain.ids import AccountName
from reconciler.world import World


@dataclass(frozen=True, slots=True)
class Event:
    """What an operator wants to find in the log afterwards, because no row tells it for ever."""

    name: str
    facts: Mapping[str, str]


@dataclass
class Report:
    """What one activation did. It is stored as the loop's last report, which operators read."""

    looked_at: int = 0
    acted_on: int = 0
    errors: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])
    """Lines of the log."""
    more: bool = False
    """The activation reached its limit and work is left, so the next one starts at once."""

    def count(self, acted_on: int) -> None:
        """Add what one item came to. Unlike `acted_on += await ...`, it reads the sum after the wait, not before."""
        self.acted_on += acted_on


Item = TypeVar("Item")
First = TypeVar("First")
Second = TypeVar("Second")


async def each(items: Iterable[Item], act: Callable[[Item], Awaitable[None]], report: Report) -> None:
    """Act on all items concurrently. A failure of one is an error in the report and does not affect the others.

    The others are not cancelled, because their calls to a provider may be under way.
    """

    async def guarded(item: Item) -> None:
        try:
            await act(item)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            report.errors.append(f"{type(error).__name__}: a library gave up its own work")
        except Exception as error:  # noqa: BLE001 - the outermost frame of one item; the next activation is its retry
            report.errors.append(f"{type(error).__name__}: {error}")

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(guarded(item))


async def both(
    one: Coroutine[None, None, First], other: Coroutine[None, None, Second]
) -> tuple[First, Second]:
    """Do two things at the same time. When either fails, the other is cancelled, and has ended before this raises."""
    tasks = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        await asyncio.gather(*tasks)
        return tasks[0].result(), tasks[1].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_being_cancelled() -> bool:
    """Whether somebody cancels the current task.

    Otherwise a CancelledError is a failure like any other: a library let that of a task of its own escape. A task group
    would take it for the end of ours, and say nothing.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


LASTS = timedelta(seconds=30)
"""How long most activations may take: they wait for providers and the database, but not for machines."""

Needs_contra = TypeVar("Needs_contra", bound=World, contravariant=True)
"""The world of the loop's wing."""


@dataclass(frozen=True, slots=True)
class Loop(Generic[Needs_contra]):
    """A loop that runs once for the whole system."""

    name: str
    every: timedelta
    activate: Callable[[Needs_contra], Awaitable[Report]]
    wakes: tuple[str, ...] = ()
    """Loops that may have work after this one acted."""
    lasts: timedelta = LASTS
    """How long one activation may take before the loop counts as unhealthy."""
    hears: tuple[str, ...] = ()
    """Channels of PostgreSQL. A notification there starts an activation at once, in every replica. One may be lost, so
    that the loop must find its work without it, at its interval."""
    beside: Callable[[Needs_contra, Callable[[], None]], Awaitable[None]] | None = None
    """Runs beside the loop until it is cancelled, and calls its second argument to start an activation at once. The
    loop must find its work without it."""


@dataclass(frozen=True, slots=True)
class AccountLoop(Generic[Needs_contra]):
    """A loop that runs separately for each provider account, so that a slow provider delays no other (law 14)."""

    name: str
    every: timedelta
    activate: Callable[[Needs_contra, AccountName], Awaitable[Report]]
    wakes: tuple[str, ...] = ()
    lasts: timedelta = LASTS
    lanes: int = 1
    """How many activations of one account run concurrently. More than one where an activation may take minutes, so
    that a slow machine does not delay the others. Each takes rows of its own, as replicas do."""
    hears: tuple[str, ...] = ()
    """As of `Loop`; a notification wakes the loop of every account."""
