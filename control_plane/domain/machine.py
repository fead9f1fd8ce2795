"""The machine machine: one attempt to hold one provider machine, from the intent to the proof of its end.

    INTENDED --asked--> LAUNCHING --accepted/found--> BOOTING --reachable--> BOOTSTRAPPING --verified--> VERIFIED
       |  ^----put back----|                             |                        |                        |
       |               rejected                          `--- failed / vanished --+--- end wanted,
       |                   |                                   |                       disproven ----------'
       v                   v                                           v
      GONE                GONE  <----------- gone ----------------- ENDING

A row is committed as LAUNCHING *before* the call that costs money. From then on only the provider
can close it: by a definite no to the launch, or by evidence that no machine is there. An answer
that was lost leaves the row in LAUNCHING, and the inventory is searched for its launch key.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.ids import AccountName, MachineId, LaunchKey, LeaseId, OrganizationId, ProviderRef
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class MachineState(StrEnum):
    INTENDED = "intended"
    """Chosen and written down. Nothing was asked of the provider."""
    LAUNCHING = "launching"
    """The launch was or is being asked for; there may be a machine."""
    BOOTING = "booting"
    """The provider accepted it; we know its reference."""
    BOOTSTRAPPING = "bootstrapping"
    """It runs and has an address; we set it up and check it."""
    VERIFIED = "verified"
    """It is what was sold, and reachable."""
    ENDING = "ending"
    """It has to go. An open liability until the provider confirms."""
    GONE = "gone"


class MachineEvent(StrEnum):
    ASKED = "asked"
    REJECTED = "rejected"
    """The provider's definite no to the launch."""
    PUT_BACK = "put_back"
    """The request never left us, or the provider was too busy to take it: nothing was bought."""
    ACCEPTED = "accepted"
    """The provider answered with a reference."""
    FOUND = "found"
    """The answer was lost, and the inventory shows the launch key."""
    REACHABLE = "reachable"
    VERIFIED = "verified"
    FAILED = "failed"
    """Never booted, never answered, or not what was sold."""
    VANISHED = "vanished"
    """The provider's complete lists no longer show it."""
    DISPROVEN = "disproven"
    """It failed its GPU proof twice in a row while a customer had it."""
    END_WANTED = "end_wanted"
    """The lease no longer wants it."""
    CONFIRMED_GONE = "confirmed_gone"
    """The provider says so explicitly, or complete lists miss it twice."""
    NEVER_ASKED = "never_asked"
    """It was dropped before anything was asked of the provider."""


_S = MachineState
_E = MachineEvent

NEXT: dict[tuple[MachineState, MachineEvent], MachineState] = {
    (_S.INTENDED, _E.ASKED): _S.LAUNCHING,
    (_S.INTENDED, _E.NEVER_ASKED): _S.GONE,
    (_S.LAUNCHING, _E.REJECTED): _S.GONE,
    (_S.LAUNCHING, _E.PUT_BACK): _S.INTENDED,
    (_S.LAUNCHING, _E.ACCEPTED): _S.BOOTING,
    (_S.LAUNCHING, _E.FOUND): _S.BOOTING,
    (_S.LAUNCHING, _E.FAILED): _S.ENDING,  # The answer never came: keep looking for it while ending.
    (_S.LAUNCHING, _E.END_WANTED): _S.ENDING,
    (_S.BOOTING, _E.REACHABLE): _S.BOOTSTRAPPING,
    (_S.BOOTING, _E.FAILED): _S.ENDING,
    (_S.BOOTING, _E.VANISHED): _S.ENDING,
    (_S.BOOTING, _E.END_WANTED): _S.ENDING,
    (_S.BOOTSTRAPPING, _E.VERIFIED): _S.VERIFIED,
    (_S.BOOTSTRAPPING, _E.FAILED): _S.ENDING,
    (_S.BOOTSTRAPPING, _E.VANISHED): _S.ENDING,
    (_S.BOOTSTRAPPING, _E.END_WANTED): _S.ENDING,
    (_S.VERIFIED, _E.VANISHED): _S.ENDING,
    (_S.VERIFIED, _E.DISPROVEN): _S.ENDING,
    (_S.VERIFIED, _E.END_WANTED): _S.ENDING,
    (_S.ENDING, _E.CONFIRMED_GONE): _S.GONE,
    (_S.ENDING, _E.REJECTED): _S.GONE,  # The no arrived after we had stopped wanting it.
}

