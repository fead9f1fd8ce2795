"""Lease operations for customers: create, release, label. Each is one transaction: load, decide, store.

What customers read of them is in `services/lease_overviews.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from control_plane.db import (
    journal,
    lease_overviews,
    leases,
    ssh_keys,
    traces,
)
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, QuoteId, on_wire
from control_plane.domain.journal import Note
from control_plane.domain.lease import AdmittedKey, Lease, LeaseEvent, LeaseKind
from control_plane.domain.money import NOTHING, Nano, dollars_up
from control_plane.domain.project import Project
from control_plane.domain.purchase import TAKEN_BACK, OnEviction, PurchaseKind
from control_plane.domain.quote import KeptQuote
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.outcomes import lease_orders
from control_plane.outcomes import leases as outcomes
from control_plane.outcomes.lease_orders import LeaseOrder
from control_plane.services import admissions, lease_reach, networks, quotes
from control_plane.services.lease_overviews import Shown, get
from control_plane.services.places import Place, place_of
from control_plane.world import World
from tracing.attributes import Attribute

__all__ = ["Overview"]  # For controllers and views, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class WantedLease:
    """A lease, or several equal ones, as somebody asks for them. None of a name means the default one."""

    request: CapacityRequest
    name: str | None = None
    """Unique among the live leases of the project; None: one is generated."""
    project: str | None = None
    """The name or the id of one of the organization's projects."""
    environment: str | None = None
    """One of the project's environments."""
    network: str | None = None
    """One of the project's networks."""
    ssh_key_ids: Sequence[UUID] | None = None
    """Only these keys log in to the machine; None: any key of whoever may log in."""
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    quote_id: QuoteId | None = None
    """The quote whose price they have; None: today's price."""


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    wanted: WantedLease,
    *,
    actor: Actor,
    reach: Reach,
) -> Lease | Refused:
    """Admit a request as a lease, with a hold for its first hour, in the caller's transaction."""
    made = await _create(
        connection,
        world,
        organization_id,
        wanted,
        names=[wanted.name],
        action=Action.LEASE_CREATE,
        actor=actor,
        reach=reach,
    )
    return made if isinstance(made, Refused) else made[0]


async def create_batch(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    wanted: WantedLease,
    count: int,
    *,
    actor: Actor,
    reach: Reach,
) -> Sequence[Lease] | Refused:
    """Admit `count` equal leases by one decision, all or none. They are called by the name with their numbers."""
    name = wanted.name
    names = [None if name is None else f"{name}-{number}" for number in range(1, count + 1)]
    return await _create(
        connection,
        world,
        organization_id,
        wanted,
        names=names,
        action=Action.LEASE_BATCH,
        actor=actor,
        reach=reach,
    )


async def _create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    wanted: WantedLease,
    *,
    names: Sequence[str | None],
    action: Action,
    actor: Actor,
    reach: Reach,
) -> Sequence[Lease] | Refused:
    """Decide once for all, and store each. A refusal has to roll the caller's transaction back."""
    refused = _contradicts(wanted)
    if refused is not None:
        return refused
    asked = await _asked(connection, world, organization_id, wanted, reach=reach)
    if isinstance(asked, Refused):
        return asked
    place = asked.place
    network = await networks.of_lease(connection, place.project, wanted.network)
    if isinstance(network, Refused):
        return network
    keys = await _admitted_keys(connection, place.project, wanted.ssh_key_ids)
    if isinstance(keys, Refused):
        return keys
    order = LeaseOrder(
        *(place.of_leases, asked.request, wanted.terms, names, action, network, keys), quote=asked.quote
    )
    made = await lease_orders.create(connection, order, world.new_id, actor=actor, now=world.now())
    if isinstance(made, NotAdmitted):
        return admissions.refused(made, order.place.about)
    if not isinstance(made, Refused):
        for lease in made:
            await follow(connection, world, lease.id)
    return made


def _contradicts(wanted: WantedLease) -> Refused | None:
    """Why what is wanted does not go with how it is bought."""
    purchase, terms = wanted.request.purchase, wanted.terms
    if terms.on_eviction is OnEviction.REPLACE and purchase not in TAKEN_BACK:
        why = "Only the machine of a spot or an interruptible lease is taken back, and so can be replaced."
        return Refused(RefusalCode.REPLACEMENT_NEEDS_SPOT, why)
    if purchase is not PurchaseKind.COMMITTED:
        return None
    if terms.auto_release != AutoRelease():
        return ends_with_term()
    if wanted.request.committed_days is None and wanted.quote_id is None:
        why = "Say with `committed_days` which term you commit to; GET /v1/skus has that of each SKU."
        return Refused(RefusalCode.TERM_DIFFERS, why)
    return None


