"""The status of a lease as its customer reads it: computed from the lease, its claim and its machine, never stored.

Only here are the states of leases and of machines combined. The word for a lease's progress is its state; what else
its customer has to know is a fact beside it: that it waits for stock, or that its machine is unconfirmed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import Lease, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.progress import Step, steps_for
from control_plane.domain.proof import Tier, challenged

CONTACT_LOST_AFTER = timedelta(minutes=5)
"""A ready lease whose machine was not sighted for this long reads as unconfirmed. It does not end (law 5)."""
CONFIRMED_AGAIN_AFTER = timedelta(seconds=5)
"""How often a lease that reads as unconfirmed is looked at again."""


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
    suspect_since: datetime | None
    """When it became suspect because of its GPU proof; None while it is not."""
    address: str | None
    ssh_port: int
    host_key: str | None
    """The SSH host key that the machine was ordered with. A host that presents another key is another machine."""
    mesh_address: str | None
    """Its address in the organization's private network."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """No offer can serve the lease now. It is placed as soon as one can."""

    since: datetime
    gives_up_at: datetime
    """When the lease ends with `no_capacity` if it still waits then."""
    why: str


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """The lease is ready, and it is uncertain whether its machine still is what was sold."""

    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    state: LeaseState
    step: Step | None
    steps_done: int
    steps_total: int
    message: str
    waiting: Waiting | None = None
    unconfirmed: Unconfirmed | None = None


_ORDER = {step: number for number, step in enumerate(Step)}
_AFTER_STEP = {
    Step.PLACED: "Asking the provider for the machine.",
    Step.LAUNCHED: "The provider accepted it; the machine boots.",
    Step.BOOTED: "The machine runs; connecting.",
    Step.CONNECTED: "Connected; reading the GPUs.",
    Step.GPUS_VERIFIED: "The GPUs read as sold; joining your private network.",
    Step.GPUS_PROVEN: "The GPUs are proven; joining your private network.",
    Step.MESH_JOINED: "On your private network; letting you log in.",
    Step.CERTIFICATES_ACCEPTED: "You can log in with a certificate.",
}
"""What happens next after each step."""


def project(lease: Lease, evidence: Evidence | None, now: datetime) -> Status:
    """The status of a lease as its customer reads it at `now`. `evidence` is None before the first attempt."""
    steps = steps_for(lease.proof)
    total = len(steps)
    step = None if evidence is None else evidence.step
    steps_done = 0 if step is None else sum(_ORDER[each] <= _ORDER[step] for each in steps)

    match lease.state:
        case LeaseState.PLACING:
            # The progress of the last attempt no longer counts: the customer waits for a new one.
            waiting = _waiting(lease)
            return Status(lease.state, None, 0, total, _placing(lease.attempts, waiting), waiting)
        case LeaseState.STARTING:
            return Status(lease.state, step, steps_done, total, _starting(step, lease.proof))
        case LeaseState.READY:
            doubt = _unconfirmed(lease, evidence, now)
            message = "Ready." if doubt is None else f"Ready, but unconfirmed: {doubt.why}"
            return Status(lease.state, step, total, total, message, unconfirmed=doubt)
        case LeaseState.ENDING:
            message = "No longer billed; the machine is being terminated."
        case LeaseState.ENDED:
            message = "Ended; the provider confirmed that no machine is left."
    return Status(lease.state, step, steps_done, total, message)


def _waiting(lease: Lease) -> Waiting | None:
    if lease.waiting_since is None:
        return None
    return Waiting(lease.waiting_since, lease.gives_up_at, lease.waiting_why or "No offer can serve it now.")


def _placing(attempts: int, waiting: Waiting | None) -> str:
    failed = "" if attempts == 0 else f"Attempt {attempts} failed; "
    if waiting is not None:
        return f"{failed}{'waiting' if failed else 'Waiting'} for stock: {waiting.why}"
    return f"{failed}choosing another machine." if failed else "Choosing a machine."


def changes_at(lease: Lease, evidence: Evidence | None, now: datetime) -> datetime | None:
    """When the status may change by time alone, without an event; None when it cannot.

    A machine that steady listings confirm changes no row, so a reader has to look again at this time.
    """
    if lease.state is not LeaseState.READY:
        return None
    if evidence is None or evidence.sighted_at is None or _unconfirmed(lease, evidence, now) is not None:
        return now + CONFIRMED_AGAIN_AFTER
    return evidence.sighted_at + CONTACT_LOST_AFTER


def _starting(step: Step | None, demanded: Tier) -> str:
    if step is None:
        return _AFTER_STEP[Step.PLACED]
    if step is Step.GPUS_VERIFIED and challenged(demanded):
        return "The GPUs read as sold; proving them."
    return _AFTER_STEP[step]


def _unconfirmed(lease: Lease, evidence: Evidence | None, now: datetime) -> Unconfirmed | None:
    """The doubt about a ready lease's machine; None when the provider listed it lately and it is not suspect."""
    if evidence is not None and evidence.suspect_since is not None:
        return Unconfirmed(
            evidence.suspect_since, "its GPUs failed their last proof and are challenged again."
        )
    sighted_at = None if evidence is None else evidence.sighted_at
    if sighted_at is not None and now - sighted_at <= CONTACT_LOST_AFTER:
        return None
    since = sighted_at or lease.ready_at or lease.created_at
    return Unconfirmed(since, "the provider has not listed the machine lately.")
