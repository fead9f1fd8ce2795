"""The downtime of a machine: its provider lists it as failed, stopped or ending, though nobody asked for that.

    running --a list shows it down--> down --a list shows it running--> running
                                       |--its customer asks for a stop or a start, and lists show it stopped--> off
                                       |--DOWN_MAX, stopped, its customer can start it--> off (power.py)
                                       `--DOWN_MAX, anything else, its agent silent-----> given up

A customer cannot use such a machine, so its meter does not run beyond the last list that showed it running, and the
lease reads as unconfirmed, in the provider's own word. What the time in between costs when it runs again, and whether
it breaks a promise, depends on whose doing it is (`outage.py`). Nothing else follows at first: providers restart hosts,
and law 5 keeps what may still be healthy. Where we see ourselves that it works, it is billed as far as we saw that.
What does not run for an hour, and whose agent is silent, is given up: the lease ends, and its customer can have another
machine. A machine that is stopped and can be started keeps its disk for its customer, who may have shut it down: it
counts as stopped from the beginning, at the price for that (docs/decisions/0052). While its customer's request is under
way, `power.py` alone says what its lists mean.

    off --a list shows it failed--> off, down --a list shows it stopped or running--> off

A machine that its customer stopped goes down as well when its provider calls it failed, and costs nothing meanwhile. It
is not given up: no agent could say that it lives, and its disk is its customer's (docs/decisions/0081).

    down --a list shows it running--> back --lists show it running for SETTLED_AFTER--> running
                                      `-----a list shows it down--> down

A provider whose word for a machine changes with every list would begin and end a downtime every few seconds. So the
first one ends at once; but a machine that goes down again within FLAPS_WITHIN after lists showed it running has to be
shown so for SETTLED_AFTER without a break. Its downtime then ends where that time began (docs/decisions/0110).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import LeaseKind
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.outage import CAUSES, OFF, Cause, explains_more
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.sighting import Sighting

DOWN_MAX = timedelta(hours=1)
"""How long a machine may be down before it is given up, or counts as stopped."""
FLAPS_WITHIN = timedelta(hours=2)
SETTLED_AFTER = timedelta(minutes=30)
"""With FLAPS_WITHIN, what bounds how often a downtime begins and ends: 48 times a day, whatever lists show."""
_GOES_DOWN = {PowerState.ON: frozenset(CAUSES), PowerState.OFF: frozenset(CAUSES) - OFF}
"""By the state of its power, as what a machine is listed that goes down."""


@dataclass(frozen=True, slots=True)
class WentDown:
    """A list shows a machine as down for the first time, or says more about whose doing it is than lists did before."""

    id: MachineId
    native_status: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class CameUp:
    """A list shows a machine as running that was down, or one that is off as stopped again."""

    id: MachineId
    since: datetime | None = None
    """Since when lists have shown that without a break, if they had to for a while; otherwise this list is enough."""


@dataclass(frozen=True, slots=True)
class Wavered:
    """A list shows a machine that is down as `back`, or no longer so, and its downtime goes on."""

    id: MachineId
    back: bool


@dataclass(frozen=True, slots=True)
class Reworded:
    """The provider's own word for a machine's state has changed."""

    id: MachineId
    native_status: str


News = WentDown | CameUp | Wavered | Reworded


def news(machine: Machine, sighting: Sighting, power: PowerState, now: datetime) -> Iterable[News]:
    """What a list says about the downtime of a machine. While its power is being changed, it does not go down."""
    if sighting.native_status != machine.provider_state:
        yield Reworded(machine.id, sighting.native_status)
    if machine.state is not MachineState.VERIFIED:
        return
    cause = CAUSES.get(sighting.state)
    if machine.down_since is None:
        if cause is not None and sighting.state in _GOES_DOWN.get(power, ()):
            yield WentDown(machine.id, sighting.native_status, cause)
    elif sighting.state is ListedState.RUNNING or (power is PowerState.OFF and sighting.state in OFF):
        yield from _back(machine, now)
    else:
        if machine.back_since is not None:
            yield Wavered(machine.id, back=False)
        if cause is not None and explains_more(cause, machine.down_cause):
            yield WentDown(machine.id, sighting.native_status, cause)


def _back(machine: Machine, now: datetime) -> Iterable[CameUp | Wavered]:
    """What it means that a list no longer shows a machine as down."""
    if not _flaps(machine):
        yield CameUp(machine.id)
    elif machine.back_since is None:
        yield Wavered(machine.id, back=True)
    elif now - machine.back_since >= SETTLED_AFTER:
        yield CameUp(machine.id, machine.back_since)


def _flaps(machine: Machine) -> bool:
    """Whether a machine that is down was shown as back shortly before, or has been since."""
    if machine.down_since is None or machine.back_at is None:
        return False
    return machine.down_since - machine.back_at < FLAPS_WITHIN


def can_be_started(kind: LeaseKind, offered: Collection[PowerAction]) -> bool:
    """Whether the customer of a stopped machine can start it. Nobody starts a single machine of a node pool."""
    return kind is LeaseKind.MACHINE and PowerAction.START in offered


def overdue(machine: Machine, now: datetime) -> bool:
    """Whether lists have shown a machine as down for so long, without a break, that it is given up, or counts as
    stopped.
    """
    if machine.down_since is None or machine.back_since is not None:
        return False
    return now - max(machine.down_since, machine.back_at or machine.down_since) >= DOWN_MAX
