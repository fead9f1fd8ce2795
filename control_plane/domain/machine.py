"""The state machine of a provider's machine, from the intent to order it to the evidence of its end.

    INTENDED --asked--> LAUNCHING --accepted/found--> BOOTING --reachable--> BOOTSTRAPPING --verified--> VERIFIED
       |  ^----put back----|                             |                        |                        |
       |               rejected                          `--- failed / vanished --+-------- released, disproven
       |                   |                                   |
       v                   v                                   v
      GONE                GONE  <----------- gone -------- TERMINATING

A machine is one order at one provider. It does not refer to a lease; leases hold claims on it (`claim.py`): none
while it waits in a pool, one when it was ordered for a lease, many when it is a node of a cluster.

A row is committed as LAUNCHING *before* the call that costs money. From then on only the provider can
close it: by a definite refusal of the launch, or by evidence that no machine is there. When the answer is
lost, the row stays in LAUNCHING, and the inventory is searched for its launch key.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.block import BlockScope
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LaunchKey, LeaseId, MachineId, PoolId, ProviderRef
from control_plane.domain.money import Nano
from control_plane.domain.outage import Cause
from control_plane.domain.power_action import PowerAction
from control_plane.domain.progress import Step
from control_plane.domain.proof import Record, Tier, challenged
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table

ERASED_WITHIN = timedelta(minutes=2)
"""How long a machine is kept after its claim to prove that its GPU memory is overwritten."""


class Purpose(StrEnum):
    """What a machine was ordered for."""

    LEASE = "lease"
    """One lease. It is terminated when that lease's claim ends."""
    POOL = "pool"
    """Kept ready ahead of demand. It is terminated after its first claim, like one ordered for a lease."""
    NODE = "node"
    """A node of a cluster: claims take slots of it, and it stays when they end."""


class MachineState(StrEnum):
    INTENDED = "intended"
    """Chosen and stored. Nothing has been requested from the provider."""
    LAUNCHING = "launching"
    """The launch has been or is being requested; there may be a machine."""
    BOOTING = "booting"
    """The provider accepted it; we know its reference."""
    BOOTSTRAPPING = "bootstrapping"
    """It runs and has an address; we connect and check it."""
    VERIFIED = "verified"
    """It is what was ordered, and reachable."""
    TERMINATING = "terminating"
    """It has to be terminated. An open liability until the provider confirms that it is gone."""
    GONE = "gone"


class MachineEvent(StrEnum):
    ASKED = "asked"
    REJECTED = "rejected"
    """The provider definitely refused the launch."""
    PUT_BACK = "put_back"
    """The request never left us, or the provider was too busy to take it: nothing was bought."""
    ACCEPTED = "accepted"
    """The provider answered with a reference."""
    FOUND = "found"
    """The answer was lost, and the inventory shows the launch key."""
    REACHABLE = "reachable"
    VERIFIED = "verified"
    FAILED = "failed"
    """It never booted, never answered, is not what was ordered, or its customer could not be admitted."""
    VANISHED = "vanished"
    """The provider's complete lists no longer show it."""
    DISPROVEN = "disproven"
    """It failed its GPU proof twice in a row after it was verified."""
    RELEASED = "released"
    """No claim on it is left."""
    CONFIRMED_GONE = "confirmed_gone"
    """The provider says so explicitly, or complete lists miss it twice."""
    NEVER_ASKED = "never_asked"
    """It was dropped before anything was requested from the provider."""


_S = MachineState
_E = MachineEvent

