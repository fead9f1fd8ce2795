"""Lease operations for customers: quote, create, release, label. Each is one transaction: load, decide, store.

What customers read of them is in `services/lease_overviews.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from control_plane.db import (
    envelopes,
    journal,
    lease_overviews,
    leases,
    organizations,
    proof_records,
    ssh_keys,
    traces,
)
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Admitted, Price, Proposal, admit
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.envelope import NAMES
from control_plane.domain.envelope_rules import Applied, exceeds
from control_plane.domain.environment import Environment
from control_plane.domain.ids import AdmissionDecisionId, LeaseId, OrganizationId, Prefix, on_wire
from control_plane.domain.journal import Note
from control_plane.domain.lease import AdmittedKey, Lease, LeaseEvent, LeaseState, PurchaseKind
from control_plane.domain.network import Network
from control_plane.domain.placement import PROOF_RECORD_WINDOW, Ranking, rank
from control_plane.domain.project import Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.outcomes import leases as outcomes
from control_plane.services import admissions, environments, networks, projects
from control_plane.services.lease_overviews import NOT_FOUND, Shown, get
from control_plane.services.market import Market, market_of
from control_plane.world import World
from tracing.attributes import Attribute

__all__ = ["Overview", "Quote"]  # For controllers and views, which must not import the layer below.

GENERATED_DIGITS = 8
"""Random digits in a generated name. Should a live lease have the same ones, the name gets all digits of the id."""


@dataclass(frozen=True, slots=True)
class Quote:
    """What a lease would cost and where it would be placed, without buying."""

    project: str
    environment: str
    verdict: Admitted | NotAdmitted
    price: Price | None
    ranking: Ranking


async def quote(
    world: World,
    organization_id: OrganizationId,
    request: CapacityRequest,
    *,
    project: str | None = None,
    environment: str | None = None,
    reach: Reach,
) -> Quote | Refused:
    """What a lease would cost, and whether it would be admitted in this project and environment, as by `create`."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        place = await _place(connection, organization_id, project, environment, reach=reach)
        if isinstance(place, Refused):
            return place
        market = await market_of(connection, request, now)
        proposal = await _proposal(connection, place.environment, request, market, now, lock=False)
        price, ranking = market.price, Ranking((), ())
        if price is not None and market.unserved is None:
            ranking = rank(
                request,
                price.sku.shape,
                price.nano_per_hour,
                market.offers,
                envelopes=[applied.envelope for applied in proposal.envelopes],
                failures={},
                unhealthy_accounts=await outcomes.unhealthy_accounts(connection),
                disproven=await proof_records.disproven(connection, since=now - PROOF_RECORD_WINDOW),
                now=now,
            )
    verdict = admit(proposal)
    if isinstance(verdict, Admitted):
        price = verdict.price
    return Quote(place.project.name, place.environment.name, verdict, price, ranking)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a lease is to be."""

    project: Project
    environment: Environment


async def _place(
    connection: Connection,
    organization_id: OrganizationId,
    project: str | None,
    environment: str | None,
    *,
    reach: Reach,
) -> _Place | Refused:
    of_project = await projects.of_lease(connection, organization_id, project, reach=reach)
    if isinstance(of_project, Refused):
        return of_project
    in_environment = await environments.of_lease(connection, of_project, environment, reach=reach)
    return in_environment if isinstance(in_environment, Refused) else _Place(of_project, in_environment)


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
    place = await _place(connection, organization_id, wanted.project, wanted.environment, reach=reach)
    if isinstance(place, Refused):
        return place
    ordered = _Ordered(place, wanted, [wanted.name], Action.LEASE_CREATE)
    made = await _create(connection, world, ordered, actor=actor)
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
    place = await _place(connection, organization_id, wanted.project, wanted.environment, reach=reach)
    if isinstance(place, Refused):
        return place
    name = wanted.name
    names = [None if name is None else f"{name}-{number}" for number in range(1, count + 1)]
    return await _create(connection, world, _Ordered(place, wanted, names, Action.LEASE_BATCH), actor=actor)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Leases that are to be created together in one place."""

    place: _Place
    wanted: WantedLease
    names: Sequence[str | None]
    """One for each of them."""
    action: Action


async def _create(
    connection: Connection, world: World, ordered: _Ordered, *, actor: Actor
) -> Sequence[Lease] | Refused:
    """Decide once for all, and store each. A refusal has to roll the caller's transaction back."""
    now, place, wanted = world.now(), ordered.place, ordered.wanted
    network = await networks.of_lease(connection, place.project, wanted.network)
    if isinstance(network, Refused):
        return network
    keys = await _admitted_keys(connection, place.project, wanted.ssh_key_ids)
    if isinstance(keys, Refused):
        return keys
    market = await market_of(connection, wanted.request, now)
    proposal = replace(
        await _proposal(connection, place.environment, wanted.request, market, now, lock=True),
        action=ordered.action,
        count=len(ordered.names),
    )
    verdict = admit(proposal)
    if isinstance(verdict, NotAdmitted):
        about = About(place.project.organization_id, place.project.id, place.environment.id)
        return admissions.refused(verdict, about)
    leases_made: list[Lease] = []
    for name in ordered.names:
        lease = _admitted(
            LeaseId(world.new_id()), ordered, verdict.price, network=network, name=name, keys=keys, now=now
        )
        stored = await _store(connection, world, lease, verdict, named=name is not None, actor=actor)
        if isinstance(stored, Refused):
            return stored
        leases_made.append(stored)
    await _note_bursts(connection, proposal.envelopes, verdict, now)
    return leases_made


