"""The time in which a customer's own envelope keeps a lease from being placed.

Promises about the lease stand still meanwhile (`sla_clock.py`): it is the customer's limit, and the customer can change
it. What an operator allows the organization at most, its ceiling, is not the customer's, so no promise waits for that.

The moments of a lease are in turn when the time began and ended. A lease that waits is looked at every 15 s. Time that
nobody looked at, because we were down, is ours: what was held when it began is not held from then on until it is seen
again.
"""

from collections.abc import Sequence
from datetime import datetime

from control_plane.domain.deadline import LOOKED_AT_WITHIN
from control_plane.domain.decision import NotAdmitted
from control_plane.domain.envelope import Level


def holds(verdict: NotAdmitted) -> bool:
    """Whether an envelope that the customer states refuses the placement."""
    return any(
        spoken.level is not None and spoken.level is not Level.CEILING for spoken in verdict.decision.refusals
    )


def is_held(moments: Sequence[datetime]) -> bool:
    return len(moments) % 2 == 1


def looked_at(
    moments: Sequence[datetime], *, held: bool, due_at: datetime, now: datetime
) -> tuple[datetime, ...]:
    """The moments to add after a look at a lease that was due at `due_at`."""
    was = is_held(moments)
    unwatched = was and now - due_at > LOOKED_AT_WITHIN
    found: list[datetime] = []
    if was and (unwatched or not held):
        found.append(max(moments[-1], due_at) if unwatched else now)
    if held and (unwatched or not was):
        found.append(now)
    return tuple(found)
