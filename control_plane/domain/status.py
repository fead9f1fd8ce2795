"""What a customer reads: computed from lease, machine and evidence, never stored.

The only place where the two machines meet. Every arm says why it reads as it does.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.progress import Step
from control_plane.domain.proof import Tier, challenged

CONTACT_LOST_AFTER = timedelta(minutes=5)
"""Without a sighting for longer, a ready lease is shown as unconfirmed. It is not ended (law 5)."""


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
    """What is known of the lease's latest machine."""

    machine_id: MachineId
    provider: str
    region: str
    state: MachineState
    step: Step | None
    sighted_at: datetime | None
    """When the provider last listed it."""
    address: str | None
    ssh_port: int
    host_key: str | None
    """The SSH host key the machine was ordered with; another one is another machine."""
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
_NEXT_STEP = {
    None: "Choosing a machine.",
    Step.PLACED: "Asking the provider for the machine.",
    Step.LAUNCHED: "The provider accepted it; the machine boots.",
    Step.BOOTED: "The machine runs; connecting.",
    Step.CONNECTED: "Connected; joining your private network.",
    Step.MESH_JOINED: "On your private network; reading the GPUs.",
    Step.GPUS_VERIFIED: "The GPUs read as sold; installing your SSH keys.",
    Step.GPUS_PROVEN: "The GPUs are proven; installing your SSH keys.",
    Step.KEYS_INSTALLED: "Your SSH keys are installed.",
}


def project(
    lease: LeaseState, evidence: Evidence | None, *, demanded: Tier, attempts: int, now: datetime
) -> Status:
    """The status of a lease as its customer reads it at `now`."""
    steps = _steps(demanded)
    total = len(steps)
    step = evidence.step if evidence is not None else None
    steps_done = sum(_ORDER[one] <= _ORDER[step] for one in steps) if step is not None else 0

    def status(phase: Phase, message: str, *, done: int = steps_done, at: Step | None = step) -> Status:
        return Status(phase, at, done, total, message)

    match lease:
        case LeaseState.PLACING:
            # The last attempt's progress is history: the customer waits for a new one.
            waiting = (
                "Choosing a machine."
                if attempts == 0
                else f"Attempt {attempts} failed; choosing another machine."
            )
            return status(Phase.PENDING, waiting, done=0, at=None)
        case LeaseState.STARTING:
            if evidence is not None and evidence.state is MachineState.LAUNCHING and step is Step.PLACED:
                return status(Phase.STARTING, "Asking the provider for the machine.")
            if step is Step.GPUS_VERIFIED and challenged(demanded):
                return status(Phase.STARTING, "The GPUs read as sold; proving them.")
            return status(Phase.STARTING, _NEXT_STEP[step])
        case LeaseState.READY:
            if (
                evidence is None
                or evidence.sighted_at is None
                or now - evidence.sighted_at > CONTACT_LOST_AFTER
            ):
                return status(Phase.UNCONFIRMED, "Ready; the provider has not confirmed the machine lately.")
            return status(Phase.READY, "Ready.", done=total)
        case LeaseState.ENDING:
            # Billing has stopped; the machine is ours to chase.
            return status(Phase.ENDING, "No longer billed; the machine is being ended.")
        case LeaseState.ENDED:
            return status(Phase.ENDED, "Ended; the provider confirmed that no machine is left.")


def _steps(demanded: Tier) -> tuple[Step, ...]:
    """Those that a machine of this tier takes, in their order."""
    return tuple(step for step in Step if step is not Step.GPUS_PROVEN or challenged(demanded))
