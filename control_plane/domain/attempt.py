"""An attempt is one try to serve a lease with a machine: an entry in the lease's history, with its outcome."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import LeaseId, MachineId


class AttemptOutcome(StrEnum):
    ADMITTED = "admitted"
    """The customer was admitted: the lease became ready."""
    FAILED = "failed"
    """Its machine could not be bought or set up, or is not what was sold. The lease tries another one."""
    ABANDONED = "abandoned"
    """The lease ended while the attempt was under way."""


@dataclass(frozen=True, slots=True)
class Attempt:
    lease_id: LeaseId
    number: int
    """1, 2, 3 ... per lease."""
    machine_id: MachineId
    offer_key: str
    started_at: datetime
    ended_at: datetime | None
    """When its outcome was known; None while it is under way."""
    outcome: AttemptOutcome | None
    fail_reason: FailReason | None
    """Why it failed, or why its machine was lost after the customer had been admitted."""
    fail_why: str | None