NEXT: dict[tuple[MachineState, MachineEvent], MachineState] = {
    (_S.INTENDED, _E.ASKED): _S.LAUNCHING,
    (_S.INTENDED, _E.NEVER_ASKED): _S.GONE,
    (_S.LAUNCHING, _E.REJECTED): _S.GONE,
    (_S.LAUNCHING, _E.PUT_BACK): _S.INTENDED,
    (_S.LAUNCHING, _E.ACCEPTED): _S.BOOTING,
    (_S.LAUNCHING, _E.FOUND): _S.BOOTING,
    (_S.LAUNCHING, _E.FAILED): _S.TERMINATING,  # The answer never came; the search for the machine continues.
    (_S.LAUNCHING, _E.RELEASED): _S.TERMINATING,
    (_S.BOOTING, _E.REACHABLE): _S.BOOTSTRAPPING,
    (_S.BOOTING, _E.FAILED): _S.TERMINATING,
    (_S.BOOTING, _E.VANISHED): _S.TERMINATING,
    (_S.BOOTING, _E.RELEASED): _S.TERMINATING,
    (_S.BOOTSTRAPPING, _E.VERIFIED): _S.VERIFIED,
    (_S.BOOTSTRAPPING, _E.FAILED): _S.TERMINATING,
    (_S.BOOTSTRAPPING, _E.VANISHED): _S.TERMINATING,
    (_S.BOOTSTRAPPING, _E.RELEASED): _S.TERMINATING,
    (_S.VERIFIED, _E.FAILED): _S.TERMINATING,  # Its customer could not be admitted.
    (_S.VERIFIED, _E.VANISHED): _S.TERMINATING,
    (_S.VERIFIED, _E.DISPROVEN): _S.TERMINATING,
    (_S.VERIFIED, _E.RELEASED): _S.TERMINATING,
    (_S.TERMINATING, _E.CONFIRMED_GONE): _S.GONE,
    (_S.TERMINATING, _E.REJECTED): _S.GONE,  # The refusal arrived after we had given it up.
}

MAY_EXIST = frozenset({_S.LAUNCHING, _S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED, _S.TERMINATING})
"""States in which the provider may be charging us."""
WANTED = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED})
SHOULD_BE_SIGHTED = frozenset({_S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED})
"""States in which a complete list should show the machine."""
TERMINAL = frozenset({_S.GONE})
PROVIDER_CONFIRMS = frozenset({_E.REJECTED, _E.CONFIRMED_GONE})
"""The only events that may close the row of a machine that may exist."""