def ends_with_term() -> Refused:
    """The refusal of another end than that of the term."""
    why = "What is committed to ends with its term, and is paid for it; leave `auto_release` out."
    return Refused(RefusalCode.ENDS_WITH_TERM, why)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for, and where."""

    request: CapacityRequest
    place: Place
    quote: KeptQuote | None = None


async def _asked(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    wanted: WantedLease,
    *,
    reach: Reach,
) -> _Asked | Refused:
    if wanted.quote_id is None:
        place = await place_of(connection, organization_id, wanted.project, wanted.environment, reach=reach)
        return place if isinstance(place, Refused) else _Asked(wanted.request, place)
    quoted = await quotes.quoted(
        connection,
        organization_id,
        wanted.quote_id,
        wanted.request,
        project=wanted.project,
        environment=wanted.environment,
        reach=reach,
        now=world.now(),
    )
    return quoted if isinstance(quoted, Refused) else _Asked(quoted.request, quoted.place, quoted.quote)


async def _admitted_keys(
    connection: Connection, project: Project, ssh_key_ids: Sequence[UUID] | None
) -> tuple[AdmittedKey, ...] | Refused | None:
    """The keys that a request limits the lease to, by their ids; None when it does not."""
    if ssh_key_ids is None:
        return None
    keys: list[SshKey] = []
    if ssh_key_ids:
        keys = await ssh_keys.of_project(connection, project.organization_id, project.id)
    keys = [key for key in keys if key.id in ssh_key_ids]
    unknown = set(ssh_key_ids) - {key.id for key in keys}
    if unknown:
        missing = on_wire(Prefix.SSH_KEY, min(unknown))
        why = f"There is no SSH key {missing}; GET /v1/ssh-keys lists yours."
        return Refused(RefusalCode.SSH_KEY_UNKNOWN, why)
    return tuple(AdmittedKey(key.id, key.name, key.public_key, key.fingerprint) for key in keys)


async def follow(connection: Connection, world: World, lease_id: LeaseId) -> None:
    """Let loops go on with this request's trace, and the request be found by the lease."""
    await traces.follow(connection, lease_id, world.tracer.traceparent())
    world.tracer.note(Attribute.LEASE, on_wire(Prefix.LEASE, lease_id))


async def release(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    accept_fee_nano: Nano = NOTHING,
    actor: Actor,
    reach: Reach,
) -> Overview | Refused:
    """Release a lease: billing stops now, and its machine is terminated. A second release has no effect.

    Of a term that was committed to, the rest is charged at once, at most `accept_fee_nano`, or nothing is done.
    """
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        return of_node_pool(lease, "released")
    now = world.now()
    fee = lease.release_fee(now)
    if fee > accept_fee_nano:
        return _fee(lease, fee)
    if await outcomes.end(
        connection, lease, LeaseEvent.RELEASED, why="released by the customer", actor=actor, now=now
    ):
        await follow(connection, world, lease.id)
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


def _fee(lease: Lease, fee: Nano) -> Refused:
    """The refusal of a release whose price nobody accepted."""
    why = (
        f"The lease is committed to until {lease.committed_until:%Y-%m-%d %H:%M:%S} UTC: a release now costs"
        f" {dollars_up(fee)} USD at once for the rest of the term. To release it, accept that with `accept_fee_usd`."
    )
    return Refused(RefusalCode.FEE_NOT_ACCEPTED, why)


def of_node_pool(lease: Lease, done: str) -> Refused:
    """The refusal of what can only be done with a whole pool: a loop would replace its lease at once."""
    return Refused(
        RefusalCode.LEASE_OF_NODE_POOL,
        f"The lease is a node of the node pool {lease.node_pool!r} in the cluster {lease.cluster!r}, and cannot be"
        f" {done} alone; scale or delete the node pool.",
    )


async def label(
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    labels: Mapping[str, str],
    *,
    actor: Actor,
    reach: Reach,
) -> Shown | Refused:
    """Replace the labels of a lease, live or ended. Setting the same labels again changes nothing."""
    now = world.now()
    async with world.db.transaction(organization_id) as connection:
        lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        if lease.labels != labels:
            await leases.set_labels(connection, lease_id, labels)
            words = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
            why = f"the labels are now: {words}"
            await journal.note_lease(connection, lease_id, event=Note.LABELLED, why=why, actor=actor, now=now)
    return await get(world, organization_id, lease_id, reach=reach)
