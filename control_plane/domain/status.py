"""The status of a lease as its customer reads it: computed from the lease, its claim and its machine, never stored.

Only here are the states of leases and of machines combined. The word for a lease's progress is its state; what else
its customer has to know is a fact beside it: that it waits for stock, or that its machine is unconfirmed.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from control_plane.domain.downtime import SETTLED_AFTER
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import Lease, LeaseKind, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.node import JoinStep
from control_plane.domain.power import Power, PowerState
from control_plane.domain.progress import Step, steps_for
from control_plane.domain.proof import challenged
from control_plane.domain.waiting import WAITS_FOR_WORDS, WaitsFor

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
    join_step: JoinStep | None = None
    """The last step that it has taken into its cluster; None before the first, and for a machine to log in to."""
    down_since: datetime | None = None
    """Since when its provider lists it as failed or stopped, though nobody asked for that; None while it does not."""
    provider_state: str | None = None
    """The provider's own word for its state."""
    back_since: datetime | None = None
    """Since when it no longer does, if that has to last for a while before it counts; None otherwise."""

    waits_for: WaitsFor | None = None
    """What of ours the machine waits for before its customer is admitted; None while it waits for nothing."""
    waits_since: datetime | None = None

    @property
    def last_step(self) -> Step | JoinStep:
        return self.join_step or self.step


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
    step: Step | JoinStep | None
    steps_done: int
    steps_total: int
    message: str
    waiting: Waiting | None = None
    unconfirmed: Unconfirmed | None = None


_ORDER: dict[Step | JoinStep, int] = {step: number for number, step in enumerate((*Step, *JoinStep))}
_AFTER_STEP: dict[Step | JoinStep, str] = {
    Step.PLACED: "Asking the provider for the machine.",
    Step.LAUNCHED: "The provider accepted it; the machine boots.",
    Step.BOOTED: "The machine runs; connecting.",
    Step.CONNECTED: "Connected; reading the GPUs.",
    Step.GPUS_VERIFIED: "The GPUs read as sold; joining your private network.",
    Step.GPUS_PROVEN: "The GPUs are proven; joining your private network.",
    Step.MESH_JOINED: "On your private network; letting you log in.",
    Step.CERTIFICATES_ACCEPTED: "You can log in with a certificate.",
    JoinStep.PREPARED: "K3s is on the machine; setting up its tunnels.",
    JoinStep.TUNNELLED: "Its tunnels work; starting K3s.",
    JoinStep.STARTED: "K3s runs; registering in the cluster.",
    JoinStep.REGISTERED: "Registered in the cluster, and closed to pods; comparing its capacity with what was sold.",
    JoinStep.MEASURED: "Its capacity is what was sold; waiting until it is healthy.",
    JoinStep.HEALTHY: "Healthy in the cluster; waiting until its node pool can open it.",
    JoinStep.OPENED: "Open for pods.",
}
"""What happens next after each step."""
_JOINS: dict[Step | JoinStep, str] = {
    Step.GPUS_VERIFIED: "The GPUs read as sold; preparing the machine for its cluster.",
    Step.GPUS_PROVEN: "The GPUs are proven; preparing the machine for its cluster.",
}
"""The same for a node."""
_CONNECTED_WITHOUT_GPUS = {
    LeaseKind.MACHINE: "Connected; it has no GPUs to read. Joining your private network.",
    LeaseKind.NODE: "Connected; it has no GPUs to read. Preparing the machine for its cluster.",
}


_WITH_POWER = {
    PowerState.ON: "Ready.",
    PowerState.REBOOTING: "Ready; its machine is being rebooted.",
    PowerState.STOPPING: "Ready; its machine is being stopped.",
    PowerState.OFF: "Ready; its machine is stopped, and charged at its price while stopped.",
    PowerState.STARTING: "Ready; its machine is being started.",
}


def project(lease: Lease, evidence: Evidence | None, now: datetime, power: Power | None = None) -> Status:
    """The status of a lease as its customer reads it at `now`. `evidence` is None before the first attempt, and `power`
    while nobody asked for a change of it.
    """
    steps = steps_for(lease.proof, lease.gpu_count, lease.kind)
    total = len(steps)
    step = None if evidence is None else evidence.last_step
    steps_done = 0 if step is None else sum(_ORDER[each] <= _ORDER[step] for each in steps)

    match lease.state:
        case LeaseState.PLACING:
            # The progress of the last attempt no longer counts: the customer waits for a new one.
            waiting = _waiting(lease)
            return Status(lease.state, None, 0, total, _placing(lease, waiting), waiting)
        case LeaseState.STARTING:
            replaced = "" if lease.replaced_since is None else _REPLACED
            message = replaced + _starting(step, lease) + _held_up(evidence)
            return Status(lease.state, step, steps_done, total, message)
        case LeaseState.READY:
            doubt = _unconfirmed(lease, evidence, now)
            ready = "Ready." if power is None else _WITH_POWER[power.state]
            message = ready if doubt is None else f"Ready, but unconfirmed: {doubt.why}"
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


_REPLACED = "Its machine was taken back or taken away, and nothing is billed until it has another one. "


def _placing(lease: Lease, waiting: Waiting | None) -> str:
    if lease.replaced_since is not None:
        return _REPLACED + ("Choosing one." if waiting is None else f"Waiting for stock: {waiting.why}")
    failed = "" if lease.attempts == 0 else f"Attempt {lease.attempts} failed; "
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


def _starting(step: Step | JoinStep | None, lease: Lease) -> str:
    if step is None:
        return _AFTER_STEP[Step.PLACED]
    if step is Step.GPUS_VERIFIED and challenged(lease.proof):
        return "The GPUs read as sold; proving them."
    if step is Step.CONNECTED and lease.gpu_count == 0:
        return _CONNECTED_WITHOUT_GPUS[lease.kind]
    if lease.kind is LeaseKind.NODE and step in _JOINS:
        return _JOINS[step]
    return _AFTER_STEP[step]


def _held_up(evidence: Evidence | None) -> str:
    """What of ours a machine waits for, after the sentence on its progress; empty when it waits for nothing."""
    if evidence is None or evidence.waits_for is None or evidence.waits_since is None:
        return ""
    since = f"{evidence.waits_since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f" It waits since {since} for {WAITS_FOR_WORDS[evidence.waits_for]}. Nothing is billed meanwhile."


def _unconfirmed(lease: Lease, evidence: Evidence | None, now: datetime) -> Unconfirmed | None:
    """The doubt about a ready lease's machine; None when the provider listed it lately, and it is neither down nor
    suspect.
    """
    if evidence is not None and evidence.down_since is not None and evidence.back_since is not None:
        minutes = int(SETTLED_AFTER.total_seconds()) // 60
        return Unconfirmed(
            evidence.down_since,
            f"its provider lists it as {evidence.provider_state!r} again, and has changed its word before. Its meter"
            f" stands still until that has lasted {minutes} minutes, and then counts from when it began.",
        )
    if evidence is not None and evidence.down_since is not None:
        return Unconfirmed(
            evidence.down_since,
            f"its provider lists it as {evidence.provider_state!r}. Its meter stands still until that changes.",
        )
    if evidence is not None and evidence.suspect_since is not None:
        return Unconfirmed(
            evidence.suspect_since, "its GPUs failed their last proof and are challenged again."
        )
    sighted_at = None if evidence is None else evidence.sighted_at
    if sighted_at is not None and now - sighted_at <= CONTACT_LOST_AFTER:
        return None
    since = sighted_at or lease.ready_at or lease.created_at
    return Unconfirmed(since, "the provider has not listed the machine lately.")
