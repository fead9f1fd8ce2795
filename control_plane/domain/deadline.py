"""What follows when a machine, or a customer who waits for one, is past a deadline.

A deadline passes whether or not anybody works. So it ends nothing by itself: a machine is given up only on evidence
from after its deadline, such as another failed try, or a list of its account. When nobody looked, the outage is ours
and the machine may be fine (law 5): it is tried first, and only after a long time it ends, with a reason of our own.

    somebody looked since the deadline              it is given up for what was seen
    nobody did, for less than LOOKED_AT_WITHIN      it waits: a worker is about to look
    nobody did, for longer                          its deadline moves on by TRIED_FIRST
    the same, and it has waited for too long        it is given up as `not_attended`

The deadline of an outage has passed long ago when the outage ends, and then always moves on. Only where the deadline
passed just now, while loops were running, can waiting come to an end.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId
from control_plane.domain.machine import MachineEvent, MachineFailure, MachineState
from control_plane.domain.proof import DOUBT_LASTS

NOT_TAKEN_AFTER = timedelta(minutes=5)
"""How long an order may be put back before the lease tries elsewhere."""
ADMIT_MAX = timedelta(minutes=10)
"""How long admitting a customer to a verified machine may take; after that, the machine counts as unreachable."""
LOOKED_AT_WITHIN = timedelta(minutes=1)
"""Workers look at least this often: failed tries are repeated after 15 s, and accounts are listed every 2 s."""
TRIED_FIRST = timedelta(minutes=5)
"""How long workers have to try what nobody attended to, before anything else is decided."""
UNATTENDED_MAX = timedelta(hours=4)
"""How long after its order a machine is kept that we do not attend to. It costs us money all that time, but after a
shorter outage its customer gets it at once, and its replacement might be sold out."""
UNATTENDED_MAX_WITHOUT_MACHINE = timedelta(minutes=30)
"""The same where waiting keeps no machine: an order that nobody requested, and a claim on a slot, whose node stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overdue:
    deadline_at: datetime
    attended_until: datetime | None
    """Until when workers have done what was due: the last failed try, the account's last list, or, for an order that
    was put back, when it is due next. None before the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueMachine(_Overdue):
    """A machine whose step in progress is past its deadline."""

    id: MachineId
    account: AccountName
    state: MachineState
    generation: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueClaim(_Overdue):
    """A claim on a verified machine whose customer was not admitted by the deadline."""

    id: ClaimId
    lease_id: LeaseId
    machine_id: MachineId
    slot: int | None
    claimed_at: datetime
    suspect_since: datetime | None
    """When its machine became suspect because of its GPU proof; None while it is not."""
    last_challenged_at: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """It is too early to decide."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Nobody looked, so it gets another deadline, TRIED_FIRST from now."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    failure: MachineFailure


Decision = Wait | Extend | GiveUp

_SEEN = {
    MachineState.LAUNCHING: (
        FailReason.LAUNCH_ANSWER_LOST,
        "no complete list showed its launch key in time",
    ),
    MachineState.BOOTING: (FailReason.NEVER_BOOTED, "it did not run with an address in time"),
    MachineState.BOOTSTRAPPING: (FailReason.UNREACHABLE, "it could not be reached and checked in time"),
}
_MISSED = {
    MachineState.INTENDED: "requesting it from its provider",
    MachineState.LAUNCHING: "looking for it at its provider",
    MachineState.BOOTING: "seeing whether it booted",
    MachineState.BOOTSTRAPPING: "setting it up",
    MachineState.VERIFIED: "admitting its customer",
}
HAVE_DEADLINES = frozenset(_MISSED) - {MachineState.VERIFIED}
"""The states in which a machine has a deadline. In VERIFIED, its claims have one."""


def of_machine(machine: OverdueMachine, now: datetime) -> Decision:
    """What follows for a machine in one of HAVE_DEADLINES. Raises KeyError for other states."""
    intended = machine.state is MachineState.INTENDED
    return _decide(
        machine,
        seen=_not_taken(machine) if intended else MachineFailure(MachineEvent.FAILED, *_SEEN[machine.state]),
        missed=_not_attended(machine.state),
        since=machine.created_at,
        unattended_max=UNATTENDED_MAX_WITHOUT_MACHINE if intended else UNATTENDED_MAX,
        now=now,
    )


def of_claim(claim: OverdueClaim, now: datetime) -> Decision:
    """What follows for a claim whose customer waits, and for its machine unless the claim is on a slot.

    A suspect machine admits nobody and is challenged again soon, so the deadline waits for that, for DOUBT_LASTS.
    """
    seen = MachineFailure(
        MachineEvent.FAILED, FailReason.UNREACHABLE, "its customer could not be admitted in time"
    )
    if claim.suspect_since is not None:
        if now - claim.suspect_since < DOUBT_LASTS:
            return Wait()
        if claim.last_challenged_at is not None and claim.last_challenged_at > claim.suspect_since:
            return GiveUp(_not_cleared())
    return _decide(
        claim,
        seen=seen,
        missed=_not_attended(MachineState.VERIFIED),
        since=claim.claimed_at,
        unattended_max=UNATTENDED_MAX if claim.slot is None else UNATTENDED_MAX_WITHOUT_MACHINE,
        now=now,
    )


def _decide(
    overdue: _Overdue,
    *,
    seen: MachineFailure,
    missed: MachineFailure,
    since: datetime,
    unattended_max: timedelta,
    now: datetime,
) -> Decision:
    late = now - overdue.deadline_at
    if late < timedelta(0):
        return Wait()
    if overdue.attended_until is not None and overdue.attended_until >= overdue.deadline_at:
        return GiveUp(seen)
    if late < LOOKED_AT_WITHIN:
        return Wait()
    if late < 2 * LOOKED_AT_WITHIN and now - since >= unattended_max:
        return GiveUp(missed)
    return Extend()


def _not_taken(machine: OverdueMachine) -> MachineFailure:
    minutes = int(NOT_TAKEN_AFTER.total_seconds() // 60)
    return MachineFailure(
        MachineEvent.NEVER_ASKED,
        FailReason.NOT_TAKEN,
        f"{machine.account} did not accept the order within {minutes} minutes",
        gone_evidence="nothing was bought: every request was put back",
    )


def _not_cleared() -> MachineFailure:
    minutes = int(DOUBT_LASTS.total_seconds() // 60)
    why = f"it failed its GPU proof and was not cleared within {minutes} min, and its customer waits"
    return MachineFailure(MachineEvent.FAILED, FailReason.PROOF_FAILED, why)


def _not_attended(state: MachineState) -> MachineFailure:
    why = f"an outage of ours kept us from {_MISSED[state]}; neither the provider nor the machine is to blame"
    if state is not MachineState.INTENDED:
        return MachineFailure(MachineEvent.FAILED, FailReason.NOT_ATTENDED, why)
    return MachineFailure(
        MachineEvent.NEVER_ASKED,
        FailReason.NOT_ATTENDED,
        why,
        gone_evidence="nothing was bought: it was not requested, or every request was put back",
    )
