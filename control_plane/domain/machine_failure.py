"""Whether a failure applies to a machine as it is now, with the claims that are open on it."""

from collections.abc import Collection

from control_plane.domain.claim import Claim
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import (
    Machine,
    MachineEvent,
    MachineFailure,
    MachineMove,
    MachineState,
    step,
)
from control_plane.domain.transitions import Moved

_FAIL_IN_USE = frozenset({FailReason.NODE_LOST, FailReason.NODE_HOSTILE, FailReason.UNHEALTHY})


def move_of(machine: Machine, open_claims: Collection[Claim], failure: MachineFailure) -> MachineMove | None:
    """The move of a machine that fails; None when the failure no longer applies."""
    if failure.event is MachineEvent.REJECTED and machine.provider_ref is not None:
        # The provider refused the launch and yet lists the machine, so only its lists can prove the end.
        return None
    overdue = failure.overdue and machine.down_since is not None and machine.back_since is None
    may_fail = overdue or _may_fail(machine, open_claims, failure.reason)
    if failure.event is MachineEvent.FAILED and not may_fail:
        return None
    moved = step(machine.state, failure.event)
    if not isinstance(moved, Moved):
        return None
    return MachineMove(
        machine.id,
        machine.generation,
        moved,
        why=failure.why,
        provider_words=failure.provider_words,
        fail_reason=failure.reason,
        gone_evidence=failure.gone_evidence,
    )


def _may_fail(machine: Machine, open_claims: Collection[Claim], reason: FailReason) -> bool:
    """A verified machine never fails once a customer was admitted to it (law 5), unless it was a node that stayed
    unready for too long or lied (`node_watch.py`, `node_capacity.py`), was down for too long (`downtime.py`), or has a
    fault that we saw ourselves (`repair.py`).

    Before, it fails because its customers cannot be admitted, or, with or without a claim on it, because its provider
    lists it as failed or stopped: nobody uses it then.
    """
    if machine.state is not MachineState.VERIFIED or reason in _FAIL_IN_USE:
        return True
    if any(claim.admitted_at is not None for claim in open_claims):
        return False
    return bool(open_claims) or reason is FailReason.PROVIDER_REPORTED_FAILURE