MAY_HAVE_MACHINE = frozenset({_S.LAUNCHING, _S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED, _S.ENDING})
"""States in which the provider may be charging us."""
WANTED = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED})
SHOULD_BE_SIGHTED = frozenset({_S.BOOTING, _S.BOOTSTRAPPING, _S.VERIFIED})
"""States in which a complete list without it is odd."""
TERMINAL = frozenset({_S.GONE})
PROVIDER_CONFIRMS = frozenset({_E.REJECTED, _E.CONFIRMED_GONE})
"""The only events that may close a row which may have a machine."""


class Step(StrEnum):
    """What a customer sees on the way to ready, in this order. Evidence, not control flow."""

    PLACED = "placed"
    LAUNCHED = "launched"
    BOOTED = "booted"
    CONNECTED = "connected"
    MESH_JOINED = "mesh_joined"
    GPUS_VERIFIED = "gpus_verified"
    GPUS_PROVEN = "gpus_proven"
    """Only where the SKU demands proof."""
    KEYS_INSTALLED = "keys_installed"
    """The last, so that nobody is on a machine before it is known to be what was sold."""


class FailReason(StrEnum):
    """Why an attempt did not become a verified machine. Stable codes."""

    NO_CAPACITY = "no_capacity"
    QUOTA_REACHED = "quota_reached"
    ORDER_REFUSED = "order_refused"
    UNAUTHORIZED = "unauthorized"
    LAUNCH_ANSWER_LOST = "launch_answer_lost"
    NOT_TAKEN = "not_taken"
    """The provider was too busy for the order, or out of reach, for too long."""
    NEVER_BOOTED = "never_booted"
    PROVIDER_REPORTED_FAILURE = "provider_reported_failure"
    UNREACHABLE = "unreachable"
    HOST_KEY_CHANGED = "host_key_changed"
    SETUP_FAILED = "setup_failed"
    GPU_MISMATCH = "gpu_mismatch"
    PROOF_FAILED = "proof_failed"
    """Its GPUs failed their proof twice in a row, or prove less than was sold."""
    PROOF_EMULATED = "proof_emulated"
    """An emulation answered for its GPUs."""
    VANISHED = "vanished"
    LEASE_ENDED = "lease_ended"


def step(
    state: MachineState, event: MachineEvent
) -> Moved[MachineState, MachineEvent] | Ignored[MachineState, MachineEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class Machine:
    """An attempt as it is written down now."""

    id: MachineId
    organization_id: OrganizationId
    lease_id: LeaseId
    account: AccountName
    provider: str
    region: str
    native_region: str
    native_type: str
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
    sighted_at: datetime | None
    missed_since: datetime | None
    missed_lists: int
    step: Step | None
    fail_reason: FailReason | None
    fail_why: str | None
    suspect_since: datetime | None
    """Since when its GPU proofs speak against it."""
    erasing_until: datetime | None
    """Until when its end waits for the proof that its GPU memory is overwritten."""


@dataclass(frozen=True, slots=True)
class MachineMove:
    """One move of one machine, with what becomes known in the same moment. None leaves a column as it is."""

    id: MachineId
    seen: int
    """The generation the decision was made on."""
    moved: Moved[MachineState, MachineEvent]
    why: str | None = None
    host_key: str | None = None
    asked_at: datetime | None = None
    deadline_at: datetime | None = None
    provider_ref: ProviderRef | None = None
    provider_state: str | None = None
    address: str | None = None
    ssh_port: int | None = None
    step: Step | None = None
    fail_reason: FailReason | None = None
    gone_evidence: str | None = None
    due_at: datetime | None = None
    proof_due_at: datetime | None = None
    erasing_until: datetime | None = None
