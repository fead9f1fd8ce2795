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
from control_plane.domain.machine import Machine, MachineState, Purpose
from control_plane.domain.progress import Step


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


def why_not(machine: Machine, taken: Collection[int | None], slot: int | None) -> str | None:
    """Why this slot (None: the whole machine) cannot be claimed now; None when it can.

    `taken` holds the slots of the machine's open claims.
    """
    if machine.purpose is Purpose.NODE:
        if slot is None:
            return "a node is claimed by slots"
        if machine.state is not MachineState.VERIFIED:
            return f"the node is {machine.state}"
        return f"slot {slot} is taken" if slot in taken else None
    if slot is not None:
        return "only a node has slots"
    if taken:
        return "the machine is taken"
    wanted = {Purpose.LEASE: MachineState.INTENDED, Purpose.POOL: MachineState.VERIFIED}
    if machine.state is not wanted[machine.purpose]:
        return f"the machine is {machine.state}"
    return None
