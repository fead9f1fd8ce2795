"""An eviction: a provider takes a spot machine back, and says so, before or afterwards.

A notice may be withdrawn, so nothing but an event of the lease follows from it. That a machine ended is an eviction
only where the provider says why it ended: machines that were bought as spot also end for other reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import MachineId
from control_plane.domain.machine import SHOULD_BE_SIGHTED, Machine

WITHDRAWN_AFTER = timedelta(minutes=10)
"""A notice counts as withdrawn when the machine still runs this long after it, and the provider no longer gives it.
AWS gives notice two minutes before; its lists may lag by one."""


class EvictionState(StrEnum):
    """How far an eviction is."""

    ANNOUNCED = "announced"
    """The provider says that it will take the machine back. It still runs."""
    TAKEN = "taken"
    """The provider says that it took the machine back."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """What a provider says about one machine that it takes back."""

    state: EvictionState
    at: datetime
    """When the provider says that this became so."""
    native_status: str
    """The provider's own word."""


@dataclass(frozen=True, slots=True)
class Notice:
    """News about the eviction of a machine that runs, for its customer."""

    id: MachineId
    announced_at: datetime
    """When the provider announced it."""
    withdrawn: bool
    """Whether the announced eviction does not come after all."""
    why: str


def notices(
    machine: Machine, eviction: Eviction | None, *, runs: bool, asked_at: datetime
) -> Iterator[Notice]:
    """What is stored when a list that was requested at `asked_at` shows a machine with this eviction, or without one.

    `runs` says whether the list shows it as running. A notice is stored once, until it is withdrawn.
    """
    if machine.state not in SHOULD_BE_SIGHTED:
        return
    announced_at = machine.eviction_announced_at
    if announced_at is None or machine.eviction_withdrawn_at is not None:
        if eviction is not None and eviction.state is EvictionState.ANNOUNCED:
            at = min(eviction.at, asked_at)  # A provider's clock may be ahead of ours.
            why = f"its provider announced at {at.isoformat(timespec='seconds')} to take it back"
            yield Notice(machine.id, at, withdrawn=False, why=why)
    elif runs and eviction is None and asked_at - announced_at >= WITHDRAWN_AFTER:
        minutes = int(WITHDRAWN_AFTER.total_seconds() // 60)
        why = f"it still runs {minutes} minutes after its provider announced to take it back"
        yield Notice(machine.id, announced_at, withdrawn=True, why=why)


def taken(machine: Machine, eviction: Eviction | None) -> str | None:
    """Our sentence about a machine that ended because its provider took it back; None when that is not why."""
    if eviction is None or eviction.state is not EvictionState.TAKEN:
        return None
    announced_at = machine.eviction_announced_at
    if announced_at is None or machine.eviction_withdrawn_at is not None:
        return "its provider took it back, without notice"
    return f"its provider took it back, as announced at {announced_at.isoformat(timespec='seconds')}"
