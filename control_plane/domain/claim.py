"""A claim is a lease's right to a machine, or to one slot of it, for a period of time.

    claimed ----- the machine is verified and accepts certificates ----> admitted -----> ended
       `------------- the attempt fails, or the lease ends ---------------------------> ended

A lease has at most one open claim, and is billed from its admission to its end. A claim ends at once, without
contact to the machine. What happens to the machine is decided afterwards, by a loop that finds ended claims and
asks `machine.release`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure, MachineState, Purpose
from control_plane.domain.metering import Bound, listed_bound
from control_plane.domain.progress import Step
from control_plane.domain.proof import at_least, tier
from control_plane.domain.sku import gpus_in_words


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is stored now."""

    id: ClaimId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    machine_id: MachineId
    slot: int | None
    """Which slot of a node; None for the whole machine."""
    attempt: int
    """The number of the lease's attempt that the claim belongs to."""
    tries: int
    """Failed tries to admit the customer."""
    step: Step | None
    """The last step of the claim that was completed; None before the first."""
    claimed_at: datetime
    admitted_at: datetime | None
    ended_at: datetime | None


_CLAIMABLE = {
    Purpose.LEASE: MachineState.INTENDED,
    Purpose.POOL: MachineState.VERIFIED,
    Purpose.NODE: MachineState.VERIFIED,
}
"""The state in which a machine can be claimed. One ordered for a lease is claimed together with its order."""


def why_not(
    lease: Lease, machine: Machine, taken: Collection[int | None], slot: int | None, now: datetime
) -> str | None:
    """Why `lease` cannot claim this slot (None: the whole machine) at `now`; None when it can.

    `taken` holds the slots of the machine's claims that are not released yet. A claim that has ended counts until it
    is released: a machine of the pool is terminated after its first claim, and must not be claimed a second time.
    """
    if (slot is None) is (machine.purpose is Purpose.NODE):
        return "a node is claimed by slots" if slot is None else "only a node has slots"
    return (
        _not_what_was_sold(lease, machine, slot)
        or _not_free(lease, machine, taken, slot)
        or _not_proven(lease, machine, now)
    )


def _not_what_was_sold(lease: Lease, machine: Machine, slot: int | None) -> str | None:
    enough = lease.gpu_count == machine.gpu_count if slot is None else lease.gpu_count <= machine.gpu_count
    if lease.gpu_model is not machine.gpu_model or not enough:
        has = gpus_in_words(machine.gpu_model, machine.gpu_count)
        needs = gpus_in_words(lease.gpu_model, lease.gpu_count)
        return f"the machine has {has}, and the lease is for {needs}"
    if lease.gpu_model is None and machine.purpose is not Purpose.LEASE and machine.reserved_for is None:
        # Its size is all that it sells, and a lease does not know it.
        return "a machine without GPUs is claimed only by the lease that it was ordered for"
    if not at_least(machine.proof, lease.proof):
        return f"the machine has to prove {machine.proof}, and {lease.proof} was sold"
    return None


def _not_free(lease: Lease, machine: Machine, taken: Collection[int | None], slot: int | None) -> str | None:
    if machine.state is not _CLAIMABLE[machine.purpose]:
        return f"the machine is {machine.state}"
    if slot in taken:
        return "the machine is taken" if slot is None else f"slot {slot} is taken"
    if machine.reserved_for not in (None, lease.id):
        return "the machine is reserved for another lease"
    return not_at_hand(machine) if machine.purpose is Purpose.POOL else None


def not_at_hand(machine: Machine) -> str | None:
    """Why a machine that waited may not be there any more, as far as its provider says."""
    if machine.missed_since is not None:
        return "the machine is missing from its provider's list"
    if machine.down_since is not None:
        return f"its provider calls the machine {machine.provider_state or 'down'}"
    if machine.eviction_announced_at is not None and machine.eviction_withdrawn_at is None:
        return "its provider announced that it takes the machine back"
    return None


def _not_proven(lease: Lease, machine: Machine, now: datetime) -> str | None:
    """A machine of a pool or cluster has to be proven before it is claimed; one ordered for the lease, afterwards."""
    if machine.purpose is Purpose.LEASE:
        return None
    if machine.suspect_since is not None:
        return "the machine is suspect because of its GPU proof"
    reached = tier(machine.record, now)
    return None if at_least(reached, lease.proof) else f"the machine is {reached}, and {lease.proof} was sold"


def use_ended_at(
    ready_at: datetime,
    machine: Machine,
    now: datetime,
    failure: MachineFailure | None = None,
    *,
    release_at: datetime | None = None,
) -> datetime:
    """How long the customer had what was sold, when their claim on `machine` ends at `now`; never before `ready_at`.

    Billing stops then, or earlier (`metering.ending`): when the money that was set aside is used up, or, for a release,
    at `release_bound`.

    Without a `failure`, the customer used the machine until now, or until it was down. A lost machine is billed through
    its last sighting, one that was a node no longer than its kubelet reported, and a disproven one until it became
    suspect. The latter holds however the claim ends: a machine whose failure another challenge confirmed may be kept
    running for a while (law 5), and that time is not billed. A single failure shortens no bill. Nothing is billed
    after `release_at`, when the lease was to be released.
    """
    if failure is None and machine.down_since is None:
        until = now
    elif failure is None:
        until = min(now, machine.sighted_at or ready_at)
    elif failure.event is MachineEvent.DISPROVEN:
        until = failure.failed_since or ready_at
    else:
        until = machine.sighted_at or ready_at
        if failure.failed_since is not None:
            until = min(until, failure.failed_since)
    if machine.suspect_since is not None and machine.record.confirmed:
        until = min(until, machine.suspect_since)
    if release_at is not None:
        until = min(until, release_at)
    return max(ready_at, min(now, until))


def release_bound(ready_at: datetime, machine: Machine) -> Bound:
    """Until when a customer who lets go is billed at most: the machine has to have been listed lately (law 6)."""
    # The customer was admitted at `ready_at`, which is evidence too.
    return listed_bound(max(ready_at, machine.sighted_at or ready_at))
