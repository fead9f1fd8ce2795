"""The state machine of a lease: a customer's right to capacity, from the request to the last machine gone.

    PLACING --placed--> STARTING --verified--> READY --released/unfunded/lost/taken back/proof--> ENDING --gone--> ENDED
      ^ ^                  |                     |
      | `--attempt failed--'                     |    a release, or giving up, leads from any earlier state to ENDING
      `------replacing (OnEviction.REPLACE)------'

The bill runs exactly while the lease is READY; between two machines it is paused. A lease stays ENDING until its
providers have confirmed the end of every machine that it claimed as a whole; a node of which it had a slot stays. Why
it ended is `EndReason`, not more states.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import (
    EnvironmentId,
    LeaseId,
    NetworkId,
    NodePoolId,
    OrganizationId,
    PriceAgreementId,
    ProjectId,
    QuoteId,
    SshKeyId,
)
from control_plane.domain.metering import release_fee
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.sku import units_of
from control_plane.domain.sla import SlaTier
from control_plane.domain.tariff import Tariff, paused_since
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class LeaseState(StrEnum):
    PLACING = "placing"
    """Waiting for a candidate. Machines of failed attempts may still be alive."""
    STARTING = "starting"
    """One attempt is under way."""
    READY = "ready"
    """Verified, reachable, billed."""
    ENDING = "ending"
    """No longer billed. Machines may still live."""
    ENDED = "ended"
    """Every machine is confirmed gone."""


class LeaseEvent(StrEnum):
    PLACED = "placed"
    ATTEMPT_FAILED = "attempt_failed"
    VERIFIED = "verified"
    """Its machine is verified, and the customer is admitted."""
    RELEASED = "released"
    """The customer released it."""
    AUTO_RELEASED = "auto_released"
    """A limit that the customer set at its creation was reached."""
    GAVE_UP = "gave_up"
    """No candidate is left, or the lease waited too long, or the node pool that it belongs to did."""
    UNFUNDED = "unfunded"
    """The next hold could not be placed."""
    MACHINE_LOST = "machine_lost"
    """The machine of a ready lease is gone, according to the provider. Or that of a node was taken away because it is
    not healthy: its pool gets another lease."""
    EVICTED = "evicted"
    """The provider took the machine of a ready lease back, and the lease ends with it."""
    PREEMPTED = "preempted"
    """We took the machine of a ready interruptible lease back for a lease whose readiness is promised."""
    REPLACING = "replacing"
    """The machine of a ready lease was taken back by its provider or by us, or taken away because it is not healthy,
    and the lease waits for another one."""
    PROOF_FAILED = "proof_failed"
    """The machine of a ready lease failed its GPU proof twice in a row."""
    ORGANIZATION_SUSPENDED = "organization_suspended"
    """An operator suspended its organization for a reason that ends its leases."""
    ORGANIZATION_CLOSED = "organization_closed"
    """An operator closed its organization."""
    ENVELOPE_EXCEEDED = "envelope_exceeded"
    """It was outside of an envelope that ends such leases, for longer than the grace after its warning."""
    ENDED_BY_OPERATOR = "ended_by_operator"
    """An operator ended this lease, for a reason of their own."""
    MACHINES_GONE = "machines_gone"
    """The provider confirmed the end of every machine of this lease."""


class LeaseKind(StrEnum):
    """What a customer gets."""

    MACHINE = "machine"
    """A machine to log in to."""
    NODE = "node"
    """A node in a Kubernetes cluster, of a node pool."""


class EndReason(StrEnum):
    RELEASED = "released"
    AUTO_RELEASED = "auto_released"
    NO_CAPACITY = "no_capacity"
    UNFUNDED = "unfunded"
    MACHINE_LOST = "machine_lost"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    PROOF_FAILED = "proof_failed"
    ORGANIZATION_SUSPENDED = "organization_suspended"
    ORGANIZATION_CLOSED = "organization_closed"
    ENVELOPE_EXCEEDED = "envelope_exceeded"
    ENDED_BY_OPERATOR = "ended_by_operator"


_S = LeaseState
_E = LeaseEvent

NEXT: dict[tuple[LeaseState, LeaseEvent], LeaseState] = {
    (_S.PLACING, _E.PLACED): _S.STARTING,
    (_S.PLACING, _E.RELEASED): _S.ENDING,
    (_S.PLACING, _E.AUTO_RELEASED): _S.ENDING,  # Only a lease that has lost a machine has its limits running.
    (_S.PLACING, _E.ORGANIZATION_SUSPENDED): _S.ENDING,
    (_S.PLACING, _E.ORGANIZATION_CLOSED): _S.ENDING,
    (_S.PLACING, _E.ENVELOPE_EXCEEDED): _S.ENDING,
    (_S.PLACING, _E.ENDED_BY_OPERATOR): _S.ENDING,
    (_S.PLACING, _E.GAVE_UP): _S.ENDING,  # Not ENDED: an attempt with an unknown answer may have a machine.
    (_S.STARTING, _E.VERIFIED): _S.READY,
    (_S.STARTING, _E.ATTEMPT_FAILED): _S.PLACING,
    (_S.STARTING, _E.RELEASED): _S.ENDING,
    (_S.STARTING, _E.AUTO_RELEASED): _S.ENDING,
    (_S.STARTING, _E.GAVE_UP): _S.ENDING,  # Only the lease of a node whose pool is given up.
    (_S.STARTING, _E.ORGANIZATION_SUSPENDED): _S.ENDING,
    (_S.STARTING, _E.ORGANIZATION_CLOSED): _S.ENDING,
    (_S.STARTING, _E.ENVELOPE_EXCEEDED): _S.ENDING,
    (_S.STARTING, _E.ENDED_BY_OPERATOR): _S.ENDING,
    (_S.READY, _E.RELEASED): _S.ENDING,
    (_S.READY, _E.AUTO_RELEASED): _S.ENDING,
    (_S.READY, _E.UNFUNDED): _S.ENDING,
    (_S.READY, _E.MACHINE_LOST): _S.ENDING,
    (_S.READY, _E.EVICTED): _S.ENDING,
    (_S.READY, _E.PREEMPTED): _S.ENDING,
    (_S.READY, _E.REPLACING): _S.PLACING,
    (_S.READY, _E.PROOF_FAILED): _S.ENDING,
    (_S.READY, _E.ORGANIZATION_SUSPENDED): _S.ENDING,
    (_S.READY, _E.ORGANIZATION_CLOSED): _S.ENDING,
    (_S.READY, _E.ENVELOPE_EXCEEDED): _S.ENDING,
    (_S.READY, _E.ENDED_BY_OPERATOR): _S.ENDING,
    (_S.ENDING, _E.MACHINES_GONE): _S.ENDED,
}

BILLED = frozenset({_S.READY})
LIVE = frozenset({_S.PLACING, _S.STARTING, _S.READY})
"""Counted against the quota, and backed by a hold."""
TERMINAL = frozenset({_S.ENDED})
ENDED_BY_PEOPLE = frozenset(
    {
        _E.RELEASED,
        _E.ORGANIZATION_SUSPENDED,
        _E.ORGANIZATION_CLOSED,
        _E.ENVELOPE_EXCEEDED,
        _E.ENDED_BY_OPERATOR,
    }
)
BILLED_WHILE_LISTED = ENDED_BY_PEOPLE | {_E.PREEMPTED}
"""Somebody decided the end: time in which nobody could list the machine before it is not billed."""

END_REASONS: dict[LeaseEvent, EndReason] = {
    _E.RELEASED: EndReason.RELEASED,
    _E.AUTO_RELEASED: EndReason.AUTO_RELEASED,
    _E.GAVE_UP: EndReason.NO_CAPACITY,
    _E.UNFUNDED: EndReason.UNFUNDED,
    _E.MACHINE_LOST: EndReason.MACHINE_LOST,
    _E.EVICTED: EndReason.EVICTED,
    _E.PREEMPTED: EndReason.PREEMPTED,
    _E.PROOF_FAILED: EndReason.PROOF_FAILED,
    _E.ORGANIZATION_SUSPENDED: EndReason.ORGANIZATION_SUSPENDED,
    _E.ORGANIZATION_CLOSED: EndReason.ORGANIZATION_CLOSED,
    _E.ENVELOPE_EXCEEDED: EndReason.ENVELOPE_EXCEEDED,
    _E.ENDED_BY_OPERATOR: EndReason.ENDED_BY_OPERATOR,
}


def step(
    state: LeaseState, event: LeaseEvent
) -> Moved[LeaseState, LeaseEvent] | Ignored[LeaseState, LeaseEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class AdmittedKey:
    """An SSH key that a lease is limited to, as it was when the lease was created."""

    id: SshKeyId
    name: str
    public_key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it is stored now."""

    id: LeaseId
    organization_id: OrganizationId
    project_id: ProjectId
    project: str
    """The project's name."""
    environment_id: EnvironmentId
    environment: str
    """The environment's name."""
    network_id: NetworkId | None
    """The network that its machines join; None for a node of a pool."""
    network: str | None
    """The network's name."""
    node_pool_id: NodePoolId | None
    """The pool of which it is a node; None for a machine that its customer logs in to."""
    node_pool: str | None
    """The pool's name."""
    cluster: str | None
    """The name of the pool's cluster."""
    name: str
    sku: str
    gpu_model: GpuModel | None
    gpu_count: int
    purchase: PurchaseKind
    committed_days: int | None
    """The term that was committed to; None unless it is bought so."""
    on_eviction: OnEviction
    """What happens when its machine is taken back; END for what is bought on demand or committed to."""
    sla: SlaTier
    """How much is promised with it."""
    sla_version: int | None
    """The version of the terms of its tier, fixed when the lease was created; None when nothing is promised."""
    nano_per_unit_hour: Nano
    """Fixed when the lease was admitted; later price changes do not affect it."""
    stopped_nano_per_unit_hour: Nano
    """The price while its machine is stopped: fixed at the same time, and raised to what the provider bills us when the
    lease is ready (`tariff.stopped_price`)."""
    list_nano_per_unit_hour: Nano
    """What the price book said when it was admitted, without an agreement and the factor of a burst."""
    price_book: int
    """The version of the price book that the price is from."""
    price_agreement_id: PriceAgreementId | None
    """The agreement with the customer that the price is from; None: the price book."""
    quote_id: QuoteId | None
    """The quote whose price it has; None when it has the price of its creation."""
    proof: Tier
    """What its machine has to prove: what the SKU demanded when the lease was admitted."""
    regions: tuple[str, ...]
    providers: tuple[str, ...]
    price_nano_per_hour_max: Nano | None
    network_gbps_min: int | None
    priority: int
    ssh_keys: tuple[AdmittedKey, ...] | None
    """The only SSH keys that certificates are signed for; None: any key of whoever may log in."""
    labels: Mapping[str, str]
    """The customer's own words for the lease. They may change."""
    wait_timeout_seconds: int
    """How long after its creation it waits for an offer before it is given up."""
    auto_release_after_seconds: int | None
    auto_release_spend_nano: Nano | None
    state: LeaseState
    generation: int
    attempts: int
    end_reason: EndReason | None
    end_why: str | None
    waiting_since: datetime | None
    """Since when no offer can serve it; None unless it is placing and waits."""
    waiting_why: str | None
    created_at: datetime
    ready_at: datetime | None
    release_at: datetime | None
    """When it is released by itself; None before it is ready, and when no limit applies."""
    switched_at: tuple[datetime, ...]
    """When its machine was stopped and started again, in turn (`Tariff`)."""
    paused_at: tuple[datetime, ...]
    """When its bill was paused and resumed, in turn."""
    billed_until: datetime | None
    unused_unit_seconds: int
    """What is billed of the rest of its term, because its customer released it earlier."""
    ended_at: datetime | None

    def tariff(self, ready_at: datetime) -> Tariff:
        """What it costs, ready since `ready_at`."""
        return Tariff(
            ready_at=ready_at,
            units=self.units,
            nano_per_unit_hour=self.nano_per_unit_hour,
            stopped_nano_per_unit_hour=self.stopped_nano_per_unit_hour,
            switched_at=self.switched_at,
            paused_at=self.paused_at,
            committed_days=self.committed_days,
            unused_unit_seconds=self.unused_unit_seconds,
        )

    @property
    def committed_until(self) -> datetime | None:
        """The end of its term; None before it is ready, and without one."""
        return None if self.ready_at is None else self.tariff(self.ready_at).committed_until

    def release_fee(self, now: datetime) -> Nano:
        """What its customer pays at once for releasing it now: the rest of the term that was committed to.

        Nothing before it is ready, while it waits for another machine, and once it ends.
        """
        if self.ready_at is None or self.state not in BILLED:
            return NOTHING
        return release_fee(self.tariff(self.ready_at), now)

    @property
    def unused_cost(self) -> Nano:
        """What is billed of the rest of its term, because its customer released it earlier."""
        if self.ready_at is None or self.billed_until is None:
            return NOTHING
        return self.tariff(self.ready_at).unused_cost(self.billed_until, self.unused_unit_seconds)

    @property
    def replaced_since(self) -> datetime | None:
        """Since when it waits for a machine in place of one that was taken; None while it does not."""
        return paused_since(self.paused_at)

    @property
    def units(self) -> int:
        """What the price is for: GPUs, or one machine where there are none."""
        return units_of(self.gpu_count)

    @property
    def nano_per_hour(self) -> Nano:
        return Nano(self.nano_per_unit_hour * self.units)

    @property
    def kind(self) -> LeaseKind:
        return LeaseKind.MACHINE if self.node_pool_id is None else LeaseKind.NODE

    @property
    def scope(self) -> Scope:
        """The lease as a scope of roles."""
        return Scope(ScopeKind.LEASE, self.project_id, self.environment_id, self.id)

    @property
    def request(self) -> CapacityRequest:
        """The customer's request."""
        return CapacityRequest(
            self.sku,
            self.regions,
            self.providers,
            self.price_nano_per_hour_max,
            self.priority,
            self.purchase,
            self.sla,
            self.network_gbps_min,
            self.committed_days,
        )

    @property
    def auto_release(self) -> AutoRelease:
        return AutoRelease(self.auto_release_after_seconds, self.auto_release_spend_nano)

    @property
    def gives_up_at(self) -> datetime:
        """When it ends if no offer can serve it until then."""
        since = self.replaced_since or self.created_at
        return since + timedelta(seconds=self.wait_timeout_seconds)


@dataclass(frozen=True, slots=True)
class PlacingLease(Lease):
    """A lease that waits for a machine."""

    due_at: datetime
    """When it was to be looked at. Much later than that, an outage of ours kept us from it."""
    held_at: tuple[datetime, ...]
    """When its customer's own envelope began and ceased to keep it from being placed, in turn."""


@dataclass(frozen=True, slots=True)
class LeaseMove:
    """One move of one lease."""

    id: LeaseId
    seen: int
    """The generation that the decision was based on."""
    moved: Moved[LeaseState, LeaseEvent]
    why: str | None = None
    billed_until: datetime | None = None
    """When billing stopped, for a move out of READY; the moment of the move when None."""
    unused_unit_seconds: int = 0
    """What is billed of the rest of its term, for such a move."""
    release_at: datetime | None = None
    """When the lease is released by itself, for a move to READY or from it to PLACING."""
    paused_at: datetime | None = None
    """When its bill is paused, for a move from READY to PLACING."""