async def _store(
    connection: Connection, world: World, lease: Lease, verdict: Admitted, *, named: bool, actor: Actor
) -> Lease | Refused:
    """Store a lease with its hold and the decision. A generated name that is taken is made longer."""
    stored = partial(
        leases.insert,
        connection,
        hold_nano=verdict.hold_nano,
        decision=verdict.decision,
        decision_id=AdmissionDecisionId(world.new_id()),
        actor=actor,
        why=_admitted_why(lease.request, verdict),
    )
    if not await stored(lease):
        # An id is unique, and so is this name.
        longer = replace(lease, name=f"{lease.sku[:30]}-{lease.id.hex}")
        if named or not await stored(longer):
            return await _name_taken(connection, lease)
        lease = longer
    await _follow(connection, world, lease.id)
    return lease


def _admitted_why(request: CapacityRequest, verdict: Admitted) -> str:
    if not verdict.over:
        return f"{request.sku}; {len(verdict.decision.rules)} rules allowed it"
    over = " and ".join(NAMES[level] for level in verdict.over)
    return f"{request.sku}; over the limits of {over}, within a burst"


async def _note_bursts(
    connection: Connection, applied: Sequence[Applied], verdict: Admitted, now: datetime
) -> None:
    """Start the clock of the bursts that begin with this lease."""
    for each in applied:
        if each.id is not None and each.level in verdict.over and not exceeds(each):
            await envelopes.set_over_since(connection, each.id, now)


async def _name_taken(connection: Connection, lease: Lease) -> Refused:
    holder = await leases.live_named(connection, lease.project_id, lease.name)
    who = "A live lease" if holder is None else f"The live lease {on_wire(Prefix.LEASE, holder)}"
    return Refused(
        RefusalCode.NAME_TAKEN,
        f"{who} of the project {lease.project!r} is called {lease.name!r}; choose another name, or release it first.",
    )


def _admitted(
    lease_id: LeaseId,
    ordered: _Ordered,
    price: Price,
    *,
    network: Network,
    name: str | None,
    keys: tuple[AdmittedKey, ...] | None,
    now: datetime,
) -> Lease:
    """A new lease, with the price and the proof that it is promised for its whole life."""
    request, terms = ordered.wanted.request, ordered.wanted.terms
    project, environment = ordered.place.project, ordered.place.environment
    return Lease(
        id=lease_id,
        organization_id=project.organization_id,
        project_id=project.id,
        project=project.name,
        environment_id=environment.id,
        environment=environment.name,
        network_id=network.id,
        network=network.name,
        name=name or f"{request.sku[:50]}-{lease_id.hex[-GENERATED_DIGITS:]}",
        sku=request.sku,
        gpu_model=price.sku.shape.gpu_model,
        gpu_count=price.sku.shape.gpu_count,
        purchase=PurchaseKind.ON_DEMAND,
        nano_per_gpu_hour=price.nano_per_gpu_hour,
        price_book=price.book,
        proof=price.sku.proof,
        regions=request.regions,
        providers=request.providers,
        price_nano_per_hour_max=request.price_nano_per_hour_max,
        priority=request.priority,
        ssh_keys=keys,
        labels=terms.labels,
        wait_timeout_seconds=terms.wait_timeout_seconds,
        auto_release_after_seconds=terms.auto_release.after_seconds,
        auto_release_spend_nano=terms.auto_release.spend_nano,
        state=LeaseState.PLACING,
        generation=1,
        attempts=0,
        end_reason=None,
        end_why=None,
        waiting_since=None,
        waiting_why=None,
        created_at=now,
        ready_at=None,
        release_at=None,
        billed_until=None,
        ended_at=None,
    )


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


async def _proposal(
    connection: Connection,
    environment: Environment,
    request: CapacityRequest,
    market: Market,
    now: datetime,
    *,
    lock: bool,
) -> Proposal:
    """The facts that a new lease is admitted on. With `lock`, no other transaction spends for the organization."""
    standing = await organizations.standing(connection, environment.organization_id, lock=lock)
    if standing is None:
        raise LookupError(f"organization {environment.organization_id} has no standing")
    applied = await envelopes.applied(connection, [environment.id], now=now)
    return Proposal(
        Action.LEASE_CREATE,
        request,
        market.price,
        standing,
        applied[environment.id],
        now,
        sold=market.sold,
        unserved=market.unserved,
    )


async def _follow(connection: Connection, world: World, lease_id: LeaseId) -> None:
    """Let loops go on with this request's trace, and the request be found by the lease."""
    await traces.follow(connection, lease_id, world.tracer.traceparent())
    world.tracer.note(Attribute.LEASE, on_wire(Prefix.LEASE, lease_id))


async def release(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    actor: Actor,
    reach: Reach,
) -> Overview | Refused:
    """Release a lease: billing stops now, and its machine is terminated. A second release has no effect."""
    lease = (await leases.lock(connection, [lease_id])).get(lease_id)
    if lease is None or lease.organization_id != organization_id or not reach.contains(lease.scope):
        return NOT_FOUND
    if await outcomes.end(
        connection, lease, LeaseEvent.RELEASED, why="released by the customer", actor=actor, now=world.now()
    ):
        await _follow(connection, world, lease.id)
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


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
        lease = (await leases.lock(connection, [lease_id])).get(lease_id)
        if lease is None or lease.organization_id != organization_id or not reach.contains(lease.scope):
            return NOT_FOUND
        if lease.labels != labels:
            await leases.set_labels(connection, lease_id, labels)
            words = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
            why = f"the labels are now: {words}"
            await journal.note_lease(connection, lease_id, event=Note.LABELLED, why=why, actor=actor, now=now)
    return await get(world, organization_id, lease_id, reach=reach)
