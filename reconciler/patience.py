"""Decides whether a machine gets another try after an error, or is given up."""

from datetime import datetime, timedelta

from control_plane.domain.backoff import delay
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import MachineEvent, MachineFailure
from data_plane.access.port import AccessError, HostKeyChanged, StepFailed

RETRY_FIRST = timedelta(seconds=1)
RETRY_CEILING = timedelta(seconds=15)
STEP_TRIES_MAX = 5
STRANGE_KEY_TRIES_MAX = 20
"""How often an unexpected host key is accepted as temporary, about 4.5 minutes in all: the image's key is replaced
during boot, and where only a script can do that, after sshd started."""


def failure(error: AccessError, tries: int) -> MachineFailure | None:
    """The failure of a machine whose step failed with `error` after `tries` failed tries; None to try again.

    An unreachable machine has not failed yet: it fails at its deadline (expire_machines).
    """
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, HostKeyChanged) and tries + 1 >= STRANGE_KEY_TRIES_MAX:
        return MachineFailure(MachineEvent.FAILED, FailReason.HOST_KEY_CHANGED, why)
    if isinstance(error, StepFailed) and tries + 1 >= STEP_TRIES_MAX:
        return MachineFailure(MachineEvent.FAILED, FailReason.SETUP_FAILED, why)
    return None


def next_try(tries: int, now: datetime) -> datetime:
    """When to try again after one more failure than the `tries` counted so far."""
    return now + delay(tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
