"""The status of a lease as its customer reads it: computed from the lease, its claim and its machine, never stored.

Only here are the states of leases and of machines combined.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.progress import Step, steps_for
from control_plane.domain.proof import Tier, challenged

CONTACT_LOST_AFTER = timedelta(minutes=5)
"""A ready lease whose machine was not sighted for this long reads as unconfirmed. It does not end (law 5)."""


class Phase(StrEnum):
    PENDING = "pending"
    """Waiting for a machine to be chosen."""
    STARTING = "starting"
    READY = "ready"
    UNCONFIRMED = "unconfirmed"
    """Ready, but the provider has not confirmed the machine lately."""
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about the machine of the lease's latest attempt."""

    machine_id: MachineId
    provider: str
    region: str
    state: MachineState
    step: Step
    """The last completed step: of the claim if it has begun, of the machine otherwise."""
    sighted_at: datetime | None
    """When the provider last listed it."""
    address: str | None
    ssh_port: int
    host_key: str | None
    """The SSH host key that the machine was ordered with. A host that presents another key is another machine."""
    mesh_address: str | None
    """Its address in the organization's private network."""


@dataclass(frozen=True, slots=True)
class Status:
    phase: Phase
    step: Step | None
    steps_done: int
    steps_total: int
    message: str


_ORDER = {step: number for number, step in enumerate(Step)}
_AFTER_STEP = {
    Step.PLACED: "Asking the provider for the machine.",
    Step.LAUNCHED: "The provider accepted it; the machine boots.",
    Step.BOOTED: "The machine runs; connecting.",
    Step.CONNECTED: "Connected; reading the GPUs.",
    Step.GPUS_VERIFIED: "The GPUs read as sold; joining your private network.",
    Step.GPUS_PROVEN: "The GPUs are proven; joining your private network.",
    Step.MESH_JOINED: "On your private network; installing your SSH keys.",
    Step.KEYS_INSTALLED: "Your SSH keys are installed.",
}
"""What happens next after each step."""


def project(
    lease: LeaseState, evidence: Evidence | None, *, demanded: Tier, attempts: int, now: datetime
) -> Status:
    """The status of a lease as its customer reads it at `now`. `evidence` is None before the first attempt."""
    steps = steps_for(demanded)
    total = len(steps)
    step = None if evidence is None else evidence.step
    steps_done = 0 if step is None else sum(_ORDER[each] <= _ORDER[step] for each in steps)

    def status(phase: Phase, message: str, *, done: int = steps_done, at: Step | None = step) -> Status:
        return Status(phase, at, done, total, message)

    match lease:
        case LeaseState.PLACING:
            # The progress of the last attempt no longer counts: the customer waits for a new one.
            return status(Phase.PENDING, _waiting(attempts), done=0, at=None)
        case LeaseState.STARTING:
            return status(Phase.STARTING, _starting(step, demanded))
        case LeaseState.READY if _confirmed(evidence, now):
            return status(Phase.READY, "Ready.", done=total)
        case LeaseState.READY:
            return status(Phase.UNCONFIRMED, "Ready; the provider has not confirmed the machine lately.")
        case LeaseState.ENDING:
            return status(Phase.ENDING, "No longer billed; the machine is being terminated.")
        case LeaseState.ENDED:
            return status(Phase.ENDED, "Ended; the provider confirmed that no machine is left.")


def _waiting(attempts: int) -> str:
    if attempts == 0:
        return "Choosing a machine."
    return f"Attempt {attempts} failed; choosing another machine."


def _starting(step: Step | None, demanded: Tier) -> str:
    if step is None:
        return _AFTER_STEP[Step.PLACED]
    if step is Step.GPUS_VERIFIED and challenged(demanded):
        return "The GPUs read as sold; proving them."
    return _AFTER_STEP[step]


def _confirmed(evidence: Evidence | None, now: datetime) -> bool:
    """Whether the provider listed the machine lately."""
    if evidence is None or evidence.sighted_at is None:
        return False
    return now - evidence.sighted_at <= CONTACT_LOST_AFTER