def step(
    state: MachineState, event: MachineEvent
) -> Moved[MachineState, MachineEvent] | Ignored[MachineState, MachineEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as it is stored now."""

    id: MachineId
    purpose: Purpose
    account: AccountName
    provider: str
    region: str
    native_region: str
    native_type: str
    offer_key: str
    spot: bool
    """Whether its provider may take it back."""
    cost_nano_per_hour_max: Nano | None
    """The most that an hour of a spot machine may cost us."""
    gpu_model: GpuModel | None
    gpu_count: int
    proof: Tier
    """What it has to prove before it counts as verified."""
    launch_key: LaunchKey
    state: MachineState
    generation: int
    tries: int
    """Failed tries of the step in progress."""
    host_key: str | None
    provider_ref: ProviderRef | None
    address: str | None
    ssh_port: int
    asked_at: datetime | None
    deadline_at: datetime | None
    """By when the step in progress has to be done; None before the first order that has one."""
    sighted_at: datetime | None
    """When the provider last listed it; while it is down, when that was before."""
    missed_since: datetime | None
    missed_lists: int
    step: Step
    fail_reason: FailReason | None
    fail_why: str | None
    provider_state: str | None
    """The provider's own word for its state, on the last list that showed it."""
    down_since: datetime | None
    """When the first list was asked for that shows it as failed, stopped or ending, though nobody asked for that; None
    while none does (`downtime.py`)."""
    down_cause: Cause | None
    """Whose doing that is, by all lists since then (`outage.py`)."""
    back_since: datetime | None
    """Since when lists show it as running again, or as stopped when it is off, while it is down; None while they do
    not."""
    back_at: datetime | None
    """When lists last showed that after it was down, whether its downtime ended then or not."""
    suspect_since: datetime | None
    """When it became suspect because of its GPU proof; None while it is not."""
    erasing_until: datetime | None
    """How long its termination waits for the proof that its GPU memory is overwritten."""
    passes: int
    first_passed_at: datetime | None
    last_passed_at: datetime | None
    attested: bool
    failed: int
    unanswered: int
    last_challenged_at: datetime | None
    eviction_announced_at: datetime | None
    """When its provider announced that it takes it back."""
    eviction_withdrawn_at: datetime | None
    """When that notice counted as withdrawn; None while it stands, and before there was one."""
    pool_id: PoolId | None
    """The pool that it was ordered for; None for every other machine."""
    reserved_for: LeaseId | None
    """The only lease that may claim it, for a machine that is kept ready to replace that lease's; None otherwise."""
    verified_at: datetime | None
    """When it was found to be what was ordered; None before."""

    @property
    def record(self) -> Record:
        """The summary of its GPU proofs."""
        return Record(
            passes=self.passes,
            first_passed_at=self.first_passed_at,
            last_passed_at=self.last_passed_at,
            attested=self.attested,
            failed=self.failed,
            unanswered=self.unanswered,
            last_at=self.last_challenged_at,
        )


@dataclass(frozen=True, slots=True)
class MachineMove:
    """One move of one machine, with the facts that are stored with it. None leaves a column as it is."""

    id: MachineId
    seen: int
    """The generation that the decision was based on."""
    moved: Moved[MachineState, MachineEvent]
    why: str | None = None
    """Our own sentence, which customers read."""
    provider_words: str | None = None
    """Why it failed in the provider's own words, which only operators read."""
    host_key: str | None = None
    asked_at: datetime | None = None
    deadline_at: datetime | None = None
    provider_ref: ProviderRef | None = None
    address: str | None = None
    ssh_port: int | None = None
    step: Step | None = None
    fail_reason: FailReason | None = None
    gone_evidence: str | None = None
    due_at: datetime | None = None
    proof_due_at: datetime | None = None
    erasing_until: datetime | None = None


def release(machine: Machine, *, admitted: bool, why: str, now: datetime) -> MachineMove | None:
    """The move of a machine whose claim has ended; None when it stays, or is being terminated already.

    `admitted` says whether a customer was admitted to it. If so, a machine that had to prove its GPUs is kept for
    up to ERASED_WITHIN, to prove that their memory is overwritten.
    """
    if machine.purpose is Purpose.NODE:
        return None
    dropped = step(machine.state, MachineEvent.NEVER_ASKED)
    if isinstance(dropped, Moved):
        asked = machine.asked_at is not None
        evidence = "every request was put back" if asked else "nothing was asked of the provider"
        return MachineMove(machine.id, machine.generation, dropped, why=why, gone_evidence=evidence)
    released = step(machine.state, MachineEvent.RELEASED)
    if not isinstance(released, Moved):
        return None
    erases = admitted and challenged(machine.proof)
    until = now + ERASED_WITHIN if erases else None
    return MachineMove(machine.id, machine.generation, released, why=why, erasing_until=until)


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """What is stored of a machine before it is requested from its provider."""

    id: MachineId
    purpose: Purpose
    account: AccountName
    provider: str
    region: str
    native_region: str
    native_type: str
    offer_key: str
    cost_nano_per_hour: Nano
    gpu_model: GpuModel | None
    gpu_count: int
    vcpus: int
    """As its offer said when it was bought; providers correct their offers later."""
    memory_gib: int
    proof: Tier
    launch_key: LaunchKey
    stopped_cost_nano_per_hour: Nano | None = None
    """What it costs us while it is stopped; None when it is the same."""
    increment_seconds: int = 1
    """What its provider rounds the time of each run up to."""
    minimum_seconds: int = 0
    """What its provider bills of each run at least."""
    billed_while_booting: bool = True
    """Whether its provider bills it from its order on, or from when it runs."""
    power: tuple[PowerAction, ...] = ()
    """What can be done with its power. Its offer may be gone long before it."""
    spot: bool = False
    """Whether its provider may take it back."""
    cost_nano_per_hour_max: Nano | None = None
    """The most that an hour of a spot machine may cost us."""
    pool_id: PoolId | None = None
    """The pool that it is ordered for. A machine whose purpose is POOL has this or `reserved_for`."""
    reserved_for: LeaseId | None = None
    """The only lease that may claim it."""


@dataclass(frozen=True, slots=True)
class MachineFailure:
    """Why a machine has to be terminated, whatever its claims."""

    event: MachineEvent
    reason: FailReason
    why: str
    """Our own sentence, which customers read."""
    provider_words: str | None = None
    """What the provider or the machine said, as it said it. Only operators read it."""
    gone_evidence: str | None = None
    """Only for events that close the row."""
    failed_since: datetime | None = None
    """When a machine that failed its GPU proof became suspect, or the kubelet of one that was a node became silent.
    The time after that is not billed."""
    scope: BlockScope | None = None
    """What the provider's refusal covers, where its answer says so."""
    overdue: bool = False
    """Whether its provider has called it failed or stopped for so long that its customer keeps it no longer."""
    blocked: bool = False
    """Whether it was the order of another machine that was refused, whose block stands already."""
