"""The lease machine: the customer's right to capacity, from the request to the last machine gone.

    PLACING --placed--> STARTING --verified--> READY --released/unfunded/lost--> ENDING --gone--> ENDED
       ^                   |
       `--attempt failed---'      a release, or giving up, leads to ENDING from anywhere before

The bill runs exactly while the lease is READY. ENDING holds until the provider has confirmed the
end of every machine the lease ever had; why it ended is `EndReason`, not more states.
"""

from enum import StrEnum

from control_plane.domain.machine import Ignored, Moved
from control_plane.domain.machine import step as step_table


class LeaseState(StrEnum):
    PLACING = "placing"
    """Waiting for a candidate. Machines of failed attempts may still be alive."""
    STARTING = "starting"
    """One attempt is under way."""
    READY = "ready"
    """Verified, reachable, billed."""
    ENDING = "ending"
    """No longer billed. Machines may still live."""
    ENDED = "ended"
    """Every machine is confirmed gone."""


class LeaseEvent(StrEnum):
    PLACED = "placed"
    ATTEMPT_FAILED = "attempt_failed"
    VERIFIED = "verified"
    RELEASED = "released"
    """The customer let go."""
    GAVE_UP = "gave_up"
    """No candidate is left, or the lease waited too long."""
    UNFUNDED = "unfunded"
    """The next hold could not be placed."""
    MACHINE_LOST = "machine_lost"
    """The machine of a ready lease is gone, by the provider's word."""
    MACHINES_GONE = "machines_gone"
    """The provider confirmed the end of every machine of this lease."""


class EndReason(StrEnum):
    RELEASED = "released"
    NO_CAPACITY = "no_capacity"
    UNFUNDED = "unfunded"
    MACHINE_LOST = "machine_lost"


_S = LeaseState
_E = LeaseEvent

NEXT: dict[tuple[LeaseState, LeaseEvent], LeaseState] = {
    (_S.PLACING, _E.PLACED): _S.STARTING,
    (_S.PLACING, _E.RELEASED): _S.ENDING,
    (_S.PLACING, _E.GAVE_UP): _S.ENDING,  # Not ENDED: an attempt with an unknown answer may have a machine.
    (_S.STARTING, _E.VERIFIED): _S.READY,
    (_S.STARTING, _E.ATTEMPT_FAILED): _S.PLACING,
    (_S.STARTING, _E.RELEASED): _S.ENDING,
    (_S.READY, _E.RELEASED): _S.ENDING,
    (_S.READY, _E.UNFUNDED): _S.ENDING,
    (_S.READY, _E.MACHINE_LOST): _S.ENDING,
    (_S.ENDING, _E.MACHINES_GONE): _S.ENDED,
}

MAY_HOLD_MACHINE = frozenset({_S.PLACING, _S.STARTING, _S.READY, _S.ENDING})
BILLED = frozenset({_S.READY})
LIVE = frozenset({_S.PLACING, _S.STARTING, _S.READY})
"""Counted against the quota, and backed by a hold."""
TERMINAL = frozenset({_S.ENDED})

END_REASONS: dict[LeaseEvent, EndReason] = {
    _E.RELEASED: EndReason.RELEASED,
    _E.GAVE_UP: EndReason.NO_CAPACITY,
    _E.UNFUNDED: EndReason.UNFUNDED,
    _E.MACHINE_LOST: EndReason.MACHINE_LOST,
}


def step(
    state: LeaseState, event: LeaseEvent
) -> Moved[LeaseState, LeaseEvent] | Ignored[LeaseState, LeaseEvent]:
    return step_table(NEXT, state, event)
