"""The downtime of a machine: its provider lists it as failed, stopped or ending, though nobody asked for that.

    running --a list shows it down--> down --a list shows it running--> running
                                       |--its customer asks for a stop or a start, and lists show it stopped--> off
                                       |--DOWN_MAX, stopped, its customer can start it--> off (power.py)
                                       `--DOWN_MAX, anything else, its agent silent-----> given up

A customer cannot use such a machine, so its meter does not run beyond the last list that showed it running, and the
lease reads as unconfirmed, in the provider's own word. When it runs again, its customer pays the price while stopped
for the time in between, because a machine can be shut down from inside; but nothing if any list showed it as failed or
ending, which is its provider's doing (docs/decisions/0061). Nothing else follows at first: providers restart hosts, and
law 5 keeps what may still be healthy. What its provider calls failed for an hour has failed: the lease ends, and its
customer can have another machine. A machine that is stopped and can be started keeps its disk for its customer, who may
have shut it down: it counts as stopped from the beginning, at the price for that (docs/decisions/0052). While its
customer's request is under way, `power.py` alone says what its lists mean.

    off --a list shows it failed--> off, down --a list shows it stopped or running--> off

A machine that its customer stopped goes down as well when its provider calls it failed, and costs nothing meanwhile. It
is not given up: no agent could say that it lives, and its disk is its customer's (docs/decisions/0081).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import LeaseKind
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.sighting import ListedState, Sighting

DOWN_MAX = timedelta(hours=1)
"""How long a machine may be down before it is given up, or counts as stopped."""
_FAILED = frozenset({ListedState.FAILED, ListedState.ENDING})
_GOES_DOWN = {PowerState.ON: _FAILED | {ListedState.STOPPED}, PowerState.OFF: _FAILED}
"""By the state of its power, as what a machine is listed that goes down."""


@dataclass(frozen=True, slots=True)
class WentDown:
    """A list shows a machine as down for the first time, or as failed for the first time since."""

    id: MachineId
    native_status: str
    failed: bool
    """Whether as failed or ending, and not as stopped."""


@dataclass(frozen=True, slots=True)
class CameUp:
    """A list shows a machine as running that was down, or one that is off as stopped again."""

    id: MachineId


@dataclass(frozen=True, slots=True)
class Reworded:
    """The provider's own word for a machine's state has changed."""

    id: MachineId
    native_status: str


def news(machine: Machine, sighting: Sighting, power: PowerState) -> Iterable[WentDown | CameUp | Reworded]:
    """What a list says about the downtime of a machine. While its power is being changed, it does not go down."""
    if sighting.native_status != machine.provider_state:
        yield Reworded(machine.id, sighting.native_status)
    if machine.state is not MachineState.VERIFIED:
        return
    failed, off = sighting.state in _FAILED, power is PowerState.OFF
    if machine.down_since is None:
        if sighting.state in _GOES_DOWN.get(power, ()):
            yield WentDown(machine.id, sighting.native_status, failed)
    elif sighting.state is ListedState.RUNNING or (off and sighting.state is ListedState.STOPPED):
        yield CameUp(machine.id)
    elif failed and not machine.down_failed:
        yield WentDown(machine.id, sighting.native_status, failed)


def can_be_started(kind: LeaseKind, offered: Collection[PowerAction]) -> bool:
    """Whether the customer of a stopped machine can start it. Nobody starts a single machine of a node pool."""
    return kind is LeaseKind.MACHINE and PowerAction.START in offered


def overdue(machine: Machine, now: datetime) -> bool:
    """Whether a machine has been down for so long that it is given up, or counts as stopped."""
    return machine.down_since is not None and now - machine.down_since >= DOWN_MAX
