"""What an error means that a machine answered with: another try, or the end of our patience with it."""

from datetime import datetime, timedelta

from control_plane.domain.backoff import delay
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import MachineEvent, MachineFailure
from data_plane.access.port import AccessError, HostKeyChanged, StepFailed

RETRY_FIRST = timedelta(seconds=1)
RETRY_CEILING = timedelta(seconds=15)
STEP_TRIES_MAX = 5
STRANGE_KEY_TRIES_MAX = 10
"""How often another host key is tolerated: cloud-init replaces the image's own key during boot."""


def failure(error: AccessError, tries: int) -> MachineFailure | None:
    """The failure that an error amounts to after `tries` failed tries before it; None when it is worth another try.

    Silence is no failure by itself: it becomes one at the deadline (expire_machines).
    """
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, HostKeyChanged) and tries + 1 >= STRANGE_KEY_TRIES_MAX:
        return MachineFailure(MachineEvent.FAILED, FailReason.HOST_KEY_CHANGED, why)
    if isinstance(error, StepFailed) and tries + 1 >= STEP_TRIES_MAX:
        return MachineFailure(MachineEvent.FAILED, FailReason.SETUP_FAILED, why)
    return None


def next_try(tries: int, now: datetime) -> datetime:
    """When to try again after `tries` failed tries and one more."""
    return now + delay(tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
