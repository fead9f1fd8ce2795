"""Which machine that waits in a pool a lease gets, and why the others do not fit.

A machine fits when an offer like it would: the same SKU, a region and a provider that the request and the envelopes
allow, on demand, and at most at the price that it is sold for. It also has to be ready now: verified, listed by its
provider, and proven as the SKU demands (`claim.why_not`). A machine that is reserved for the lease goes first, then
what costs us least, and among equals what has waited longest.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.claim import why_not
from control_plane.domain.envelope import Envelope
from control_plane.domain.ids import MachineId
from control_plane.domain.lease import Lease, LeaseKind
from control_plane.domain.machine import Machine
from control_plane.domain.money import Nano, dollars_down, dollars_up
from control_plane.domain.pool import LIVE, PoolState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import Shape
from control_plane.domain.sla import SlaTier

CONSIDERED_NAMED_MAX = 20
"""So many machines that did not fit are named in a placement."""


class PoolRejectCode(StrEnum):
    """Why a machine of a pool was not claimed."""

    POOL_CLOSED = "pool_closed"
    """Its pool is being deleted."""
    OTHER_TIER = "other_tier"
    """Its pool serves another service level."""
    NODE = "node"
    """The lease is a node of a cluster."""
    SPOT = "spot"
    """The lease is for spot capacity."""
    INTERRUPTIBLE = "interruptible"
    """The lease is interruptible; what waits in pools is for those that are not."""
    REGION_EXCLUDED = "region_excluded"
    PROVIDER_EXCLUDED = "provider_excluded"
    ENVELOPE_EXCLUDED = "envelope_excluded"
    COSTS_MORE_THAN_SOLD = "costs_more_than_sold"
    ACCOUNT_UNHEALTHY = "account_unhealthy"
    SHAPE_DIFFERS = "shape_differs"
    """The SKU promises more now than when it was ordered."""
    NOT_READY = "not_ready"
    """It is still set up, is not listed by its provider, or is not proven now."""
    TAKEN = "taken"
    """A lease that goes first takes it."""


@dataclass(frozen=True, slots=True)
class PooledMachine(Machine):
    """A machine that waits for a lease, with its pool. A reserved one has no pool."""

    sku: str | None
    """What its pool is for."""
    pool: str | None
    """The name of its pool."""
    pool_state: PoolState | None
    pool_sla: SlaTier | None
    """The only service level that its pool serves."""
    cost_nano_per_hour: Nano
    vcpus: int
    memory_gib: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Unfit:
    """A machine that was not claimed."""

    machine_id: MachineId
    pool: str | None
    code: PoolRejectCode
    why: str


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """What was decided about the machines of pools for one lease."""

    machine_id: MachineId | None
    """The machine that it gets; None when none fits."""
    pool: str | None
    """The name of its pool; None for one that was reserved for the lease."""
    unfit: tuple[Unfit, ...]
    """Why others do not fit, CONSIDERED_NAMED_MAX at most."""
    more_fit: int = 0
    """How many more machines fit."""
    more_unfit: int = 0
    """How many more do not fit, and are not named."""


@dataclass(frozen=True, slots=True)
class Request:
    """A lease that waits for a machine, and what a machine is held against."""

    lease: Lease
    shape: Shape
    """What its SKU promises now."""
    envelopes: Sequence[Envelope]
    unhealthy_accounts: Mapping[str, str]
    """Each with the reason why nothing is bought there."""
    now: datetime


def choose(
    asked: Request, waiting: Iterable[PooledMachine], *, taken: Collection[MachineId]
) -> PoolChoice | None:
    """Which of the machines the lease gets; None when none of them is for its SKU or for itself.

    `taken` are machines that leases get which go before it.
    """
    lease = asked.lease
    about = [
        each for each in waiting if each.reserved_for == lease.id or (each.sku == lease.sku and each.pool_id)
    ]
    if not about:
        return None
    fit: list[PooledMachine] = []
    unfit: list[Unfit] = []
    for each in sorted(about, key=lambda pooled: _order(lease, pooled)):
        refused = _refusal(asked, each, taken)
        if refused is None:
            fit.append(each)
        else:
            unfit.append(Unfit(each.id, each.pool, *refused))
    named = tuple(unfit[:CONSIDERED_NAMED_MAX])
    more_unfit = len(unfit) - len(named)
    if not fit:
        return PoolChoice(None, None, named, more_unfit=more_unfit)
    return PoolChoice(fit[0].id, fit[0].pool, named, len(fit) - 1, more_unfit)


def _order(lease: Lease, each: PooledMachine) -> tuple[bool, Nano, datetime, MachineId]:
    return (each.reserved_for != lease.id, each.cost_nano_per_hour, each.created_at, each.id)


def _refusal(
    asked: Request, each: PooledMachine, taken: Collection[MachineId]
) -> tuple[PoolRejectCode, str] | None:
    return (
        _not_for(asked.lease, each)
        or _excluded(asked.lease, each, asked.envelopes)
        or _too_small(each, asked.shape)
        or _not_now(asked, each, taken)
    )


def _not_for(lease: Lease, each: PooledMachine) -> tuple[PoolRejectCode, str] | None:
    if each.pool_state is not None and each.pool_state not in LIVE:
        return PoolRejectCode.POOL_CLOSED, f"Its pool is {each.pool_state}."
    if each.pool_sla not in (None, lease.sla):
        return PoolRejectCode.OTHER_TIER, f"Its pool is for {each.pool_sla} leases."
    if lease.kind is LeaseKind.NODE:
        return PoolRejectCode.NODE, "Nodes of clusters are not taken from pools."
    if lease.purchase is PurchaseKind.INTERRUPTIBLE:
        return PoolRejectCode.INTERRUPTIBLE, "The lease is interruptible; the pool is for those that are not."
    if lease.purchase is PurchaseKind.SPOT:
        return PoolRejectCode.SPOT, "It is sold on demand; the lease is spot."
    return None


def _excluded(
    lease: Lease, each: PooledMachine, envelopes: Sequence[Envelope]
) -> tuple[PoolRejectCode, str] | None:
    region, provider, request = each.region, each.provider, lease.request
    if not request.allows_region(region):
        return PoolRejectCode.REGION_EXCLUDED, f"The request is for {' or '.join(request.regions)}."
    if not request.allows_provider(provider):
        return PoolRejectCode.PROVIDER_EXCLUDED, f"The request is for {' or '.join(request.providers)}."
    if not all(
        envelope.allows_region(region) and envelope.allows_provider(provider) for envelope in envelopes
    ):
        return PoolRejectCode.ENVELOPE_EXCLUDED, "An envelope of the lease does not allow its place."
    if each.cost_nano_per_hour > lease.nano_per_hour:
        cost, sold = dollars_up(each.cost_nano_per_hour), dollars_down(lease.nano_per_hour)
        why = f"It costs us {cost} USD per hour and is sold at {sold} USD."
        return PoolRejectCode.COSTS_MORE_THAN_SOLD, why
    return None


def _too_small(each: PooledMachine, shape: Shape) -> tuple[PoolRejectCode, str] | None:
    if each.vcpus >= shape.vcpus and each.memory_gib >= shape.memory_gib:
        return None
    has, promised = (f"{size.vcpus} vCPUs and {size.memory_gib} GiB memory" for size in (each, shape))
    return PoolRejectCode.SHAPE_DIFFERS, f"It has {has}; the SKU promises {promised}."


def _not_now(
    asked: Request, each: PooledMachine, taken: Collection[MachineId]
) -> tuple[PoolRejectCode, str] | None:
    if each.account in asked.unhealthy_accounts:
        return PoolRejectCode.ACCOUNT_UNHEALTHY, asked.unhealthy_accounts[each.account]
    if each.id in taken:
        return PoolRejectCode.TAKEN, "A lease that goes first takes it."
    refusal = why_not(asked.lease, each, (), None, asked.now)
    if refusal is not None:
        return PoolRejectCode.NOT_READY, f"{refusal[0].upper()}{refusal[1:]}."
    return None
