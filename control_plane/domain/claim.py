"""A claim is a lease's right to a machine, or to one slot of it, from a moment to a moment.

    claimed ----- the machine is verified, the customer is let in -----> admitted -----> ended
       `------------- the attempt fails, or the lease ends ----------------------------> ended

A lease has at most one open claim, and is billed for the time of one that was admitted. Ending a claim
is the customer's side: it takes effect at once and needs no machine. What becomes of the machine then is
decided on the machine's side (`machine.release`), by a loop that finds ended claims.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure, MachineState, Purpose
from control_plane.domain.progress import Step
from control_plane.domain.proof import at_least, tier


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is written down now."""

    id: ClaimId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    machine_id: MachineId
    slot: int | None
    """Which slot of a node; None for the whole machine."""
    attempt: int
    """The number of the lease's attempt that it serves."""
    tries: int
    """Failed tries to let the customer in."""
    step: Step | None
    """The last step of the claim that was taken; None before the first."""
    claimed_at: datetime
    admitted_at: datetime | None
    ended_at: datetime | None


_CLAIMABLE = {
    Purpose.LEASE: MachineState.INTENDED,
    Purpose.POOL: MachineState.VERIFIED,
    Purpose.NODE: MachineState.VERIFIED,
}
"""The state in which a machine can be claimed: one ordered for a lease together with its order."""


def why_not(
    lease: Lease, machine: Machine, taken: Collection[int | None], slot: int | None, now: datetime
) -> str | None:
    """Why `lease` cannot claim this slot (None: the whole machine) at `now`; None when it can.

    `taken` holds the slots of the machine's claims that are not released yet. A claim that has ended still counts
    until then: a machine of the pool is terminated after its first claim, and must not be claimed before that.
    """
    if (slot is None) is (machine.purpose is Purpose.NODE):
        return "a node is claimed by slots" if slot is None else "only a node has slots"
    return (
        _not_what_was_sold(lease, machine, slot)
        or _not_free(machine, taken, slot)
        or _not_proven(lease, machine, now)
    )


def _not_what_was_sold(lease: Lease, machine: Machine, slot: int | None) -> str | None:
    enough = lease.gpu_count == machine.gpu_count if slot is None else lease.gpu_count <= machine.gpu_count
    if lease.gpu_model is not machine.gpu_model or not enough:
        has, needs = f"{machine.gpu_count} x {machine.gpu_model}", f"{lease.gpu_count} x {lease.gpu_model}"
        return f"the machine has {has}, and the lease is for {needs}"
    if not at_least(machine.proof, lease.proof):
        return f"the machine has to prove {machine.proof}, and {lease.proof} was sold"
    return None


def _not_free(machine: Machine, taken: Collection[int | None], slot: int | None) -> str | None:
    if machine.state is not _CLAIMABLE[machine.purpose]:
        return f"the machine is {machine.state}"
    if slot in taken:
        return "the machine is taken" if slot is None else f"slot {slot} is taken"
    return None


def _not_proven(lease: Lease, machine: Machine, now: datetime) -> str | None:
    """A machine that waited has to be what was sold when it is claimed. One that is ordered has it to prove."""
    if machine.purpose is Purpose.LEASE:
        return None
    if machine.suspect_since is not None:
        return "its GPU proofs speak against the machine"
    shown = tier(machine.record, now)
    return None if at_least(shown, lease.proof) else f"the machine is {shown}, and {lease.proof} was sold"


def billed_until(
    ready_at: datetime, machine: Machine, now: datetime, failure: MachineFailure | None = None
) -> datetime:
    """Until when a lease is billed whose claim on `machine` ends at `now`; never before `ready_at`.

    Without a `failure` the customer used it until now. A machine that was lost is paid for through its last
    sighting, and one that was disproven until its GPU proofs began to speak against it. That counts for every
    ending: a machine that failed its proof and failed it again may be kept running for a while (law 5), and
    nobody pays for that. A single failure takes nothing off a bill.
    """
    if failure is None:
        until = now
    elif failure.event is MachineEvent.DISPROVEN:
        until = failure.failed_since or ready_at
    else:
        until = machine.sighted_at or ready_at
    if machine.suspect_since is not None and machine.record.confirmed:
        until = min(until, machine.suspect_since)
    return max(ready_at, min(now, until))
